"""What the names of retirements, pins and condemnations come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lcstore.errors import CorruptionError, LcstoreError
from lcstore.format import markkeys
from lcstore.graph.graph import Graph
from lcstore.graph.refs import EdgeRef
from lcstore.once import once


class Situation(NamedTuple):
    """What decides how a node is read, as of one listing.

    Attributes
    ----------
    path
        The edges from the root to the node; None where nothing leads to it.
    let_go, stripped
        Whether its exact value is let go of, and which of its pools are.
    problem
        Why nothing leads to it; "" where something does.
    """

    path: tuple[EdgeRef, ...] | None
    let_go: bool
    stripped: frozenset[str]
    problem: str = ""


@dataclass(frozen=True)
class Marks:
    """What is marked in a store.

    Attributes
    ----------
    retired, pinned
        Nodes. A pinned one is kept, retired or not.
    brought_back
        Those of the pinned that `unretire` alone pins: a rule may let go of them.
    inexact
        Nodes whose exact value is let go.
    superseded
        Nodes that are not kept for being the latest of their run.
    stripped
        Pools that are let go, by node.
    condemned
        What will be deleted, or was.
    came_from
        By node, another that training came from, where all between them is gone.
    """

    retired: frozenset[str] = frozenset()
    pinned: frozenset[str] = frozenset()
    brought_back: frozenset[str] = frozenset()
    inexact: frozenset[str] = frozenset()
    superseded: frozenset[str] = frozenset()
    stripped: dict[str, frozenset[str]] = field(default_factory=dict)
    condemned: frozenset[markkeys.CondemnedName] = frozenset()
    came_from: dict[str, str] = field(default_factory=dict)

    @once
    def hidden(self) -> frozenset[str]:
        """Nodes that are let go of."""
        return self.retired - self.pinned

    @once
    def held(self) -> frozenset[str]:
        """Nodes that nothing lets go of until somebody takes their pins away."""
        return self.pinned - self.brought_back

    @once
    def condemned_nodes(self) -> frozenset[str]:
        """Nodes whose own edge may be gone."""
        return frozenset(n.node for n in self.condemned if n.blocks and n.node is not None)

    @once
    def condemned_edges(self) -> frozenset[str]:
        """Edges of maintenance that may be gone."""
        return frozenset(n.edge for n in self.condemned if n.blocks and n.node is None)

    def outdated(self, graph: Graph, avoided: Collection[EdgeRef] = ()) -> bool:
        """Return whether a graph has marks that are not there any more, but for edges to be avoided."""
        nodes = {ref.target for ref in avoided if ref.edge is None}
        edges = {ref.edge for ref in avoided}
        return bool(
            graph.hidden - self.hidden
            or graph.condemned_nodes - self.condemned_nodes - nodes
            or graph.condemned_edges - self.condemned_edges - edges
        )

    def mark(self, graph: Graph) -> None:
        """Hide in a graph what is let go of, and condemn what is condemned."""
        for node in self.hidden - graph.hidden:
            graph.hide(node)
        for node in self.condemned_nodes - graph.condemned_nodes:
            graph.condemn(node=node)
        for edge in self.condemned_edges - graph.condemned_edges:
            graph.condemn(edge=edge)
        graph.came_from.update(self.came_from)

    def with_retired(self, names: Iterable[markkeys.RetiredName]) -> Marks:
        """Return what is marked, once more is let go of."""
        whats: defaultdict[str, set[str]] = defaultdict(set)
        stripped = defaultdict(frozenset, self.stripped)
        for name in names:
            if name.pool is not None:
                stripped[name.node] |= {name.pool}
            else:
                whats[name.what].add(name.node)
        return replace(
            self,
            retired=self.retired | whats[markkeys.WHOLE_STATE],
            inexact=self.inexact | whats[markkeys.EXACT_VALUE],
            superseded=self.superseded | whats[markkeys.SUPERSEDED],
            stripped={**stripped},
        )


def situation_of(graph: Graph, marks: Marks, node: str) -> Situation:
    """Return what decides how a node is read."""
    let_go, stripped = node in marks.inexact, marks.stripped.get(node, frozenset())
    try:
        return Situation(tuple(best_path(graph, node)), let_go, stripped)
    except LcstoreError as error:
        return Situation(None, let_go, stripped, str(error))


def best_path(graph: Graph, node: str) -> list[EdgeRef]:
    """Return the path that a node is read over; errors as for `Graph.path`."""
    try:
        if not graph.is_in_danger(node):
            return graph.path(node)
    except CorruptionError:
        around = graph.path_around(node)
        if around is None:
            raise
        return around
    return graph.path_around(node) or graph.path(node)


def lines(named: Iterable[markkeys.TagName], nodes: Container[str]) -> dict[str, str]:
    """Return by node which other one training came from, where a record says so."""
    held = bearers(named, "line", nodes)
    return {node: names[-1].node for node, names in held.items() if names[-1].node is not None}


def bearers(
    named: Iterable[markkeys.TagName], kind: markkeys.TagKind, nodes: Container[str]
) -> dict[str, list[markkeys.TagName]]:
    """Return the records that hold of each tag, pin or line: those set since it was taken away, in order.

    One of a node that is not there says nothing: an interrupted save leaves that.
    """
    found: defaultdict[str, list[markkeys.TagName]] = defaultdict(list)
    for name in sorted((n for n in named if n.kind == kind), key=lambda n: (n.seq, n.record)):
        if name.node is None:
            found.pop(name.name, None)
        elif name.node in nodes:
            found[name.name].append(name)
    return dict(found)


def bearers_of_tags(named: Iterable[markkeys.TagName], graph: Graph) -> dict[str, markkeys.TagName]:
    """Return by tag the record that was set last on a node that is not let go of."""
    found: dict[str, markkeys.TagName] = {}
    for tag, names in bearers(named, "tag", graph.nodes).items():
        shown = [name for name in names if name.node is not None and name.node not in graph.hidden]
        if shown:
            found[tag] = shown[-1]
    return found


def tags_by_node(named: Iterable[markkeys.TagName], nodes: Container[str]) -> dict[str, set[str]]:
    """Return the tags of each node that has any."""
    return _by_node(bearers(named, "tag", nodes))


def pins_by_node(named: Iterable[markkeys.TagName], nodes: Container[str]) -> dict[str, set[str]]:
    """Return who pins each node that is pinned; "" for whoever did not say."""
    pins = _by_node(bearers(named, "pin", nodes))
    return {node: {pin.partition(" ")[2] for pin in held} for node, held in pins.items()}


def _by_node(held: dict[str, list[markkeys.TagName]]) -> dict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for label, names in held.items():
        for name in names:
            if name.node is not None:
                found[name.node].add(label)
    return dict(found)


def next_seq(named: Iterable[markkeys.TagName], kind: markkeys.TagKind, name: str) -> int:
    """Return the number for a new record of a tag or pin."""
    return max((n.seq for n in named if n.kind == kind and n.name == name), default=-1) + 1
