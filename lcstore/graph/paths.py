"""The cheapest paths along edges: from the root to every node at once, and from one node to another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from lcstore.graph.refs import EDGE_COST, ROOT, EdgeRef

#: Edges by the node that they leave from, or by the node that they lead to.
Links: TypeAlias = Mapping[str, Iterable[EdgeRef]]
#: Returns the edges that lead from or to a node.
Linked: TypeAlias = Callable[[str], Iterable[EdgeRef]]
#: Returns how much an edge is to be avoided: 0, or 1 where it may be gone, or `DAMAGED`.
Reluctance: TypeAlias = Callable[[EdgeRef], int]
#: More than all edges of a path that may be gone: one of those may as well be there.
DAMAGED: Final = 1 << 32


class PathCost(NamedTuple):
    """What a path costs, and its last edge. Costs compare by all but that edge; see `better`.

    Attributes
    ----------
    avoided
        How much its edges are to be avoided.
    cost
        Bytes to read, and `EDGE_COST` for each edge.
    edges
        Their number.
    last
        The last edge; None for the path that goes nowhere.
    """

    avoided: int
    cost: int
    edges: int
    last: EdgeRef | None

    @property
    def nbytes(self) -> int:
        """Bytes to read."""
        return self.cost - EDGE_COST * self.edges

    @property
    def weight(self) -> tuple[int, int, int]:
        """What decides between two paths; only among equals the last edge does."""
        return self[:3]

    def extend(self, edge: EdgeRef, avoided: int = 0) -> PathCost:
        """Return the path that goes on over `edge`."""
        return PathCost(self.avoided + avoided, self.cost + edge.nbytes + EDGE_COST, self.edges + 1, edge)

    def better(self, other: PathCost | None) -> bool:
        """Return whether this path is preferred: not avoided, cheap, short, its last edge of low rank."""
        if other is None or self.weight != other.weight:
            return other is None or self.weight < other.weight
        return self.last is not None and other.last is not None and self.last.rank < other.last.rank


#: The path that has not left yet.
START: Final = PathCost(0, 0, 0, None)


def gladly(edge: EdgeRef) -> int:
    """Return 0: no edge is to be avoided."""
    return 0


def cheapest_paths(
    outgoing: Links, nodes: Container[str], reluctance: Reluctance = gladly
) -> dict[str, PathCost]:
    """Return the cheapest path from the root to every one of `nodes` that it reaches, the root included.

    Parameters
    ----------
    outgoing
        The edges by the node that they leave from. Every edge costs something, so a path around a circle is
        never the better one.
    nodes
        The committed nodes: no path leads through any other.
    reluctance
        Says which edges are a last resort.
    """
    return _search({ROOT: START}, _of(outgoing), lambda edge: edge.target, nodes, reluctance)


def nodes_behind(node: str, incoming: Linked, nodes: Container[str], reluctance: Reluctance) -> set[str]:
    """Return nodes, itself and the root among them, that hold every cheapest path from the root to `node`."""
    return {*_search({node: START}, incoming, lambda edge: edge.base, nodes, reluctance, ROOT)}


def path_between(
    base: str, node: str, incoming: Linked, nodes: Container[str], reluctance: Reluctance = gladly
) -> list[EdgeRef] | None:
    """Return the edges of the cheapest path from one node to another, in order; None if nothing leads there.

    The search begins at the end: what lies between two nodes is mostly far less than what lies behind them.
    """
    found = _search({node: START}, incoming, lambda edge: edge.base, nodes, reluctance, base)
    if base not in found:
        return None
    path = []
    while (last := found[base].last) is not None:
        path.append(last)
        base = last.target
    return path


class TwoWayPaths:
    """Paths along some edges in either direction, or from the root anew.

    What an edge adds can be taken away again, so a path may go backward over it. Nothing leads back to the
    root, for nothing needs to: what is there is the empty state.
    """

    def __init__(self, edges: Iterable[EdgeRef]) -> None:
        self._links: defaultdict[str, list[EdgeRef]] = defaultdict(list)
        self._nodes: set[str] = set()
        for edge in edges:
            self._nodes.add(edge.target)
            self._links[edge.base].append(edge)
            if edge.base != ROOT:
                self._nodes.add(edge.base)
                self._links[edge.target].append(replace(edge, backward=True))

    def all(self) -> dict[str, PathCost]:
        """Return the paths from the root to all nodes that any leads to."""
        return self._search({ROOT: START}, None)

    def find(self, start: str, end: str) -> list[EdgeRef] | None:
        """Return the path to `end` that is the least to read: bytes, and `EDGE_COST` for each edge.

        The path begins at `start`, or at the root where that is nearer.

        Returns
        -------
        list
            The edges in order, none where `start` is `end`. None if no path leads there.
        """
        # Of two paths that cost the same it is the one that begins at `start`.
        return path_in(self._search({ROOT: START._replace(edges=1), start: START}, end), end)

    def _search(self, starts: Mapping[str, PathCost], stop: str | None) -> dict[str, PathCost]:
        return _search(starts, _of(self._links), lambda edge: edge.end, self._nodes, gladly, stop)


def path_in(found: Mapping[str, PathCost], end: str) -> list[EdgeRef] | None:
    """Return the edges of one of the paths that were found, in order; None if none leads there."""
    if end not in found:
        return None
    path = []
    while (last := found[end].last) is not None:
        path.append(last)
        end = last.target if last.backward else last.base
    path.reverse()
    return path


def _of(links: Links) -> Linked:
    return lambda node: links.get(node, ())


def _search(
    starts: Mapping[str, PathCost],
    links: Linked,
    end: Callable[[EdgeRef], str],
    nodes: Container[str],
    reluctance: Reluctance,
    stop: str | None = None,
) -> dict[str, PathCost]:
    """Return the cheapest paths from `starts`; those that cost more than the one to `stop` may be others."""
    found = dict(starts)
    heap = [(path.weight, node) for node, path in starts.items()]
    heapify(heap)
    while heap:
        weight, node = heappop(heap)
        path = found[node]
        if node == stop:
            break
        if weight != path.weight:
            continue
        for edge in links(node):
            to = end(edge)
            if to not in nodes and to != stop:
                continue
            new, old = path.extend(edge, reluctance(edge)), found.get(to)
            if new.better(old):
                found[to] = new
                # Where only the rank of the last edge is better, the node waits in the heap already.
                if old is None or new.weight != old.weight:
                    heappush(heap, (new.weight, to))
    return found
