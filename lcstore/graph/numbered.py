"""A graph in columns: nodes and edges are numbers, and what is known of each is in a list.

Planning goes over all of them many times. Numbers in lists take a fraction of the time that objects in
dictionaries do, and Python's collector of garbage has nothing to look at.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from lcstore.graph.graph import Graph
from lcstore.graph.refs import EDGE_COST, PLANNED, ROOT, EdgeRef
from lcstore.graph.sizes import Sizes
from lcstore.once import once

#: Spreads are integers in parts of this: one great edge must not swallow the small ones.
SPREAD_UNIT: Final = 1 << 64


class Way(NamedTuple):
    """The weight of the cheapest path to a node, as that of `PathCost`, and its last edge."""

    weight: tuple[int, int, int]
    last: int


class Numbered:
    """The nodes and edges of a graph, as they were at one time.

    Nodes are numbered in the order of their commits, from 1; the root is 0. Behind them come those that are
    missing. The own edge of a node has the node's number; 0 is no edge. Behind them come those that
    maintenance added, and those that are planned.

    Parameters
    ----------
    graph
        The names.
    sizes
        Estimates merged edges.

    Attributes
    ----------
    ids, run_ids
        Of the nodes: the id, and that of the run.
    number
        By id: the number of a node that is there, or of the root.
    base, target, nbytes, names
        Of the edges: where they lead from and to, their bytes, and their ids; None for own edges.
    spread
        Of the edges: the spread, in parts of `SPREAD_UNIT`.
    condemned
        Of the edges: whether they may be gone.
    there, anchors
        The edges between nodes that are there and from the root; those from the root.
    """

    def __init__(self, graph: Graph, sizes: Sizes) -> None:
        self.sizes = sizes
        # Copies, made at once: other threads may add to the graph.
        nodes, edges = list(graph.nodes.values()), list(graph.edges.values())
        nodes.sort(key=lambda name: name.order)
        self.ids = [ROOT, *(name.node for name in nodes)]
        self.run_ids = ["", *(name.run_id for name in nodes)]
        self.number = {node: at for at, node in enumerate(self.ids)}
        edges = [name for name in edges if self.number.get(name.target)]
        bases = [ROOT, *(name.base for name in nodes), *(name.base for name in edges)]
        places = dict(self.number)
        for base in bases:
            if base not in places:
                places[base] = len(self.ids)
                self.ids.append(base)
        self.base = [places[base] for base in bases]
        self.target = [*range(len(nodes) + 1), *(places[name.target] for name in edges)]
        self.nbytes = [0, *(name.nbytes for name in nodes), *(name.nbytes for name in edges)]
        self.names: list[str | None] = [None] * (len(nodes) + 1) + [name.edge for name in edges]
        self.condemned = [0, *(name.node in graph.condemned_nodes for name in nodes)]
        self.condemned += [name.edge in graph.condemned_edges for name in edges]
        self.spread = [int(sizes.spread(nbytes) * SPREAD_UNIT) for nbytes in self.nbytes]
        self.there = [edge for edge in range(1, len(bases)) if self.base[edge] < len(self.number)]
        self.anchors = [edge for edge in self.there if not self.base[edge]]
        self._first_planned = len(bases)
        self._planned: dict[tuple[int, int, int], int] = {}

    @once
    def drawn(self) -> list[int]:
        """Of the nodes: how many bits that are drawn from the id are zero before the first that is not."""
        found = (hashlib.blake2b(node.encode(), digest_size=8).digest() for node in self.ids)
        bits = (int.from_bytes(digest, "big") | 1 << 63 for digest in found)
        return [(drawn & -drawn).bit_length() - 1 for drawn in bits]

    @once
    def _added(self) -> dict[str, int]:
        """The edges that maintenance added, by their ids."""
        return {name: edge for edge, name in enumerate(self.names[: self._first_planned]) if name}

    def those(self, nodes: Iterable[str]) -> set[int]:
        """Return the numbers of nodes, those left out that are not there."""
        found = {self.number.get(node, 0) for node in nodes}
        return found - {0}

    def edges_of(self, refs: Iterable[EdgeRef]) -> set[int]:
        """Return the numbers of edges, those left out that came since."""
        found = {(self._added if ref.edge else self.number).get(ref.edge or ref.target, 0) for ref in refs}
        return found - {0}

    def ref(self, edge: int) -> EdgeRef:
        """Return an edge, as paths name it."""
        base, target = self.ids[self.base[edge]], self.ids[self.target[edge]]
        return EdgeRef(base, target, self.names[edge], self.nbytes[edge])

    def rank(self, edge: int) -> tuple[str, str]:
        """Return what `EdgeRef.rank` is."""
        return (self.names[edge] or "", self.ids[self.base[edge]])

    def ends(self, edge: int) -> tuple[str, str]:
        """Return the ids of the nodes that an edge leads to and from; they tell planned ones apart."""
        return (self.ids[self.target[edge]], self.ids[self.base[edge]])

    def is_own(self, edge: int) -> bool:
        """Return whether a node was saved with an edge."""
        return edge < len(self.number)

    @property
    def all_planned(self) -> range:
        """All edges that are planned, or were thought of."""
        return range(self._first_planned, len(self.base))

    def is_planned(self, edge: int) -> bool:
        """Return whether an edge is only planned."""
        return edge >= self._first_planned

    def planned(self, base: int, target: int, nbytes: int) -> int:
        """Return the edge that is planned between two nodes, with so many bytes."""
        edge = self._planned.setdefault((base, target, nbytes), len(self.base))
        if edge == len(self.base):
            self.base.append(base)
            self.target.append(target)
            self.nbytes.append(nbytes)
            self.names.append(PLANNED)
            self.condemned.append(0)
            self.spread.append(int(self.sizes.spread(nbytes) * SPREAD_UNIT))
        return edge

    def sum(self, edges: Iterable[int]) -> int:
        """Return the bytes of some edges."""
        return sum(map(self.nbytes.__getitem__, edges))

    def incoming(self, edges: Iterable[int]) -> list[tuple[int, ...]]:
        """Return of each node the edges, of some, that lead to it, by rank."""
        found = _grouped(edges, self.target, len(self.ids))
        return [into if len(into) < 2 else tuple(sorted(into, key=self.rank)) for into in found]

    def above(self, nodes: Collection[int]) -> set[int]:
        """Return all edges to some nodes and to whatever lies above them, from missing nodes too."""
        if not nodes:
            return set()
        incoming = _grouped(range(1, self._first_planned), self.target, len(self.ids))
        found, stack, edges = {0, *nodes}, [*nodes], set[int]()
        while stack:
            into = incoming[stack.pop()]
            edges.update(into)
            bases = {self.base[edge] for edge in into} - found
            found |= bases
            stack += bases
        return edges

    def reach(self, edges: Iterable[int], nodes: Sequence[int]) -> dict[int, tuple[int, int]]:
        """Return what the cheapest paths from the root over some edges cost, and their numbers of edges.

        `nodes` are those that paths lead to, in an order in which most edges lead to a later one.
        """
        incoming, again = _grouped(edges, self.target, len(self.ids)), True
        found = {0: (0, 0)}
        while again:
            again = False
            for node in nodes:
                for edge in incoming[node]:
                    way, old = found.get(self.base[edge]), found.get(node)
                    if way is not None:
                        new = way[0] + self.nbytes[edge] + EDGE_COST, way[1] + 1
                        if old is None or new < old:
                            found[node], again = new, True
        return found

    def between(
        self, base: int, node: int, incoming: Sequence[tuple[int, ...]], nodes: Sequence[int]
    ) -> list[int]:
        """Return the edges of the cheapest path between two nodes; none if nothing leads there.

        See `lcstore.graph.paths.path_between`.
        """
        found = {node: Way((0, 0, 0), 0)}
        heap = [((0, 0, 0), self.ids[node], node)]
        while heap:
            weight, _, node = heappop(heap)
            if node == base:
                break
            if weight != found[node].weight:
                continue
            for edge in incoming[node]:
                to = self.base[edge]
                if not nodes[to]:
                    continue
                cost = weight[1] + self.nbytes[edge] + EDGE_COST
                new, old = (weight[0] + self.condemned[edge], cost, weight[2] + 1), found.get(to)
                if old is None or new < old.weight:
                    found[to] = Way(new, edge)
                    heappush(heap, (new, self.ids[to], to))
                elif new == old.weight and self.rank(edge) < self.rank(old.last):
                    found[to] = Way(new, edge)
        path: list[int] = []
        while base in found and (edge := found[base].last):
            path.append(edge)
            base = self.target[edge]
        return path


def _grouped(edges: Iterable[int], by: Sequence[int], count: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()] * count
    for edge in edges:
        found[by[edge]] += (edge,)
    return found
