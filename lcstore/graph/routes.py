"""The cheapest path from the root to every node at once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from heapq import heappop, heappush
from typing import NamedTuple

from lcstore.graph.names import ROOT, EdgeRef


class Route(NamedTuple):
    """The cheapest way to a node: bytes and number of all edges from the root, and the last of them."""

    nbytes: int
    edges: int
    last: EdgeRef | None


START = Route(0, 0, None)


def extend(route: Route, edge: EdgeRef) -> Route:
    """Return the way that goes on from `route` over `edge`."""
    return Route(route.nbytes + edge.nbytes, route.edges + 1, edge)


def better(new: Route, old: Route | None) -> bool:
    """Tell whether `new` is preferred: fewer bytes, then fewer edges, then the rank of the last edge."""
    if old is None:
        return True
    if (new.nbytes, new.edges) != (old.nbytes, old.edges):
        return (new.nbytes, new.edges) < (old.nbytes, old.edges)
    return new.last is not None and old.last is not None and new.last.rank < old.last.rank


def cheapest_routes(outgoing: Mapping[str, Iterable[EdgeRef]], nodes: Container[str]) -> dict[str, Route]:
    """Return the cheapest route to every one of `nodes` that the root reaches.

    Parameters
    ----------
    outgoing
        The edges by the node that they leave from. Bytes are not negative. Cycles are harmless: every edge
        adds one to the number of edges, so a way around a cycle is never the better one.
    nodes
        The committed nodes: no way leads through any other.
    """
    routes = {ROOT: START}
    heap = [(0, 0, ROOT)]
    while heap:
        nbytes, edges, node = heappop(heap)
        route = routes[node]
        if (nbytes, edges) != (route.nbytes, route.edges):
            continue
        for edge in outgoing.get(node, ()):
            if edge.target not in nodes:
                continue
            new = Route(nbytes + edge.nbytes, edges + 1, edge)
            old = routes.get(edge.target)
            if better(new, old):
                routes[edge.target] = new
                # Where only the rank of the last edge is better, the node waits in the heap already.
                if old is None or (new.nbytes, new.edges) != (old.nbytes, old.edges):
                    heappush(heap, (new.nbytes, new.edges, edge.target))
    return routes
