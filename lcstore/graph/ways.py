"""From one node to another: over edges on and back, or from the root anew, whichever is less to read."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from lcstore.graph.graph import Graph
from lcstore.graph.names import EDGE_COST, ROOT, EdgeRef


class Leg(NamedTuple):
    """An edge that is gone over: from its base to its target, or `back`."""

    edge: EdgeRef
    back: bool


class Ways:
    """The edges of a graph as it is now, for finding ways along them.

    What an edge adds can be taken away again, so a way may lead back over it. Nothing leads back to the root,
    for nothing needs to: what is there is the empty state. Edges that are condemned are not used.
    """

    def __init__(self, graph: Graph) -> None:
        self._links: dict[str, list[tuple[str, Leg]]] = {}
        # Copies, made at once: other threads may add to the graph.
        nodes, edges = list(graph.nodes.values()), list(graph.edges.values())
        own = [EdgeRef(name.base, name.node, None, name.nbytes) for name in nodes]
        there = {ROOT, *(name.node for name in nodes)}
        for edge in [*own, *(EdgeRef(e.base, e.target, e.edge, e.nbytes) for e in edges)]:
            if edge.base not in there or edge.target not in there or graph.is_condemned(edge):
                continue
            self._links.setdefault(edge.base, []).append((edge.target, Leg(edge, False)))
            if edge.base != ROOT:
                self._links.setdefault(edge.target, []).append((edge.base, Leg(edge, True)))

    def find(self, start: str, end: str) -> list[Leg] | None:
        """Return the way to `end` that is the least to read: bytes, and `EDGE_COST` for each edge.

        It begins at `start`, or at the root where that is nearer.

        Returns
        -------
        list
            The legs in order, none where `start` is `end`. None if no way leads there.
        """
        last: dict[str, tuple[str, Leg] | None] = {start: None, ROOT: None}
        costs = {start: (0, 0), ROOT: (0, 1)}  # of two that cost the same, the one that begins at `start`
        heap = [(costs[start], start), (costs[ROOT], ROOT)]
        while heap:
            cost, at = heappop(heap)
            if at == end:
                return _legs(last, end)
            if cost != costs[at]:
                continue
            for node, leg in self._links.get(at, ()):
                new = (cost[0] + leg.edge.nbytes + EDGE_COST, cost[1] + 1)
                if node not in costs or new < costs[node]:
                    costs[node], last[node] = new, (at, leg)
                    heappush(heap, (new, node))
        return None


def _legs(last: dict[str, tuple[str, Leg] | None], end: str) -> list[Leg]:
    legs = []
    while (step := last[end]) is not None:
        end, leg = step
        legs.append(leg)
    legs.reverse()
    return legs
