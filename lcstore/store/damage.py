"""Which states cannot be restored, given what is damaged."""

from __future__ import annotations

from collections import defaultdict
from typing import Final, Protocol

from lcstore.errors import CorruptionError
from lcstore.graph.graph import Graph
from lcstore.graph.names import NodeName

#: In the place of a pool: the whole edge.
ALL: Final = "*"


class Records(Protocol):
    """What has to be known of the records."""

    def inherits(self, node: str, pool: str) -> bool:
        """Say whether the value of any tensor of a pool goes on from that of the node's base."""

    def shields(self, node: str, pool: str) -> bool:
        """Say whether a node can be restored without the track of a pool: it keeps the exact value."""


class Damage:
    """Damage as it is found, and what it comes to.

    A reader takes the cheapest path and no other, and of its edges reads only what is not set anew later.
    """

    def __init__(self) -> None:
        self._alone: set[str] = set()
        self._broken: defaultdict[str, set[str]] = defaultdict(set)
        self._edges: set[str] = set()

    def lose(self, node: str) -> None:
        """Note that a state is lost, and nothing else is."""
        self._alone.add(node)

    def break_node(self, node: str, pool: str = ALL) -> None:
        """Note that a pool of the edge that a node was saved with is lost."""
        self._broken[node].add(pool)

    def break_edge(self, edge: str) -> None:
        """Note that an edge which maintenance added is lost."""
        self._edges.add(edge)

    def lost(self, graph: Graph, records: Records, cut_off: set[str]) -> set[str]:
        """Return the nodes that cannot be restored; to those `cut_off` no path leads."""
        suspects = {
            node
            for node, pools in self._spread(graph, records).items()
            if any(not records.shields(node, pool) for pool in pools)
        }
        if graph.edges:
            suspects = {node for node in suspects - cut_off if self._on_path(graph, node)}
        return suspects | cut_off | {node for node in self._alone if node in graph.nodes}

    def _spread(self, graph: Graph, records: Records) -> dict[str, set[str]]:
        """Return the nodes that damage reaches, with the pools whose track it takes."""
        children: defaultdict[str, list[tuple[str, bool]]] = defaultdict(list)
        for node in graph.nodes.values():
            children[node.base].append((node.node, True))
        for edge in graph.edges.values():
            children[edge.base].append((edge.target, False))
        queue = [(node, pool) for node, pools in self._broken.items() for pool in pools]
        queue += [(graph.edges[edge].target, ALL) for edge in self._edges if edge in graph.edges]
        found: defaultdict[str, set[str]] = defaultdict(set)
        while queue:
            reached, pool = queue.pop()
            if pool in found[reached] or reached not in graph.nodes:
                continue
            found[reached].add(pool)
            queue += [(c, pool) for c, own in children[reached] if not own or records.inherits(c, pool)]
        return found

    def _on_path(self, graph: Graph, node: str) -> bool:
        return any(
            ref.target in self._broken if ref.edge is None else ref.edge in self._edges
            for ref in graph.path(node)
        )


def unreachable(graph: Graph) -> tuple[set[str], list[NodeName]]:
    """Return the nodes to which no path leads, and among them the topmost, whose own base is missing."""
    lost = {node for node in graph.nodes if not _has_path(graph, node)}
    top = [name for node, name in graph.nodes.items() if node in lost and name.base not in graph.nodes]
    below = set[str]().union(*(graph.descendants(name.node) for name in top))
    # Names that form a circle have no topmost node; each of them says so.
    circle = lost - below - {name.node for name in top}
    return lost, [*top, *(graph.nodes[node] for node in sorted(circle))]


def _has_path(graph: Graph, node: str) -> bool:
    try:
        graph.path_bytes(node)
    except CorruptionError:
        return False
    return True
