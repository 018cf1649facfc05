"""Walking from state to state: about one edge each, however long the path from the root is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, NotFoundError
from lcstore.format.labels import At, check_at
from lcstore.graph.graph import Graph
from lcstore.graph.names import ROOT, EdgeRef, NodeName
from lcstore.graph.paths import TwoWayPaths
from lcstore.index.catalog import Catalog
from lcstore.read.reader import Node, Reader
from lcstore.state.tree import MISSING
from lcstore.storage.jobs import run_all
from lcstore.track.columns import EXACT, SET, SET_GRID, OpName
from lcstore.track.cursor import Cursor, Passage, Trip, begins_all
from lcstore.track.edge import Edge, Fetch
from lcstore.track.route import Route

T = TypeVar("T")


@dataclass(frozen=True)
class Stops:
    """The states that a walk visits.

    Attributes
    ----------
    names
        In the order of the walk.
    listed
        Whether the caller named each of them, and misses what is not there.
    """

    names: list[NodeName]
    listed: bool


def stops(catalog: Catalog, graph: Graph, steps: Iterable[At] | None, *, reverse: bool = False) -> Stops:
    """Return the states that a user means by `steps`: None for all, a range, or a list.

    Raises
    ------
    NotFoundError
        One of a list is not there.
    InvalidInputError
        It is none of these.
    """
    if steps is None or isinstance(steps, range):
        found = graph.steps() if steps is None else [step for step in graph.steps() if step in steps]
        if isinstance(steps, range) and steps.step < 0:
            found.reverse()
        names = [name for step in found if (name := graph.at_step(step)) is not None]
    elif isinstance(steps, Iterable) and not isinstance(steps, str | bytes):
        names = [catalog.resolve(check_at(at)) for at in steps]
    else:
        raise InvalidInputError(f"steps is a range, a list of steps, or None for all, not {steps!r:.100}")
    return Stops(names[::-1] if reverse else names, not (steps is None or isinstance(steps, range)))


class Walker:
    """Reads one state after another, each from what it holds of the one before. Not thread-safe.

    What it gives is what a `Reader` gives. It holds one copy of the tracks of the tensors that it reads, and
    while the caller works the objects of the next edge are fetched.

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
        """Return flat values of tensors, by their place among the whole ones, as `Reader.values` does.

        Raises
        ------
        CorruptionError
            They are not what was committed; nothing is held then.
        """
        return node.layout.put_together(self._stored(node, node.layout.stored(wanted)), wanted)

    def _stored(self, node: Node, wanted: Sequence[int]) -> dict[int, Array]:
        kept = [t for t in wanted if self._reader.keeps_exact(node, t)]
        tracked = sorted({*wanted} - {*kept})
        if not tracked or any(map(node.has_let_go, wanted)):  # what is let go of is refused there
            return self._reader.stored(node, wanted)
        out = self._reader.stored(node, kept) if kept else {}
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
        """Say whether a node is there and not retired, as of the last listing."""
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
            wanted = node.layout.stored(choose(node))
            if all(self._reader.keeps_exact(node, t) for t in wanted):
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
    return [t for t in wanted if not (sets[t] and Reader.keeps_exact(node, t))]


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


class Walk(Iterator[tuple[int, T]]):
    """Gives step after step; see `Looking.walk` and `Looking.history`.

    States that are not there any more when their turn comes are passed over, unless the caller named them.

    Parameters
    ----------
    walker, stops
        What reads, and where it goes.
    choose
        Says which tensors of a state are wanted.
    use
        Makes of a state what is given; `MISSING` passes over it.
    again
        Tries a state once more, where something was taken away meanwhile: `Handle._reading`.
    must
        What at least one of the states has to have; `NotFoundError` at the end otherwise.
    """

    def __init__(
        self,
        walker: Walker,
        stops: Stops,
        choose: Callable[[Node], Sequence[int]],
        use: Callable[[Node], T],
        again: Callable[[str, Callable[[Node], T]], T],
        *,
        must: str | None = None,
    ) -> None:
        self._walker = walker
        self._choose = choose
        self._use = use
        self._again = again
        self._must = must
        self._steps = self._run(stops)

    @property
    def edges_applied(self) -> int:
        """How many edges were added, taken back or composed for tensors of weights so far."""
        return self._walker.edges_applied

    def __next__(self) -> tuple[int, T]:
        return next(self._steps)

    def _run(self, stops: Stops) -> Iterator[tuple[int, T]]:
        given = 0
        for place, name in enumerate(stops.names):
            try:
                found = self._read(name)
            except NotFoundError:
                if stops.listed or self._walker.has(name):
                    raise
                continue
            self._walker.expect(stops.names[place + 1 : place + 3], self._choose)
            if found is not MISSING:
                given += 1
                yield name.step, found
        if stops.names and not given and self._must is not None:
            raise NotFoundError(f"none of these {len(stops.names)} states has {self._must!r}")

    def _read(self, name: NodeName) -> T:
        try:
            return self._use(self._walker.node(name))
        except CorruptionError:
            return self._again(name.node, self._anew)

    def _anew(self, node: Node) -> T:
        self._walker.forget()
        return self._use(node)
