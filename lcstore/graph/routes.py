"""The cheapest path from the root to every node at once."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from lcstore.graph.names import EDGE_COST, ROOT, EdgeRef


class Route(NamedTuple):
    """The cheapest way to a node: over all edges from the root, and the last of them.

    Attributes
    ----------
    condemned
        Edges on it that may be gone.
    cost
        Bytes to read, and `EDGE_COST` for each edge.
    edges
        Their number.
    """

    condemned: int
    cost: int
    edges: int
    last: EdgeRef | None

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return self.cost - EDGE_COST * self.edges

    @property
    def weight(self) -> tuple[int, int, int]:
        """What decides between two ways; only among equals the last edge does."""
        return self[:3]


START = Route(0, 0, 0, None)

#: Says whether an edge is condemned.
IsCondemned: TypeAlias = Callable[[EdgeRef], bool]


def extend(route: Route, edge: EdgeRef, condemned: bool = False) -> Route:
    """Return the way that goes on from `route` over `edge`."""
    return Route(route.condemned + condemned, route.cost + edge.nbytes + EDGE_COST, route.edges + 1, edge)


def better(new: Route, old: Route | None) -> bool:
    """Tell whether `new` is preferred: not condemned, cheap, short; then the rank of the last edge."""
    if old is None:
        return True
    if new.weight != old.weight:
        return new.weight < old.weight
    return new.last is not None and old.last is not None and new.last.rank < old.last.rank


def cheapest_routes(
    outgoing: Mapping[str, Iterable[EdgeRef]],
    nodes: Container[str],
    is_condemned: IsCondemned = lambda edge: False,
    start: str = ROOT,
) -> dict[str, Route]:
    """Return the cheapest route from `start` to every one of `nodes` that it reaches.

    Parameters
    ----------
    outgoing
        The edges by the node that they leave from. Every edge costs something, so a way around a cycle is
        never the better one.
    nodes
        The committed nodes: no way leads through any other.
    is_condemned
        Says which edges are a last resort.
    start
        Where to begin: the root, or a node.
    """
    routes = {start: START}
    heap = [(START.weight, start)]
    while heap:
        weight, node = heappop(heap)
        route = routes[node]
        if weight != route.weight:
            continue
        for edge in outgoing.get(node, ()):
            if edge.target not in nodes:
                continue
            new = extend(route, edge, is_condemned(edge))
            old = routes.get(edge.target)
            if better(new, old):
                routes[edge.target] = new
                # Where only the rank of the last edge is better, the node waits in the heap already.
                if old is None or new.weight != old.weight:
                    heappush(heap, (new.weight, edge.target))
    return routes
