"""Goes from state to state: about one edge each, however long the path from the root is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace

import numpy as np

from lcstore.arrays import Array
from lcstore.edges.algebra import ArrayName, sets
from lcstore.edges.compose import Composer
from lcstore.edges.edge import Edge, Fetch
from lcstore.edges.path import Path
from lcstore.errors import CorruptionError, LcstoreError
from lcstore.graph.graph import Graph
from lcstore.graph.paths import TwoWayPaths
from lcstore.graph.refs import ROOT, NodeName
from lcstore.limits import check_unstored
from lcstore.read.fetch import stored_bytes
from lcstore.read.kept import exact_values
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.storage.jobs import map_all, run_all


class Walker:
    """Reads one state after another, each from what it holds of the one before. Not thread-safe.

    What it gives is what a `Snapshot` gives. It holds one copy of the tracks of the tensors that it reads.
    While the caller works, the objects of the next edge are fetched.

    Parameters
    ----------
    reader
        Reads records, edges and exact values.

    Attributes
    ----------
    edges_applied
        How many edges were added, taken back or composed for tensors of weights so far.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.edges_applied = 0
        self._held: Composer | None = None
        self._node: str | None = None
        self._paths = two_way(reader.index.graph)
        self._next: tuple[str, Composer] | None = None

    def forget(self) -> None:
        """Go on from the root, along paths as they are now: something has changed."""
        self._leave()
        self._paths = two_way(self.reader.index.graph)

    def _leave(self) -> None:
        self._held = self._node = self._next = None

    def values(self, node: Node, wanted: Sequence[int]) -> dict[int, Array]:
        """Return flat values of tensors by place among `Layout.wholes`, as `Resolved.values` does.

        Raises
        ------
        CorruptionError
            They are not what was committed; nothing is held then.
        """
        return node.layout.put_together(self._stored(node, node.layout.stored(wanted)), wanted)

    def _stored(self, node: Node, wanted: Sequence[int]) -> dict[int, Array]:
        kept, rest = node.divide(wanted)
        with node.named():
            node.check_kept(wanted)
            out = exact_values(self.reader, node, kept)
        tracked = sorted({*rest})
        if not tracked:
            return out
        try:
            with node.named():
                composer = self._carry(node, carried(node, wanted), tracked)
                out |= zip(tracked, map_all(self.reader.executor, composer.values, tracked), strict=True)
        except BaseException:
            self._leave()
            raise
        return out

    def node(self, name: NodeName) -> Node:
        """Read a node's record and layout."""
        return self.reader.node(name)

    def has(self, name: NodeName) -> bool:
        """Return whether a node is there and not retired, as of the last listing."""
        graph = self.reader.index.graph
        return name.node in graph and name.node not in graph.hidden

    def expect(self, names: Sequence[NodeName], choose: Callable[[Node], Sequence[int]]) -> None:
        """Fetch what the next states need first while the caller does other things: bounded, one edge.

        What goes wrong here is left for `values` to find.

        Parameters
        ----------
        names
            The next state, and the one after that, of which the record is read.
        choose
            Says which tensors of a state are wanted.
        """
        for name in names[1:]:
            self.reader.requests.submit(self.reader.index.record, name.node)
        if self._node is None or not names:
            return
        try:
            node = self.reader.node(names[0])
            wanted = node.layout.stored(choose(node))
            if node.exactly[wanted].all():
                return
            composer = self._composer(node, carried(node, wanted))
        except LcstoreError:
            return
        if composer.path.edges:
            for edge, pool, array, chunk in composer.path.fetches(0):
                assert isinstance(edge.fetch, _Ahead)
                edge.fetch.ask(pool, array, chunk)
        self._next = (names[0].node, composer)

    def _carry(self, node: Node, wanted: list[int], needed: list[int]) -> Composer:
        """Hold the tracks of a node that are worth having: those needed alone where others are damaged."""
        try:
            return self._go(node, wanted)
        except CorruptionError:
            if wanted == needed:
                raise
        self._leave()
        return self._go(node, needed)

    def _go(self, node: Node, wanted: Sequence[int]) -> Composer:
        """Hold the tracks of a node."""
        composer = self._composer(node, wanted)
        lost = composer.path.lost
        if lost:
            composer.compose_anew(self._anew(node, lost))
        self._held = None
        self.edges_applied += composer.edges_applied
        run_all(self.reader.executor, composer.jobs())
        self._held, self._node = composer, node.name.node
        return composer

    def _composer(self, node: Node, wanted: Sequence[int]) -> Composer:
        """Return what goes from what is held to a node: the expected one if it is that."""
        expected, self._next = self._next, None
        same = expected is not None and expected[0] == node.name.node
        if expected is not None and same and expected[1].path.wanted.tolist() == sorted(wanted):
            return expected[1]
        read, start = self._edges_to(node, wanted)
        edges = [_ahead(edge, self.reader.requests) for edge in read]
        composer = Composer(edges, node.layout, node.columns, wanted, start=start)
        if start is None:
            check_unstored(composer.nbytes, stored_bytes(read))
        return composer

    def _edges_to(self, node: Node, wanted: Sequence[int]) -> tuple[list[Edge], Composer | None]:
        """Return the edges to a node from what is held, and that; its own alone where it sets all."""
        if sets(node.columns.op[[*wanted]]).all():
            return [self.reader.own_edge(node)], None  # nothing has to lead to the node
        at = node.name.node
        path = self._paths.find(self._node, at) if self._node is not None else None
        path = self.reader.index.best_path(at) if path is None else path
        return self.reader.edges(path), None if path and path[0].base == ROOT else self._held

    def _anew(self, node: Node, lost: list[int]) -> Path:
        """Return as much of the end of the path to a node as sets all tensors that are `lost`."""
        path = self.reader.index.path(node.name.node)
        length = 1
        while True:
            found = Path(self.reader.edges(path[-length:]), node.layout, lost)
            if not found.lost or length >= len(path):
                return found
            length *= 4


def two_way(graph: Graph) -> TwoWayPaths:
    """Return paths over the edges that are there now, and not condemned."""
    return TwoWayPaths(ref for ref in graph.refs() if not graph.is_condemned(ref))


def carried(node: Node, wanted: Sequence[int]) -> list[int]:
    """Return the tensors whose track is worth having at a node: not those that it sets and gives exactly."""
    tensors, its_own = np.array([*wanted], np.int64), sets(node.columns.op) & node.exactly
    found: list[int] = tensors[~its_own[tensors]].tolist()
    return found


class _Ahead:
    """Gets the chunks of an edge, those that were asked for from where they are on their way."""

    def __init__(self, fetch: Fetch, executor: Executor) -> None:
        self._fetch = fetch
        self._executor = executor
        self._asked: dict[tuple[str, str, int], Future[bytes | None]] = {}

    def ask(self, pool: str, array: ArrayName, chunk: int) -> None:
        """Begin to get a chunk."""
        self._asked[pool, array, chunk] = self._executor.submit(self._fetch, pool, array, chunk)

    def __call__(self, pool: str, array: ArrayName, chunk: int) -> bytes | None:
        asked = self._asked.pop((pool, array, chunk), None)
        return asked.result() if asked is not None else self._fetch(pool, array, chunk)


def _ahead(edge: Edge, executor: Executor) -> Edge:
    """Return an edge of which chunks can be asked for before they are needed."""
    own = None if edge.own is None else replace(edge.own, fetch=_Ahead(edge.own.fetch, executor))
    return replace(edge, fetch=_Ahead(edge.fetch, executor), own=own)
