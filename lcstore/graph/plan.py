"""What compaction is to add, and what the collector may not delete: pure functions of the names."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from lcstore.durability import NAMED, Durability
from lcstore.graph.anchors import due_anchors
from lcstore.graph.branches import Branches
from lcstore.graph.graph import Graph
from lcstore.graph.newest import edges_for_newest
from lcstore.graph.numbered import Numbered
from lcstore.graph.refs import EDGE_COST, EdgeRef
from lcstore.graph.sizes import Sizes
from lcstore.graph.stops import Tree

#: How often a plan is looked at again with its own edges in place; twice nearly always does.
ROUNDS: Final = 8


@dataclass(frozen=True)
class Shortcut:
    """An edge to be made: the sum of the edges between two nodes, or an anchor where `base` is `ROOT`.

    Attributes
    ----------
    base, target
        Ids of nodes, or `ROOT`.
    nbytes
        About how many bytes it will have.
    span
        How many edges lie on the branch from one to the other.
    inputs
        The edges to be summed, in order. Those that the same plan makes earlier are named as planned. Where
        none are named, it is what leads there when the edge is made.
    """

    base: str
    target: str
    nbytes: int
    span: int
    inputs: tuple[EdgeRef, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What to add, in an order in which long merges find the short ones made, and what comes of it.

    Attributes
    ----------
    shortcuts
        The edges to be made.
    stored_before, stored_after
        Bytes of all edges that are not condemned, and of those that are needed once the plan is carried out.
    written
        Bytes to be written.
    edges_before, edges_after
        The most edges that a restore of a kept node goes over.
    newest_before, newest_after
        Bytes of the cheapest path to the latest kept node.
    stored_besides
        Of `stored_after`: anchors that no restore needs, so that damage costs little.
    """

    shortcuts: tuple[Shortcut, ...]
    stored_before: int
    stored_after: int
    written: int
    edges_before: int
    edges_after: int
    newest_before: int
    newest_after: int
    stored_besides: int = 0


def waits(shortcuts: Sequence[Shortcut]) -> list[tuple[int, ...]]:
    """Return for each shortcut of a plan the places of those that have to be made before it.

    One without inputs is the sum of whatever leads there: it waits for all that are planned before it.
    """
    places = {(shortcut.base, shortcut.target): place for place, shortcut in enumerate(shortcuts)}
    return [
        tuple(places[ref.base, ref.target] for ref in shortcut.inputs if ref.is_planned)
        if shortcut.inputs
        else tuple(range(place))
        for place, shortcut in enumerate(shortcuts)
    ]


def plan(
    graph: Graph,
    kept: Collection[str],
    elements: int,
    *,
    max_bytes: int | None = None,
    partial: AbstractSet[str] = frozenset(),
    durability: Durability = NAMED["none"],
) -> Plan:
    """Plan the shortcuts and anchors that make the kept nodes cheap to store and quick to restore.

    Carried out whole and collected, no restore of a kept node goes over more than log2(n) + 2 edges, n being
    the number of kept nodes, and the newest node of every run that no other stands on reads at most
    1.3 times the bytes of its anchor and one delta; the latest of all, 1.1 times. Planning again right after
    finds nothing to do. Once what is needless is collected, seldom (of a thousand histories, in one) a little
    more pays: sizes are then estimated from other edges. After that there is nothing again.

    Parameters
    ----------
    graph
        All nodes and edges. Condemned edges count as gone; they are merged only where there are no others.
    kept
        Ids of the nodes to be restored. Those that nothing leads to are left out.
    elements
        Weights in a state, at least 1.
    max_bytes
        Write no more than this: first anchors and what newest nodes need, then what frees most for each byte
        written. The bounds may then not hold yet.
    partial
        Ids of nodes of which so much is gone that no edge can be made to them: retired ones, and kept ones
        that are stripped of what their own edges do not set. No bound holds for the latter.
    durability
        Says which anchors that are there stay though the plan does without them.

    Raises
    ------
    ValueError
        `elements` is out of its range.
    """
    numbered = Numbered(graph, Sizes(elements))
    branches = Branches(numbered, numbered.there)
    wanted = {node for node in numbered.those(kept) if branches.placed[node]}
    there = {edge for links in branches.links for edge in links}
    frees = _try(branches, wanted, numbered.those(partial))
    if max_bytes is not None:
        for edge in frees.keys() - _affordable(numbered, frees, max_bytes):
            branches.drop(edge)
    tree = Tree(branches, wanted, set(), planning=False)
    made = set(filter(numbered.is_planned, tree.edges() | edges_for_newest(tree)))
    needs, besides = _fixed_point(graph, numbered, there | made, wanted, durability)
    before, after = (numbered.reach(edges, branches.nodes) for edges in (there, needs))
    newest = max(wanted, default=0)
    return Plan(
        shortcuts=tuple(_shortcuts(branches, made)),
        stored_before=numbered.sum(there),
        stored_after=numbered.sum(needs),
        written=numbered.sum(made),
        edges_before=max((before[node][1] for node in wanted & before.keys()), default=0),
        edges_after=max((after[node][1] for node in wanted & after.keys()), default=0),
        newest_before=_bytes_read(before, newest),
        newest_after=_bytes_read(after, newest),
        stored_besides=numbered.sum(besides),
    )


def _bytes_read(found: Mapping[int, tuple[int, int]], node: int) -> int:
    """Return the bytes of the cheapest path to a node; see `Numbered.reach`."""
    cost, edges = found.get(node, (0, 0))
    return cost - EDGE_COST * edges


