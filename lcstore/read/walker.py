"""Goes from state to state: about one edge each, however long the path from the root is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import replace

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import LcstoreError
from lcstore.graph.graph import Graph
from lcstore.graph.names import ROOT, EdgeRef, NodeName
from lcstore.graph.paths import TwoWayPaths
from lcstore.read.kept import exact_values
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.storage.jobs import run_all
from lcstore.track.columns import EXACT, SET, SET_GRID
from lcstore.track.cursor import Cursor, Passage, Trip, begins_all
from lcstore.track.draft import OpName
from lcstore.track.edge import Edge, Fetch
from lcstore.track.route import Route


class Walker:
    """Reads one state after another, each from what it holds of the one before. Not thread-safe.

    What it gives is what a `Snapshot` gives. It holds one copy of the tracks of the tensors that it reads.
    While the caller works, the objects of the next edge are fetched.

    Parameters
    ----------
    reader
        Reads records, edges and exact values.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._cursor = Cursor()
        self._node: str | None = None
        self._paths = two_way(reader.catalog.graph)
        self._next: tuple[str, Trip] | None = None

    @property
    def reader(self) -> Reader:
        """What reads the records."""
        return self._reader

    @property
    def edges_applied(self) -> int:
        """How many edges were added, taken back or composed for tensors of weights so far."""
        return self._cursor.edges_applied

    def forget(self) -> None:
        """Go on from the root, along paths as they are now: something has changed."""
        self._leave()
        self._paths = two_way(self._reader.catalog.graph)

    def _leave(self) -> None:
        self._cursor.forget()
        self._node = self._next = None

    def values(self, node: Node, wanted: Sequence[int]) -> dict[int, Array]:
        """Return flat values of tensors, by their place in the layout, as `Resolved.values` does.

        Raises
        ------
        CorruptionError
            They are not what was committed; nothing is held then.
        """
        kept, rest = node.divide(wanted)
        with node.named():
            node.check_kept(wanted)
            out = exact_values(self._reader, node, kept)
        tracked = sorted({*rest})
        if not tracked:
            return out
        try:
            with node.named():
                self._go(node, carried(node, wanted))
                out |= zip(tracked, self._reader.executor.map(self._cursor.values, tracked), strict=True)
        except BaseException:
            self._leave()
            raise
        return out

    def node(self, name: NodeName) -> Node:
        """Read a node's record and layout."""
        return self._reader.node(name)

    def has(self, name: NodeName) -> bool:
        """Return whether a node is there and not retired, as of the last listing."""
        graph = self._reader.catalog.graph
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
            self._reader.executor.submit(self._reader.catalog.record, name.node)
        if self._node is None or not names:
            return
        try:
            node = self._reader.node(names[0])
            wanted = choose(node)
            if all(node.keeps_exact(t) for t in wanted):
                return
            trip = self._trip(node, carried(node, wanted))
        except LcstoreError:
            return
        if trip.passages:
            for edge, pool, op, chunk in trip.fetches(0):
                assert isinstance(edge.fetch, _Ahead)
                edge.fetch.ask(pool, op, chunk)
        self._next = (names[0].node, trip)

    def _go(self, node: Node, wanted: Sequence[int]) -> None:
        trip = self._trip(node, wanted)
        lost = self._route(node, trip.lost) if trip.lost else None
        jobs = self._cursor.go(trip, lost, node.columns)
        run_all(self._reader.executor, jobs)
        self._cursor.arrive(trip)
        self._node = node.name.node

    def _trip(self, node: Node, wanted: Sequence[int]) -> Trip:
        """Return the way to a node, the expected one if it is that."""
        expected, self._next = self._next, None
        if expected is not None and expected[0] == node.name.node and expected[1].wanted == sorted(wanted):
            return expected[1]
        path = self._path(node.name.node)
        edges = self._reader.edges(path)
        passages = [
            Passage(_ahead(edge, self._reader.executor), ref.backward)
            for edge, ref in zip(edges, path, strict=True)
        ]
        start = None if path and path[0].base == ROOT else self._cursor.held
        return Trip(passages, self._cursor.view(node.layout), wanted, start)

    def _path(self, node: str) -> list[EdgeRef]:
        """Return the path to a node from the one that is held; from the root where nothing is."""
        path = self._paths.find(self._node, node) if self._node is not None else None
        return self._reader.catalog.path(node) if path is None else path

    def _route(self, node: Node, lost: list[int]) -> Route:
        """Return as much of the end of the path to a node as sets all tensors that are `lost`."""
        path = self._reader.catalog.path(node.name.node)
        length = 1
        while length < len(path):
            # That of the node itself stands for a base which has everything: what it sets is further back.
            route = Route(self._reader.edges(path[-length:]), node.layout, lost, node.layout)
            if begins_all(route, lost):
                return route
            length *= 4
        return Route(self._reader.edges(path), node.layout, lost)


def two_way(graph: Graph) -> TwoWayPaths:
    """Return paths over the edges that are there now, and not condemned."""
    return TwoWayPaths(ref for ref in graph.refs() if not graph.is_condemned(ref))


def carried(node: Node, wanted: Sequence[int]) -> list[int]:
    """Return the tensors whose track is worth having at a node: not those that it sets and gives exactly."""
    sets = np.isin(node.columns.op, (SET, EXACT, SET_GRID))
    return [t for t in wanted if not (sets[t] and node.keeps_exact(t))]


class _Ahead:
    """Gets the chunks of an edge, those that were asked for from where they are on their way."""

    def __init__(self, fetch: Fetch, executor: Executor) -> None:
        self._fetch = fetch
        self._executor = executor
        self._asked: dict[tuple[str, str, int], Future[bytes | None]] = {}

    def ask(self, pool: str, op: OpName, chunk: int) -> None:
        """Begin to get a chunk."""
        self._asked[pool, op, chunk] = self._executor.submit(self._fetch, pool, op, chunk)

    def __call__(self, pool: str, op: OpName, chunk: int) -> bytes | None:
        asked = self._asked.pop((pool, op, chunk), None)
        # Waiting here is safe: jobs begin in the order in which they came, so it is at work or done.
        return asked.result() if asked is not None else self._fetch(pool, op, chunk)


def _ahead(edge: Edge, executor: Executor) -> Edge:
    own = None if edge.own is None else replace(edge.own, fetch=_Ahead(edge.own.fetch, executor))
    return replace(edge, fetch=_Ahead(edge.fetch, executor), own=own)
