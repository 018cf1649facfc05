"""What compaction is to add, and what the collector may not delete: pure functions of the names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final, TypeAlias

from lcstore.graph.choice import Choice, readings_of
from lcstore.graph.graph import Graph
from lcstore.graph.lineage import Lineage, Link, lineage_of
from lcstore.graph.names import ROOT, EdgeRef
from lcstore.graph.sizes import Sizes

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
        How many edges lie on the line from one to the other.
    """

    base: str
    target: str
    nbytes: int
    span: int


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
        Bytes that a restore of the latest kept node reads.
    """

    shortcuts: tuple[Shortcut, ...]
    stored_before: int
    stored_after: int
    written: int
    edges_before: int
    edges_after: int
    newest_before: int
    newest_after: int


def plan(
    graph: Graph,
    kept: Collection[str],
    elements: int,
    *,
    drift: float = 0.5,
    max_bytes: int | None = None,
    partial: AbstractSet[str] = frozenset(),
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
    drift
        See `Sizes`.
    max_bytes
        Write no more than this: first anchors and what newest nodes need, then what frees most for each byte
        written. The bounds may then not hold yet.
    partial
        Ids of nodes of which so much is gone that no edge can be made to them: retired ones, and kept ones
        that are stripped of what their own edges do not set. No bound holds for the latter.

    Raises
    ------
    ValueError
        `elements` or `drift` is out of its range.
    """
    line = lineage_of(graph, Sizes(elements, drift))
    line.partial = _places(line, partial)
    places = _places(line, kept)
    before = readings_of(enumerate(line.links))
    stored_before = sum(link.nbytes for links in line.links for link in links)
    after, uses = _try(line, places)
    if max_bytes is not None:
        _withdraw(line, after.unmade() - _affordable(after.unmade(), uses, max_bytes))
        after = Choice(line, places, planning=False)
    read = after.readings()
    newest = max(places, key=line.order, default=0)
    return Plan(
        shortcuts=tuple(_shortcuts(line, after.unmade())),
        stored_before=stored_before,
        stored_after=sum(link.nbytes for links in after.links.values() for link in links),
        written=sum(link.nbytes for link in after.unmade()),
        edges_before=max((before[place].edges for place in places if place in before), default=0),
        edges_after=max((read[place].edges for place in places if place in read), default=0),
        newest_before=before[newest].nbytes if newest in before else 0,
        newest_after=read[newest].nbytes if newest in read else 0,
    )


def needed(graph: Graph, kept: Collection[str], elements: int, *, drift: float = 0.5) -> frozenset[EdgeRef]:
    """Return the edges that kept nodes are restored over; all others may be deleted.

    Every kept node that could be restored still can be. The edges form a tree, with further ones to the
    newest nodes of runs. Where only condemned edges lead to a kept node, all of its cheapest path is needed;
    where nothing does, whatever is above it is, since what is missing may yet turn up. Asked again once all
    others are deleted, it is the same edges.

    Parameters
    ----------
    graph
        All nodes and edges.
    kept
        Ids of nodes.
    elements, drift
        As for `plan`: so the edges of a plan that was carried out are what is needed.

    Raises
    ------
    ValueError
        `elements` or `drift` is out of its range.
    """
    sizes = Sizes(elements, drift)
    found = _needed(graph, kept, sizes)
    while True:
        # Sizes are estimated from edges that may go, so a choice may come out otherwise without those.
        left = _needed(_without_others(graph, found, kept), kept, sizes)
        if left == found:
            return found
        found = left


def _needed(graph: Graph, kept: Collection[str], sizes: Sizes) -> frozenset[EdgeRef]:
    line = lineage_of(graph, sizes)
    places = _places(line, kept)
    choice = Choice(line, places, planning=False)
    edges = {link.edge for links in choice.links.values() for link in links}
    for place in places - choice.links.keys():
        edges.update(graph.path(line.name(place)))
    lost = {node for node in kept if node in graph and node not in line.places}
    return frozenset(edges | _above(graph, lost))


