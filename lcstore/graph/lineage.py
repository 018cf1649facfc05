"""Where every node comes from: one line of edges from the root to it, in an order that suits all of them.

Planning works on places in this order, not on names: place 0 is the root, and every edge that counts leads
from an earlier place to a later one. Names are hints and may form circles; an edge that would close one
leads backwards, and does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, NamedTuple

from lcstore.graph.graph import Graph
from lcstore.graph.names import ROOT, EdgeRef, NodeName
from lcstore.graph.sizes import Sizes

#: The id of an edge that is only planned.
UNMADE: Final = ""
_SPREAD_UNIT: Final = 1 << 64


class Link(NamedTuple):
    """An edge that is not condemned, as the node at its end sees it."""

    base: int
    nbytes: int
    edge: EdgeRef

    @property
    def is_unmade(self) -> bool:
        """Whether the edge is only planned."""
        return self.edge.edge == UNMADE


@dataclass
class Lineage:
    """Lists by place. Nodes that nothing leads to from the root have no place.

    Attributes
    ----------
    places
        The place of each node.
    nodes
        The node of each place; None for the root.
    links
        The edges to it that count.
    sound
        Whether the root reaches it without condemned edges.
    partial
        Places to which no edge can be made, as part of them is gone.
    parent
        The place that it descends from: the base of its own edge; where that edge is gone, the nearest base
        of another. Merged edges are sums along these.
    length, total, spread
        Edges, and sum of their bytes and of their spreads, from the first node of its line. Spreads are
        integers, in parts of `_SPREAD_UNIT`: one great edge must not swallow the small ones.
    first
        The first node of its line, which an anchor leads to.
    anchor
        About the bytes of an anchor to it: of that one, or of the largest edge since. Weights may have come
        late, and an anchor that seems to cost nothing would be made again and again.
    """

    sizes: Sizes
    places: dict[str, int] = field(default_factory=dict)
    nodes: list[NodeName | None] = field(default_factory=list)
    links: list[list[Link]] = field(default_factory=list)
    sound: list[bool] = field(default_factory=list)
    partial: set[int] = field(default_factory=set)
    parent: list[int] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    spread: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    anchor: list[int] = field(default_factory=list)
    _span: list[tuple[int, int]] = field(default_factory=list)

    def merged(self, base: int, place: int) -> int:
        """Return about how many bytes an edge from `base`, an ancestor or the root, to `place` will have."""
        if base == 0:
            return max(self.anchor[place], self.sizes.anchor)
        spread = (self.spread[place] - self.spread[base]) / _SPREAD_UNIT
        return min(self.sizes.nbytes(spread), self.anchor[place])

    def weight(self, place: int, link: Link) -> int:
        """Return the bytes that an edge to a place counts as when edges are compared.

        That is what a merge was expected to have, so that what it turned out to have changes no choice.
        """
        if link.base in (0, self.parent[place]) or not self.descends(place, link.base):
            return link.nbytes
        return self.merged(link.base, place)

    def descends(self, place: int, base: int) -> bool:
        """Say whether a place is on a line that goes on from `base`."""
        first, end = self._span[base]
        return first <= self._span[place][0] < end

    def merges(self, base: int, place: int) -> int:
        """Return how many edges of the line such an edge merges."""
        return self.length[place] - (self.length[base] if base else -1)

    def number(self) -> None:
        """Number the places so that those on lines that go on from a place follow it without a gap."""
        count = len(self.parent)
        size = [1] * count
        for place in range(count - 1, 0, -1):
            size[self.parent[place]] += size[place]
        start, free = [0] * count, [1] * count
        for place in range(1, count):
            parent = self.parent[place]
            start[place] = free[parent]
            free[parent] += size[place]
            free[place] = start[place] + 1
        self._span = [(first, first + size[place]) for place, first in enumerate(start)]

    def order(self, place: int) -> tuple[int, int, str]:
        """Return what decides which of two nodes is later."""
        node = self.nodes[place]
        return (0, 0, "") if node is None else node.order

    def name(self, place: int) -> str:
        """Return the id of the node there, or `ROOT`."""
        node = self.nodes[place]
        return ROOT if node is None else node.node


def unmade(line: Lineage, base: int, place: int, nbytes: int) -> Link:
    """Return an edge to be made."""
    return Link(base, nbytes, EdgeRef(line.name(base), line.name(place), UNMADE, nbytes))


def lineage_of(graph: Graph, sizes: Sizes) -> Lineage:
    """Find the line of every node that the root reaches, over condemned edges where there are no others."""
    nodes = {name.node: name for name in sorted(graph.nodes.values(), key=lambda name: name.order)}
    incoming: dict[str, list[EdgeRef]] = {}
    outgoing: dict[str, list[EdgeRef]] = {}
    for edge in _edges(graph, nodes):
        incoming.setdefault(edge.target, []).append(edge)
        outgoing.setdefault(edge.base, []).append(edge)
    condemned = {edge for edges in incoming.values() for edge in edges if _is_condemned(graph, edge)}
    kept = {base: [edge for edge in edges if edge not in condemned] for base, edges in outgoing.items()}
    order = [ROOT]
    _extend(order, kept, nodes)
    sound = len(order)
    _extend(order, outgoing, nodes)
    line = Lineage(sizes, places={name: place for place, name in enumerate(order)})
    for place, name in enumerate(order):
        earlier = [edge for edge in incoming.get(name, ()) if line.places.get(edge.base, place) < place]
        if place < sound:
            earlier = [edge for edge in earlier if edge not in condemned]
        _place(line, nodes.get(name), earlier, condemned, place < sound)
    line.number()
    return line


def _edges(graph: Graph, nodes: dict[str, NodeName]) -> Iterator[EdgeRef]:
    for name in nodes.values():
        if name.base in nodes or name.base == ROOT:
            yield EdgeRef(name.base, name.node, None, name.nbytes)
    for edge in sorted(graph.edges.values(), key=lambda edge: edge.edge):
        if edge.target in nodes and (edge.base in nodes or edge.base == ROOT):
            yield EdgeRef(edge.base, edge.target, edge.edge, edge.nbytes)


def _is_condemned(graph: Graph, edge: EdgeRef) -> bool:
    if edge.edge is None:
        return edge.target in graph.condemned_nodes
    return edge.edge in graph.condemned_edges


def _extend(order: list[str], outgoing: dict[str, list[EdgeRef]], nodes: dict[str, NodeName]) -> None:
    """Append what the edges reach, each node after all that leads to it, the earliest saved first.

    So a further edge along a line changes nothing. Where a circle leaves no such node, it is broken at the
    earliest saved of those that something leads to already.
    """
    waiting = _edges_to_new(order, outgoing)
    free: list[tuple[tuple[int, int, str], str]] = []
    begun: list[tuple[tuple[int, int, str], str]] = []
    done = 0
    while True:
        while done < len(order):
            for edge in outgoing.get(order[done], ()):
                if edge.target in waiting:
                    waiting[edge.target] -= 1
                    heappush(begun if waiting[edge.target] else free, (nodes[edge.target].order, edge.target))
            done += 1
        if not waiting:
            return
        _, name = heappop(free or begun)
        if waiting.pop(name, None) is not None:
            order.append(name)


def _edges_to_new(order: list[str], outgoing: dict[str, list[EdgeRef]]) -> dict[str, int]:
    """Return the nodes that can be reached and are not in order yet, and how many edges lead to each."""
    seen = set(order)
    found: dict[str, int] = {}
    stack = list(order)
    while stack:
        for edge in outgoing.get(stack.pop(), ()):
            if edge.target not in seen:
                seen.add(edge.target)
                found[edge.target] = 0
                stack.append(edge.target)
            if edge.target in found:
                found[edge.target] += 1
    return found


def _place(
    line: Lineage, node: NodeName | None, edges: list[EdgeRef], condemned: set[EdgeRef], sound: bool
) -> None:
    place = len(line.nodes)
    line.nodes.append(node)
    line.sound.append(sound)
    line.links.append(
        [Link(line.places[edge.base], edge.nbytes, edge) for edge in edges if edge not in condemned]
    )
    if node is None:
        _descend(line, 0, 0, 0, 0, 0, 0)
        return

    def preferred(edge: EdgeRef) -> tuple[bool, bool, int, int]:
        base = line.places[edge.base]
        return (edge not in condemned, edge.edge is None, line.length[base] if base else -1, -edge.nbytes)

    edge = max(edges, key=preferred)
    base = line.places[edge.base]
    if base == 0:
        _descend(line, 0, 0, 0, 0, place, edge.nbytes)
    else:
        spread = line.spread[base] + int(line.sizes.spread(edge.nbytes) * _SPREAD_UNIT)
        total = line.total[base] + edge.nbytes
        anchor = max(line.anchor[base], edge.nbytes)
        _descend(line, base, line.length[base] + 1, total, spread, line.first[base], anchor)


def _descend(
    line: Lineage, parent: int, length: int, total: int, spread: int, first: int, anchor: int
) -> None:
    line.parent.append(parent)
    line.length.append(length)
    line.total.append(total)
    line.spread.append(spread)
    line.first.append(first)
    line.anchor.append(anchor)
