"""What of a graph is needed, and what a collector is taking away: its second copies are not missed."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress

from lcstore.errors import CorruptionError
from lcstore.format import markkeys
from lcstore.graph.graph import Graph
from lcstore.graph.refs import EdgeRef
from lcstore.index.listing import GOING, Listing
from lcstore.index.marked import Marks
from lcstore.storage.backend import Backend


def edges_of(graph: Graph) -> list[EdgeRef]:
    """Return all edges of a graph that lead to nodes that are there."""
    own = [name.ref for name in graph.nodes.values()]
    return own + [edge.ref for edge in graph.edges.values() if edge.target in graph.nodes]


def kept_in(graph: Graph) -> list[str]:
    """Return the nodes of a graph that are not let go of."""
    return [node for node in graph.nodes if node not in graph.hidden]


def needed(graph: Graph) -> set[str]:
    """Return the kept nodes, and those that paths to them may lead over: of others nothing is missed."""
    bases: defaultdict[str, list[str]] = defaultdict(list)
    kept = kept_in(graph)
    danger = any(map(graph.is_in_danger, kept))
    for ref in edges_of(graph):
        if danger or not graph.is_condemned(ref):
            bases[ref.target].append(ref.base)
    found, left = set(kept), kept
    while left:
        left = [base for node in left for base in bases.pop(node, ())]
        found.update(left)
    return found


def staying(graph: Graph, marks: Marks) -> tuple[set[str], set[str]]:
    """Return the nodes that are needed, and the added edges to them, which no collector takes away.

    As a collector does, this takes what leads to a state in danger for something that stays.
    """
    nodes = needed(graph)
    whole = [name for name in marks.condemned if name.scope == markkeys.WHOLE_EDGE]
    danger = {node for node in kept_in(graph) if graph.is_in_danger(node)} if whole else set[str]()
    spared = danger | graph.ancestors(*danger)
    gone = {name.edge for name in whole if name.node is None}
    edges = {
        name.edge
        for name in graph.edges.values()
        if name.target in nodes and (name.edge not in gone or name.target in spared)
    }
    return nodes - ({name.node for name in whole} - spared), edges


def staying_now(backend: Backend) -> tuple[set[str], set[str]]:
    """Return what stays as names say now."""
    listing = Listing.take(backend, GOING)
    listing.drop_unparsable(lambda key, error: None)
    graph = Graph()
    for node in listing.nodes:
        with suppress(CorruptionError):  # it is told of where the store is read
            graph.add(node)
    for edge in listing.edges:
        with suppress(CorruptionError):
            graph.add_edge(edge)
    marks = listing.marks(graph.nodes)
    marks.mark(graph)
    return staying(graph, marks)
