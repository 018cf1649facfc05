"""What it costs to restore each state, now and once compacted: from names alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from lcstore.compaction.compact import Compactor
from lcstore.errors import LcstoreError
from lcstore.graph.graph import Graph
from lcstore.graph.plan import Plan
from lcstore.graph.refs import EdgeName, NodeName


@dataclass(frozen=True)
class RestoreCost:
    """What restoring one state reads besides what its own edge sets, which is read once in any case.

    Attributes
    ----------
    step, node, run_id
        The state, and the run that saved it.
    edges, nbytes
        How many edges its path has, and their bytes of weights; None where nothing leads to it.
    edges_compacted, bytes_compacted
        The same once the store is compacted (an estimate); None where that is not known.
    """

    step: int
    node: str
    run_id: str
    edges: int | None
    nbytes: int | None
    edges_compacted: int | None = None
    bytes_compacted: int | None = None


@dataclass(frozen=True)
class RestoreCosts:
    """What restores read, and what a compaction would make of it.

    Attributes
    ----------
    states
        The states that are kept, in the order of their commits.
    planned, bytes_written
        Edges that a compaction would add, and about how many bytes of weights they have.
    bytes_before, bytes_after
        Bytes of all edges' weights, now, and once all is added and collected.
    problem
        Why no compaction could be planned; None where one was.
    """

    states: tuple[RestoreCost, ...] = field(repr=False)
    planned: int = 0
    bytes_written: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    problem: str | None = None


def restore_costs(compactor: Compactor) -> RestoreCosts:
    """Return what restoring each state of a store costs."""
    graph = compactor.index.refresh(full=True)
    names = sorted(graph.shown(), key=lambda name: name.order)
    try:
        planned = compactor.plan(graph=graph)
    except LcstoreError as error:
        return RestoreCosts(tuple(_cost(name, graph, None) for name in names), problem=str(error))
    after = _with(graph, planned)
    return RestoreCosts(
        tuple(_cost(name, graph, after) for name in names),
        planned=len(planned.shortcuts),
        bytes_written=planned.written,
        bytes_before=planned.stored_before,
        bytes_after=planned.stored_after,
    )


def _with(graph: Graph, planned: Plan) -> Graph:
    """Return a graph with what a plan adds."""
    after = Graph(graph.nodes.values(), graph.edges.values())
    for node in [*graph.condemned_nodes]:
        after.condemn(node=node)
    for edge in [*graph.condemned_edges]:
        after.condemn(edge=edge)
    for number, shortcut in enumerate(planned.shortcuts):
        after.add_edge(EdgeName(shortcut.target, shortcut.base, f"{number:032x}", shortcut.nbytes))
    return after


def _cost(name: NodeName, now: Graph, after: Graph | None) -> RestoreCost:
    edges, nbytes = _path(now, name.node)
    then = (None, None) if after is None else _path(after, name.node)
    return RestoreCost(name.step, name.node, name.run_id, edges, nbytes, *then)


def _path(graph: Graph, node: str) -> tuple[int | None, int | None]:
    """Return how many edges lead to a node, and their bytes."""
    try:
        found = graph.path_to(node)
    except LcstoreError:
        return None, None
    return found.edges, found.nbytes
