"""Which states cannot be restored, given what is damaged."""

from __future__ import annotations

from collections import defaultdict

from lcstore.errors import CorruptionError
from lcstore.graph.graph import Graph
from lcstore.graph.names import ROOT, NodeName


class Damage:
    """Damage as it is found, and what it comes to.

    A reader takes the cheapest path and no other, so a state is lost if any edge of that path is.
    """

    def __init__(self) -> None:
        self._alone: set[str] = set()
        self._broken: set[str] = set()
        self._edges: set[str] = set()

    def hurt(self, node: str, *, spreads: bool) -> None:
        """Note that a state is lost; with `spreads` its edge is, and so is what stands on it."""
        (self._broken if spreads else self._alone).add(node)

    def break_edge(self, edge: str) -> None:
        """Note that an edge which maintenance added is lost."""
        self._edges.add(edge)

    def lost(self, graph: Graph, unreachable: set[str]) -> set[str]:
        """Return the nodes that cannot be restored; to `unreachable` ones no path leads."""
        suspects = self._below(graph)
        if graph.edges and suspects:
            suspects = {n for n in suspects if n not in unreachable and self._on_path(graph, n)}
        alone = {node for node in self._alone | self._broken if node in graph.nodes}
        return suspects | alone | unreachable

    def _below(self, graph: Graph) -> set[str]:
        """Return the nodes that damage can reach, whatever path a reader takes."""
        children: defaultdict[str, list[str]] = defaultdict(list)
        for node in graph.nodes.values():
            children[node.base].append(node.node)
        for shortcut in graph.edges.values():
            children[shortcut.base].append(shortcut.target)
        targets = [graph.edges[edge].target for edge in self._edges if edge in graph.edges]
        found: set[str] = set()
        queue = [*self._broken, *targets]
        while queue:
            reached = queue.pop()
            if reached not in found and reached in graph.nodes:
                found.add(reached)
                queue.extend(children[reached])
        return found

    def _on_path(self, graph: Graph, node: str) -> bool:
        return any(
            ref.target in self._broken if ref.edge is None else ref.edge in self._edges
            for ref in graph.path(node)
        )


def unreachable(graph: Graph) -> tuple[set[str], dict[str, NodeName]]:
    """Return the nodes to which no path leads, and among them the topmost, whose own base is missing."""
    reached = {ROOT} | {node for node in graph.nodes if _has_path(graph, node)}
    lost = set(graph.nodes) - reached
    top = {node: graph.nodes[node] for node in lost if graph.nodes[node].base not in graph.nodes}
    # Names that form a circle have no topmost node; each of them says so.
    below = set[str]().union(*(graph.descendants(node) for node in top))
    return lost, top | {node: graph.nodes[node] for node in lost - below - set(top)}


def _has_path(graph: Graph, node: str) -> bool:
    try:
        graph.path_bytes(node)
    except CorruptionError:
        return False
    return True