def needed(
    graph: Graph, kept: Collection[str], elements: int, *, durability: Durability = NAMED["none"]
) -> frozenset[EdgeRef]:
    """Return the edges that kept nodes are restored over, and anchors that are due; others may be deleted.

    Every kept node that could be restored still can be. The edges form a tree, with further ones to the
    newest nodes of runs. Where only condemned edges lead to a kept node, all of its cheapest path is needed;
    where nothing does, whatever is above it is, since what is missing may yet turn up. What a plan would make
    again is needed too, though it came out larger than estimated: otherwise compaction and collection would
    make and delete it for ever. Asked again once all others are deleted, it is the same edges.

    Parameters
    ----------
    graph
        All nodes and edges.
    kept
        Ids of nodes.
    elements, durability
        As for `plan`: so the edges of a plan that was carried out are what is needed.

    Raises
    ------
    ValueError
        `elements` is out of its range.
    """
    numbered = Numbered(graph, Sizes(elements))
    there, wanted = {*numbered.there}, numbered.those(kept)
    found, _ = _fixed_point(graph, numbered, there, wanted, durability)
    while again := _made_again(numbered, there - found, found, wanted):
        found |= again
    return frozenset(map(numbered.ref, found))


def _made_again(numbered: Numbered, needless: set[int], left: set[int], kept: set[int]) -> set[int]:
    """Return which needless edges a plan would make again if only those that are left were there."""
    if all(map(numbered.is_own, needless)):
        return set()
    branches = Branches(numbered, left)
    wanted = {node for node in kept if branches.placed[node]}
    made = set(map(numbered.ends, _try(branches, wanted, set())))
    counted = {edge for links in Branches(numbered, needless | left).links for edge in links}
    again: dict[tuple[str, str], int] = {}
    # The smallest of each; of equal ones that of the lowest rank.
    for edge in sorted(needless & counted, key=lambda edge: (numbered.nbytes[edge], numbered.rank(edge))):
        if numbered.ends(edge) in made:
            again.setdefault(numbered.ends(edge), edge)
    return set(again.values())


def _fixed_point(
    graph: Graph, numbered: Numbered, edges: set[int], kept: set[int], durability: Durability
) -> tuple[set[int], set[int]]:
    """Return the fixed point of `_needed`: what it says of some edges, then of those, until that is the same.

    Sizes are estimated from edges that may go, so a choice may come out otherwise without those.
    """
    before, (found, besides) = edges, _needed(graph, numbered, edges, kept, durability)
    while found != before:
        before, (found, besides) = found, _needed(graph, numbered, found, kept, durability)
    return found, besides


def _needed(
    graph: Graph, numbered: Numbered, edges: Iterable[int], kept: set[int], durability: Durability
) -> tuple[set[int], set[int]]:
    """Return which of some edges are needed, and those of them that are for what `durability` says alone."""
    branches = Branches(numbered, edges)
    wanted = {node for node in kept if branches.placed[node]}
    tree = Tree(branches, wanted, set(), planning=False)
    needs = tree.edges() | edges_for_newest(tree) | numbered.above(kept - wanted)
    for node in wanted:
        if not tree.needed[node]:
            needs |= numbered.edges_of(graph.path(numbered.ids[node]))
    due = due_anchors(tree, durability)
    return needs | due, due - needs


def _try(branches: Branches, kept: set[int], partial: set[int]) -> dict[int, float]:
    """Add the edges to be made to those that count, until no more are wanted.

    An edge may be of use to other nodes than the one that it is made for, so what a later plan would see is
    looked at now.

    Returns
    -------
    dict
        By edge: the bytes of others that it makes needless; infinite for what newest nodes need, and for
        anchors.
    """
    frees: dict[int, float] = {}
    numbered = branches.graph
    for _ in range(ROUNDS):
        tree = Tree(branches, kept, partial, planning=True)
        edges = tree.edges()
        new = set(filter(numbered.is_planned, edges | edges_for_newest(tree))) - frees.keys()
        for edge in sorted(new, key=numbered.ends):
            merges = edge in edges and numbered.base[edge]
            frees[edge] = tree.frees[numbered.target[edge]] if merges else math.inf
            branches.add(edge)
        if not new:
            break
    return frees


def _affordable(numbered: Numbered, frees: Mapping[int, float], max_bytes: int) -> set[int]:
    """Return the edges that fit, the most useful first."""
    taken, nbytes = set(), numbered.nbytes
    for edge in sorted(frees, key=lambda edge: (-frees[edge] / max(nbytes[edge], 1), *numbered.ends(edge))):
        if nbytes[edge] <= max_bytes:
            taken.add(edge)
            max_bytes -= nbytes[edge]
    return taken


def _shortcuts(branches: Branches, made: Iterable[int]) -> Iterator[Shortcut]:
    """Yield the edges to be made, short merges first."""
    numbered = branches.graph
    incoming = numbered.incoming(numbered.there)
    spans = {edge: branches.span(numbered.base[edge], numbered.target[edge]) for edge in made}
    for edge in sorted(spans, key=lambda edge: (spans[edge], *numbered.ends(edge))):
        base, target = numbered.base[edge], numbered.target[edge]
        inputs = tuple(map(numbered.ref, numbered.between(base, target, incoming, branches.placed)))
        yield Shortcut(numbered.ids[base], numbered.ids[target], numbered.nbytes[edge], spans[edge], inputs)
        incoming[target] += (edge,)
