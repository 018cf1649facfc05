"""The edges from one node to another: which of their chunks lead to the values of tensors, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import clear
from lcstore.edges.algebra import LOST, START, ArrayName, Start, trace
from lcstore.edges.blocks import blocks as block_places
from lcstore.edges.deltas import BLOCK, Delta, OnBlock, Step, together
from lcstore.edges.edge import Edge, Span, composed_dtype
from lcstore.errors import CorruptionError
from lcstore.frames.decode import Room
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import PieceColumns
from lcstore.limits import zeros
from lcstore.once import once

#: Bytes of frames, besides the first, that one chunk is gone over with at a time.
_HELD: Final = 32 << 20


class Path:
    """The edges from one node to another, and where on them the values of some tensors begin.

    Parameters
    ----------
    edges
        In order; those that are gone over backwards say so.
    layout
        That of the node that they lead to.
    wanted
        Tensors of that layout.
    start
        The node that they lead from; None at the root.

    Attributes
    ----------
    wanted
        ``int64``: the tensors, rising.
    begins, added
        See `lcstore.edges.algebra.Trace`; of tensors that are not wanted they say nothing.

    Raises
    ------
    CorruptionError
        An edge says of a tensor what cannot be.
    """

    def __init__(
        self, edges: Sequence[Edge], layout: Layout, wanted: Iterable[int], start: Start | None = None
    ) -> None:
        self.edges = edges
        self.layout = layout
        self.wanted = np.sort(np.array([*wanted], np.int64))
        self.trace = trace([edge.effect for edge in edges], layout, self.wanted, start)
        self.begins, self.added = self.trace
        #: Memory that one chunk after another is gone over with.
        self._rooms: list[Room] = []

    @property
    def lost(self) -> list[int]:
        """The wanted tensors to whose value the path does not lead."""
        lost: list[int] = self.wanted[self.begins[self.wanted] == LOST].tolist()
        return lost

    def check(self) -> None:
        """Check that the path leads to all values.

        Raises
        ------
        CorruptionError
            It does not.
        """
        if self.lost:
            name = self.layout.tensors[self.lost[0]].name
            raise CorruptionError(f"nothing on the path sets tensor {name!r}")

    @property
    def length(self) -> int:
        """How many edges wanted tensors go over that are weights, or are added to."""
        begins = self.begins[self.wanted[(self.layout.weights | self.added)[self.wanted]]]
        first = int(begins[begins != LOST].min(initial=len(self.edges)))
        return len(self.edges) - max(first, 0)

    def chunks(
        self, tensors: Iterable[int] | None = None, window: Span | None = None
    ) -> Iterator[tuple[str, int, PieceColumns]]:
        """Yield pool, number and pieces of the chunks that hold any of `tensors` (those wanted, if None).

        Of a window of one tensor, only those that hold any of its elements.
        """
        if tensors is None and window is None:
            yield from self._chunks
        else:
            wanted = self.wanted if tensors is None else np.array([*tensors], np.int64)
            yield from self._chunks_of(wanted, window)

    @once
    def _chunks(self) -> list[tuple[str, int, PieceColumns]]:
        """The chunks of all that is wanted: what fetches them and what composes them both ask."""
        return [*self._chunks_of(self.wanted, None)]

    def _chunks_of(self, tensors: Array, window: Span | None) -> Iterator[tuple[str, int, PieceColumns]]:
        within, pools = self.layout.places.pool[tensors], [*self.layout.pools]
        for number in np.unique(within).tolist():
            lies = self.layout.maps[pools[number]]
            some = lies.some(tensors[within == number])
            for chunk in lies.chunks_with(some, window):
                yield lies.pool.name, chunk, lies.cut(chunk, some)

    def blocks(
        self,
        pool: str,
        chunk: int,
        pieces: PieceColumns,
        out: Array | None = None,
        span: Span | None = None,
    ) -> Iterator[tuple[int, Array]]:
        """Go over one chunk block by block, each with all edges: it stays in cache for whoever takes it.

        Parameters
        ----------
        pool, chunk, pieces
            The chunk, and its pieces of wanted tensors. Those that are lost are left out.
        out
            What there is of the chunk at the start of the path; zero where that is to be added later.
            Integers of the grid, or values. As long as the chunk is in any layout of the path. Where no piece
            lies, it means nothing, before and after. None where the path begins at the root and blocks are
            all that is wanted.
        span
            Only these elements are needed; None: all of the pieces.

        Yields
        ------
        tuple
            Place of the first element of a block, and what the block comes to: a part of `out`, or memory
            that the next one is written to.
        """
        live, begins = self._live(pieces)
        if not len(live):
            return
        try:
            room = self._rooms.pop()  # at once: other threads take some, too
        except IndexError:
            room = Room()
        room.begin()
        size = self.longest(pool, chunk) if out is None else out.size
        dtype = composed_dtype(self.layout.pools[pool])
        places = [*block_places(*(span or live.span), size)]
        steps: list[Step | Delta] = []
        held = 0
        for step in self._steps(pool, chunk, live, begins, room):
            held += step.nbytes if steps else 0
            steps.append(step)
            if held > _HELD:
                # A long path: what its frames come to so far takes less memory than they do.
                out = zeros(size, dtype) if out is None else out
                runs = together(steps, room)
                for low, high in places:
                    _run(runs, low, out[low:high])
                steps.clear()
                room.begin()
                held = 0
        runs = together(steps, room)
        steps.clear()
        memory = np.empty(min(BLOCK, size), dtype) if out is None else out
        for low, high in places:
            part = memory[: high - low] if out is None else out[low:high]
            if out is None:
                clear(part)
            _run(runs, low, part)
            yield low, part
        self._rooms.append(room)

    def apply(
        self, pool: str, chunk: int, pieces: PieceColumns, out: Array, span: Span | None = None
    ) -> None:
        """Go over all edges with one chunk; parameters as for `blocks`."""
        for _ in self.blocks(pool, chunk, pieces, out, span):
            pass

    def _steps(
        self, pool: str, chunk: int, live: PieceColumns, begins: Array, room: Room
    ) -> Iterator[Step | Delta]:
        """Get what the path needs of a chunk, edge by edge; yield what is done with it."""
        for at in range(max(int(begins.min()), 0), len(self.edges)):
            for edge, here in self._setters(at, live, begins):
                yield edge.setter(pool, chunk, here, room)
            if self._adds(at, live.tensor[begins < at]):
                step = self.edges[at].adder(pool, chunk, room)
                if step is not None:
                    yield step

    def longest(self, pool: str, chunk: int) -> int:
        """Return the elements of a chunk where on the path it is longest, at least those it has here."""
        low, high = self.layout.maps[pool].bounds(chunk)
        return max([high - low, *(edge.size_of(pool, chunk) for edge in self.edges)])

    def _live(self, pieces: PieceColumns) -> tuple[PieceColumns, Array]:
        """Return the pieces to whose values the path leads, and where these begin."""
        begins = self.begins[pieces.tensor]
        led = begins != LOST
        return pieces.where(led), begins[led]

    def _setters(self, at: int, pieces: PieceColumns, begins: Array) -> list[tuple[Edge, PieceColumns]]:
        """Return who holds the pieces that an edge sets, and these pieces as its layout has them."""
        here = pieces.where(begins == at)
        if not len(here):
            return []
        edge = self.edges[at]
        places = self.layout.places_in(edge.layout)
        return edge.setters(replace(here, tensor=places[here.tensor]))

    def _adds(self, at: int, tensors: Array) -> bool:
        """Return whether an edge adds to any of some tensors that begin before it."""
        edge = self.edges[at]
        return bool(edge.effect.adds[self.layout.places_in(edge.layout)[tensors]].any())

    def needs(self, pieces: PieceColumns) -> Iterator[tuple[Edge, ArrayName]]:
        """Yield of which edge and array `apply` gets a chunk for some pieces of it, in that order."""
        live, begins = self._live(pieces)
        for at in range(max(int(begins.min(initial=len(self.edges))), 0), len(self.edges)):
            for edge, here in self._setters(at, live, begins):
                for array in edge.arrays_of(here):
                    yield edge, array
            if self._adds(at, live.tensor[begins < at]):
                yield self.edges[at], "add"

    def sources(self) -> set[tuple[str, str, ArrayName]]:
        """Return the arrays that wanted tensors are set from: the place of the first chunk, pool, array."""
        found: set[tuple[str, str, ArrayName]] = set()
        for pool, _, pieces in self.chunks():
            live, begins = self._live(pieces)
            for at in {*begins.tolist()} - {START}:
                for edge, here in self._setters(at, live, begins):
                    found |= {(edge.locate(pool, array, 0), pool, array) for array in edge.arrays_of(here)}
        return found


def _run(runs: Sequence[OnBlock], low: int, part: Array) -> None:
    for run in runs:
        run(low, part)
