"""What the next states of a walk need, fetched while earlier ones are made use of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from lcstore.edges.algebra import ArrayName, Start, sets
from lcstore.edges.columns import EXACT
from lcstore.edges.edge import Edge
from lcstore.edges.path import Path
from lcstore.errors import LcstoreError
from lcstore.graph.paths import TwoWayPaths
from lcstore.graph.refs import ROOT, EdgeRef, NodeName
from lcstore.once import once
from lcstore.read.fetch import ChunkFetch
from lcstore.read.node import Node
from lcstore.read.reader import Reader

#: States ahead of which objects are fetched, at most: a target far away gives those of all in one answer's
#: time. It begins with fewer, for who looks at a state or two.
_STATES: Final = 16
#: Bytes of these objects, at most, but for one edge.
MOST_BYTES: Final = 32 << 20


@dataclass(frozen=True)
class _Taken:
    """Gets chunks of an edge from where they are on their way, if they were asked for."""

    edge: Edge
    asked: dict[str, Future[bytes | None]]

    def __call__(self, pool: str, array: ArrayName, chunk: int) -> bytes | None:
        found = self.asked.pop(self.edge.locate(pool, array, chunk), None)
        return self.edge.fetch(pool, array, chunk) if found is None else found.result()


class _Coming(NamedTuple):
    """A state to come: its place on the walk, the objects asked for, and their bytes."""

    place: int
    keys: list[str]
    nbytes: int


class Readahead:
    """Records and objects of the states that a walk comes to next. Threads may share what `edge` returns.

    What goes wrong here is left for who needs it to find.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._found: dict[tuple[str, str], list[EdgeRef] | None] = {}
        self._edges: dict[tuple[str, str], tuple[list[Edge], bool]] = {}
        self._asked: dict[str, Future[bytes | None]] = {}
        self._coming: deque[_Coming] = deque()
        self._at: tuple[str, Start] | None = None
        self._most = 1
        self._known = self._next = self._place = 0

    @once
    def _paths(self) -> TwoWayPaths:
        """Paths over the edges that are there when they are first asked for, and not condemned."""
        graph = self._reader.index.graph  # who compares two states lists them when the walker is there
        return TwoWayPaths(ref for ref in graph.refs() if not graph.is_condemned(ref))

    def edges_to(self, node: Node, wanted: Sequence[int], start: str | None) -> tuple[list[Edge], bool]:
        """Return the edges to a node, and whether they begin at `start`; its own alone where it sets all."""
        at = node.name.node
        known = None if start is None else self._edges.pop((start, at), None)
        if known is not None:
            return known
        if sets(node.columns.op[[*wanted]]).all():
            return [self._reader.own_edge(node)], False  # nothing has to lead to the node
        path = None
        if start is not None:
            path = self._found.pop((start, at), None) or self._paths.find(start, at)
        path = self._reader.index.best_path(at) if path is None else path
        return self._reader.edges(path), not (path and path[0].base == ROOT)

    def anew(self, node: Node, lost: Sequence[int]) -> Path:
        """Return as much of the end of the path to a node as sets all tensors that are `lost`."""
        path = self._reader.index.path(node.name.node)
        length = 1
        while True:
            found = Path([*map(self.edge, self._reader.edges(path[-length:]))], node.layout, lost)
            if not found.lost or length >= len(path):
                return found
            length *= 4

    def look(
        self,
        names: Sequence[NodeName],
        place: int,
        at: tuple[str, Start] | None,
        choose: Callable[[Node], Sequence[int]],
    ) -> None:
        """Ask for what the states from a place on need first.

        Parameters
        ----------
        names, place
            All states of the walk, and which of them is the next.
        at
            The node of which tracks are held, and it as the start of a path; None where none are held.
        choose
            Says which tensors of a state are wanted.
        """
        self._most = min(2 * self._most, _STATES)
        back, self._place = place <= self._place, place
        if back:  # who reads an array may begin it again
            self._known = self._next = place
        while self._coming and (back or self._coming[0].place < place):
            self.drop(self._coming.popleft().keys)
        if place > 1:
            past = names[place - 2].node, names[place - 1].node
            self._found.pop(past, None)
            self._edges.pop(past, None)
        self._ask_records(names, place)
        if self._next <= place:
            self._next, self._at = place, at
            self._found.clear()
            self._edges.clear()
        while self._at is not None and self._next < min(len(names), place + self._most):
            if self._coming and sum(one.nbytes for one in self._coming) > MOST_BYTES:
                break
            try:
                self._ask(names[self._next], choose)
            except LcstoreError:
                self._at = None
                break
            self._next += 1

    def _ask_records(self, names: Sequence[NodeName], place: int) -> None:
        """Ask for records well before they say which objects to ask for."""
        index, requests = self._reader.index, self._reader.requests
        behind = min(len(names), place + 2 * self._most)
        for at in range(max(self._known, place), behind):
            requests.submit(index.record, names[at].node)
            if at:
                ends = names[at - 1].node, names[at].node
                self._found[ends] = self._paths.find(*ends)
                for ref in self._found[ends] or ():
                    if ref.edge is not None:
                        requests.submit(index.edge, ref.edge)
        self._known = behind

    def _ask(self, name: NodeName, choose: Callable[[Node], Sequence[int]]) -> None:
        """Ask for the objects that lead from the state before to one."""
        node = self._reader.node(name)
        wanted = node.layout.stored(choose(node))
        tensors, taken = carried(node, wanted), taken_over(node, wanted)
        if node.exactly[wanted].all():
            if taken:
                self._at = name.node, Start.of(node.layout, taken)
            return
        if self._at is None:
            return
        before, start = self._at
        self._edges[before, name.node] = edges, goes_on = self.edges_to(node, tensors, before)
        path = Path(edges, node.layout, tensors, start if goes_on else None)
        coming = self.fetch(path, edges[0] if edges else None)
        if path.lost:
            coming |= self.fetch(self.anew(node, path.lost))
        self._coming.append(_Coming(self._next, [*coming], sum(coming.values())))
        self._at = name.node, Start.of(node.layout, [*tensors, *taken])

    def edge(self, edge: Edge) -> Edge:
        """Return an edge that takes what was asked for from where it is on its way."""
        own = None if edge.own is None else replace(edge.own, fetch=_Taken(edge.own, self._asked))
        return replace(edge, fetch=_Taken(edge, self._asked), own=own)

    def drop(self, keys: Iterable[str]) -> None:
        """Hold some chunks no more."""
        for key in keys:
            self._asked.pop(key, None)

    def fetch(self, path: Path, least: Edge | None = None) -> dict[str, int]:
        """Begin to get what a path needs, beyond `MOST_BYTES` what `least` has; return keys and bytes."""
        coming: dict[str, int] = {}
        nbytes = 0
        for pool, chunk, pieces in path.chunks():
            for edge, array in path.needs(pieces):
                fetch = edge.fetch.edge.fetch if isinstance(edge.fetch, _Taken) else edge.fetch
                assert isinstance(fetch, ChunkFetch)
                ref = fetch.ref(pool, array, chunk)
                if ref is None or ref.key in self._asked:
                    continue
                if nbytes + ref.nbytes <= MOST_BYTES or edge is least:
                    self._asked[ref.key] = self._reader.requests.submit(fetch, pool, array, chunk)
                    coming[ref.key] = ref.nbytes
                    nbytes += ref.nbytes
        return coming


def carried(node: Node, wanted: Sequence[int]) -> list[int]:
    """Return the tensors whose track is composed at a node: not of those that it sets and gives exactly."""
    tensors, its_own = np.array([*wanted], np.int64), sets(node.columns.op) & node.exactly
    found: list[int] = tensors[~its_own[tensors]].tolist()
    return found


def taken_over(node: Node, wanted: Sequence[int]) -> list[int]:
    """Return the tensors whose track at a node comes of the exact values that it gives, as of an anchor.

    None, where it gives all exactly and some stand on the state before: the tracks of all are held of that.
    """
    tensors = np.array([*wanted], np.int64)
    exact, op = node.exactly[tensors], node.columns.op[tensors]
    stays = exact.all() and not sets(op).all()
    found: list[int] = [] if stays else tensors[exact & (op == EXACT)].tolist()
    return found
