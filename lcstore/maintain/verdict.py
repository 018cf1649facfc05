"""What may go of a store, and what must stay: pure functions of its contents."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple, NoReturn, Self

from lcstore.durability import Durability
from lcstore.errors import CorruptionError
from lcstore.format import keys, markkeys
from lcstore.graph.graph import Graph
from lcstore.graph.paths import PathCost, path_in
from lcstore.graph.plan import needed
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.contents import Contents, Stored
from lcstore.index.needs import Needed, needed_arrays
from lcstore.layout.layout import Layout
from lcstore.layout.specs import movable_in
from lcstore.maintain.broken import avoid, broken_states


class Scope(NamedTuple):
    """What a condemnation is about: an edge, the node whose own edge it is, and which of its objects."""

    edge: str
    node: str | None
    scope: str

    @classmethod
    def of(cls, name: markkeys.CondemnedName) -> Self:
        """Return what a condemnation is about."""
        return cls(name.edge, name.node, name.scope)

    @property
    def is_whole(self) -> bool:
        """Whether it is about all objects of the edge, and its record."""
        return self.scope == markkeys.WHOLE_EDGE


class Verdict(NamedTuple):
    """What kept states need.

    Attributes
    ----------
    arrays
        The arrays that their restores read.
    nodes
        The nodes that these restores lead over, the kept ones included.
    edges
        Edges of which everything stays.
    ways
        Nodes whose own edge is on the path of a restore.
    kept
        The kept states, and those that are spared.
    """

    arrays: set[Needed]
    nodes: set[str]
    edges: set[str]
    ways: set[str]
    kept: set[str]

    def either(self, other: Verdict) -> Verdict:
        """Return what is needed by this verdict or another."""
        arrays, nodes, edges = self.arrays | other.arrays, self.nodes | other.nodes, self.edges | other.edges
        return Verdict(arrays, nodes, edges, self.ways | other.ways, self.kept | other.kept)

    def keeps_array(self, stored: Stored, array: tuple[str, keys.Op]) -> bool:
        """Return whether an array has to stay."""
        return stored.edge in self.edges or (stored.edge, *array) in self.arrays

    def keeps_record(self, stored: Stored) -> bool:
        """Return whether the record of an edge has to stay."""
        if stored.edge in self.edges or (stored.own and stored.target in self.nodes):
            return True
        return not stored.own and any((stored.edge, *array) in self.arrays for array in stored.arrays)

    def closing(self, stored: Stored) -> str | None:
        """Return the scope that closes the way over an own edge, where no array of it that goes does so.

        The record stays, for what shortcuts leave to the edge. What a restore over it reads next may go.
        """
        if not stored.own or stored.edge in self.edges or stored.target in self.ways:
            return None
        going = any(
            not self.keeps_array(stored, array) for array in stored.arrays if array[1] in keys.COMPOSED
        )
        return None if going else markkeys.PATH


def judge_sparing(
    lately: Collection[str], contents: Contents, layout: Callable[[str], Layout], durability: Durability
) -> Verdict:
    """Find out what the kept states need, and those of some that were let go of, as far as they can be read.

    What the kept ones need without the others is in it, too: compaction adds shortcuts as if those were gone.
    Errors as for `judge`, of kept states alone.
    """
    graph, found = contents.graph, judge(contents, layout, durability)
    going = {name.node for name in contents.marks.condemned if name.scope == markkeys.WHOLE_EDGE}
    spared = graph.hidden.intersection(lately, graph.nodes) - contents.impassable - going
    if not spared:
        return found
    graph.hidden -= spared
    try:
        unread = {node for node, _ in _unreachable(graph, spared)}
        graph.hidden |= spared & (unread | broken_states(contents, layout).keys())
        return found.either(judge(contents, layout, durability))
    finally:
        graph.hidden |= spared


def judge(contents: Contents, layout: Callable[[str], Layout], durability: Durability) -> Verdict:
    """Find out what the kept states need.

    What is condemned is not relied on: another collector may be deleting it. Nor is what is not there: it may
    have been deleted when it seemed to be of no record. Nor is an edge to a state that was let go of and
    whose layout is lost: nothing is read over that. A state that only such edges lead to is in danger:
    nothing that any of its paths uses may then go.

    Raises
    ------
    CorruptionError
        A kept state cannot be restored over any path, or is known to lack an object.
    """
    graph, kept = contents.graph, contents.kept
    for node, error in _unreachable(graph, kept):
        _refuse(graph.nodes[node], error.message, keys.node_key(graph.nodes[node]))
    for node, key in broken_states(contents, layout).items():
        _refuse(graph.nodes[node], "an object that it needs is missing", key)
    elements, gone, avoided = elements_of(contents, layout), _gone(contents), set[str]()
    avoid(contents, {n.edge for n in contents.marks.condemned if n.scope == markkeys.WHOLE_EDGE}, whole=True)
    while True:
        tree = needed(graph, kept, elements, durability=durability)
        arrays = needed_arrays(contents, tree, kept, layout, contents.impassable)
        hit = {array[0] for array in arrays & gone} - avoided
        if not hit:
            break
        avoided |= hit
        avoid(contents, hit)
    ways = {ref.target for ref in tree if ref.edge is None}
    arrays |= _opening(contents, sorted(ways))
    nodes = kept | {ref.target for ref in tree} | {ref.base for ref in tree if ref.base != ROOT}
    shortcuts = {ref.edge for ref in tree if ref.edge is not None}
    danger = {node for node in kept if graph.is_in_danger(node)}
    above, edges = _above(graph, danger)
    around = graph.paths_around() if danger else {}
    for ref in (ref for node in danger for ref in path_in(around, node) or ()):
        # The way around: what is gone over backward, and the anchor that it comes from.
        above.add(ref.target)
        edges |= set() if ref.edge is None else {ref.edge}
    own = {contents.own[node] for node in above}
    return Verdict(arrays, nodes | above, shortcuts | edges | own, ways | above, kept)


def _opening(contents: Contents, nodes: Iterable[str]) -> set[Needed]:
    """Return the arrays without which the own edges of some nodes would be closed to readers.

    To condemn any array that composes closes the way over its edge. What the array takes is not worth that,
    though its tensors be gone from all kept states.
    """
    found: set[Needed] = set()
    for node in nodes:
        stored = contents.stored[contents.own[node]]
        found |= {(stored.edge, *array) for array in stored.arrays if array[1] in keys.COMPOSED}
    return found


def condemnable(contents: Contents, verdict: Verdict, orphans: set[str]) -> Iterator[Scope]:
    """List what no kept state needs.

    Parameters
    ----------
    orphans
        Edges of no record that are old enough.
    """
    for edge in sorted(orphans - set(contents.stored)):
        yield Scope(edge, None, markkeys.WHOLE_EDGE)
    for stored in contents.stored.values():
        node = stored.target if stored.own else None
        if not verdict.keeps_record(stored):
            yield Scope(stored.edge, node, markkeys.WHOLE_EDGE)
            continue
        for array in stored.arrays:
            if not verdict.keeps_array(stored, array):
                yield Scope(stored.edge, node, markkeys.array_scope(*array))
        closing = verdict.closing(stored)
        if closing is not None:
            yield Scope(stored.edge, node, closing)
        inexact = stored.target not in verdict.kept or stored.target in contents.marks.inexact
        if stored.exact and inexact:
            yield Scope(stored.edge, node, markkeys.EXACT_VALUE)


def objects_of(contents: Contents, scope: Scope) -> list[str]:
    """Return the keys of the objects that a condemnation is about and that are there."""
    there = contents.data.get(scope.edge, [])
    stored = contents.stored.get(scope.edge)
    if scope.is_whole or stored is None:
        return sorted(there)
    if scope.scope == markkeys.EXACT_VALUE:
        wanted = {ref.key for ref in stored.exact}
    else:
        arrays = {markkeys.array_scope(*array): refs for array, refs in stored.arrays.items()}
        wanted = {ref.key for ref in arrays.get(scope.scope, ())}
    return sorted(wanted.intersection(there))


def elements_of(contents: Contents, layout: Callable[[str], Layout]) -> int:
    """Return the size of the latest state, as `movable_in` counts it: plans go by it for all states."""
    latest = contents.graph.latest()
    tensors = () if latest is None else layout(contents.stored[contents.own[latest.node]].layout).tensors
    return movable_in(tensors)


def _gone(contents: Contents) -> set[tuple[str, str, str]]:
    """Return the arrays of records that are condemned, or of which an object is missing."""
    marked = {(name.edge, name.scope) for name in contents.marks.condemned}
    gone: set[tuple[str, str, str]] = set(contents.missing())
    for stored in contents.stored.values():
        for array in stored.arrays:
            scopes = {(stored.edge, markkeys.WHOLE_EDGE), (stored.edge, markkeys.array_scope(*array))}
            if not scopes.isdisjoint(marked):
                gone.add((stored.edge, *array))
    return gone


def _unreachable(graph: Graph, nodes: set[str]) -> Iterator[tuple[str, CorruptionError]]:
    """Yield the states to which no path leads, and what is said of that."""
    around: Mapping[str, PathCost] | None = None
    for node in sorted(nodes):
        try:
            graph.path_bytes(node)
        except CorruptionError as error:
            around = graph.paths_around() if around is None else around
            if node not in around:
                yield node, error


def _refuse(name: NodeName, why: str, key: str) -> NoReturn:
    raise CorruptionError(
        f"{why}; nothing is collected while a kept state cannot be restored: run `lcstore repair`; where "
        "that finds nothing to do, `lcstore verify` says what to do with that state",
        key=key,
        step=name.step,
    )


def _above(graph: Graph, nodes: set[str]) -> tuple[set[str], set[str]]:
    """Return some nodes and all above them, and the edges of maintenance that lead to any of these."""
    found = nodes | graph.ancestors(*nodes)
    return found, {edge.edge for edge in graph.edges.values() if edge.target in found}