def _without_others(graph: Graph, edges: AbstractSet[EdgeRef], kept: Iterable[str]) -> Graph:
    """Return what is left of a graph once all other edges are deleted."""
    nodes = {*kept, *(ref.base for ref in edges), *(ref.target for ref in edges)} & graph.nodes.keys()
    made = [graph.edges[ref.edge] for ref in edges if ref.edge is not None]
    left = Graph((graph.nodes[node] for node in sorted(nodes)), sorted(made, key=lambda name: name.edge))
    left.condemned_nodes = nodes - {ref.target for ref in edges if ref.edge is None}
    left.condemned_nodes |= nodes & graph.condemned_nodes
    left.condemned_edges = {name.edge for name in made} & graph.condemned_edges
    return left


def _places(line: Lineage, kept: Iterable[str]) -> set[int]:
    return {line.places[node] for node in kept if node in line.places and node != ROOT}


#: Of an edge to be made: whether it is pressing, and the bytes of others that it makes needless.
_Use: TypeAlias = tuple[bool, float]


def _try(line: Lineage, places: set[int]) -> tuple[Choice, dict[Link, _Use]]:
    """Add the edges to be made to the lineage, until no more are wanted.

    An edge may be of use to other nodes than the one that it is made for, so what a later plan would see is
    looked at now.
    """
    uses: dict[Link, _Use] = {}
    for _ in range(ROUNDS):
        choice = Choice(line, places, planning=True)
        new = choice.unmade() - uses.keys()
        if not new:
            return choice, uses
        for link in sorted(new, key=lambda link: (link.edge.target, link.edge.base)):
            place = line.places[link.edge.target]
            pressing = link.base == 0 or link in choice.pressing
            uses[link] = pressing, choice.arrangement.freed.get(place, 0.0)
            line.links[place].append(link)
    return Choice(line, places, planning=False), uses


def _withdraw(line: Lineage, links: AbstractSet[Link]) -> None:
    for link in links:
        line.links[line.places[link.edge.target]].remove(link)


def _affordable(made: AbstractSet[Link], uses: Mapping[Link, _Use], max_bytes: int) -> set[Link]:
    """Return the edges to be made that fit, the most useful first."""

    def rank(link: Link) -> tuple[bool, float, str, str]:
        pressing, freed = uses[link]
        return not pressing, -freed / max(link.nbytes, 1), link.edge.target, link.edge.base

    taken, left = set(), max_bytes
    for link in sorted(made, key=rank):
        if link.nbytes <= left:
            taken.add(link)
            left -= link.nbytes
    return taken


def _shortcuts(line: Lineage, made: Iterable[Link]) -> list[Shortcut]:
    found = []
    for link in made:
        span = line.merges(link.base, line.places[link.edge.target])
        found.append(Shortcut(link.edge.base, link.edge.target, link.nbytes, span))
    return sorted(found, key=lambda shortcut: (shortcut.span, shortcut.target, shortcut.base))


def _above(graph: Graph, nodes: AbstractSet[str]) -> set[EdgeRef]:
    """Return all edges to some nodes and to whatever lies above them."""
    if not nodes:
        return set()
    incoming: dict[str, list[EdgeRef]] = {}
    for name in graph.nodes.values():
        incoming.setdefault(name.node, []).append(EdgeRef(name.base, name.node, None, name.nbytes))
    for made in graph.edges.values():
        incoming.setdefault(made.target, []).append(EdgeRef(made.base, made.target, made.edge, made.nbytes))
    found: set[EdgeRef] = set()
    seen, stack = set(nodes), list(nodes)
    while stack:
        for edge in incoming.get(stack.pop(), ()):
            found.add(edge)
            if edge.base in graph and edge.base not in seen:
                seen.add(edge.base)
                stack.append(edge.base)
    return found
