"""The edges from one node to another: which of their chunks lead to the values of tensors, and how."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.decode import Room
from lcstore.edges.algebra import LOST, START, ArrayName, Held, trace
from lcstore.edges.blocks import BLOCK, Step
from lcstore.edges.blocks import blocks as block_places
from lcstore.edges.edge import Edge, Span, composed_dtype
from lcstore.errors import CorruptionError
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import Piece
from lcstore.limits import zeros

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
        What there is of the node that they lead from; None at the root.

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
        self, edges: Sequence[Edge], layout: Layout, wanted: Iterable[int], start: Held | None = None
    ) -> None:
        self.edges = edges
        self.layout = layout
        self.wanted = np.array(sorted(wanted), np.int64)
        self.trace = trace([edge.effect for edge in edges], layout, self.wanted, start)
        self.begins, self.added = self.trace

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
    ) -> Iterator[tuple[str, int, list[Piece]]]:
        """Yield pool, number and pieces of the chunks that hold any of `tensors` (those wanted, if None).

        Of a window of one tensor, only those that hold any of its elements.
        """
        if tensors is None and window is None:
            yield from self._chunks
        else:
            yield from self._chunks_of(self.wanted.tolist() if tensors is None else tensors, window)

    @cached_property
    def _chunks(self) -> list[tuple[str, int, list[Piece]]]:
        """The chunks of all that is wanted: what fetches them and what composes them both ask."""
        return [*self._chunks_of(self.wanted.tolist(), None)]

    def _chunks_of(
        self, tensors: Iterable[int], window: Span | None
    ) -> Iterator[tuple[str, int, list[Piece]]]:
        by_pool: dict[str, set[int]] = {}
        for tensor in tensors:
            by_pool.setdefault(self.layout.tensors[tensor].pool, set()).add(tensor)
        for pool, inside in by_pool.items():
            lies = self.layout.maps[pool]
            for chunk in lies.chunks_of(inside, window):
                yield pool, chunk, [*lies.pieces(chunk, inside)]

    def blocks(
        self,
        pool: str,
        chunk: int,
        pieces: Iterable[Piece],
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
        live, tensors, begins = self._live(pieces)
        if not live:
            return
        room, dtype = Room(), composed_dtype(self.layout.pools[pool])
        size = self.longest(pool, chunk) if out is None else out.size
        places = [*block_places(*(span or span_of(live)), size)]
        steps: list[Step] = []
        for step in self._steps(pool, chunk, live, tensors, begins, room):
            steps.append(step)
            if sum(step.nbytes for step in steps[1:]) > _HELD:
                # A long path: what its frames come to so far takes less memory than they do.
                out = zeros(size, dtype) if out is None else out
                for low, high in places:
                    _run(steps, low, out[low:high])
                steps.clear()
        memory = np.empty(min(BLOCK, size), dtype) if out is None else out
        for low, high in places:
            part = memory[: high - low] if out is None else out[low:high]
            if out is None:
                part[:] = 0
            _run(steps, low, part)
            yield low, part

    def apply(
        self, pool: str, chunk: int, pieces: Iterable[Piece], out: Array, span: Span | None = None
    ) -> None:
        """Go over all edges with one chunk; parameters as for `blocks`."""
        for _ in self.blocks(pool, chunk, pieces, out, span):
            pass

    def _steps(
        self, pool: str, chunk: int, live: Sequence[Piece], tensors: Array, begins: Array, room: Room
    ) -> Iterator[Step]:
        """Get what the path needs of a chunk, edge by edge; yield what is done with it."""
        for at in range(max(int(begins.min()), 0), len(self.edges)):
            for edge, here in self._setters(at, live, begins):
                yield edge.setter(pool, chunk, here, room)
            if self._adds(at, tensors[begins < at]):
                step = self.edges[at].adder(pool, chunk, room)
                if step is not None:
                    yield step

    def longest(self, pool: str, chunk: int) -> int:
        """Return the elements of a chunk where on the path it is longest, at least those it has here."""
        low, high = self.layout.maps[pool].bounds(chunk)
        return max([high - low, *(edge.size_of(pool, chunk) for edge in self.edges)])

    def _live(self, pieces: Iterable[Piece]) -> tuple[list[Piece], Array, Array]:
        """Return the pieces to whose values the path leads, their tensors, and where these begin."""
        live = [piece for piece in pieces if self.begins[piece.tensor] != LOST]
        tensors = np.array([piece.tensor for piece in live], np.int64)
        return live, tensors, self.begins[tensors]

    def _setters(self, at: int, pieces: Sequence[Piece], begins: Array) -> list[tuple[Edge, list[Piece]]]:
        """Return who holds the pieces that an edge sets, and these pieces as its layout has them."""
        here = [pieces[i] for i in np.flatnonzero(begins == at).tolist()]
        if not here:
            return []
        edge = self.edges[at]
        places = self.layout.places_in(edge.layout)
        return edge.setters([Piece(int(places[p.tensor]), p.first, p.at, p.size) for p in here])

    def _adds(self, at: int, tensors: Array) -> bool:
        """Return whether an edge adds to any of some tensors that begin before it."""
        edge = self.edges[at]
        return bool(edge.effect.adds[self.layout.places_in(edge.layout)[tensors]].any())

    def needs(self, pieces: Iterable[Piece]) -> Iterator[tuple[Edge, ArrayName]]:
        """Yield of which edge and array `apply` gets a chunk for some pieces of it, in that order."""
        live, tensors, begins = self._live(pieces)
        for at in range(max(int(begins.min(initial=len(self.edges))), 0), len(self.edges)):
            for edge, here in self._setters(at, live, begins):
                for array in edge.arrays_of(here):
                    yield edge, array
            if self._adds(at, tensors[begins < at]):
                yield self.edges[at], "add"

    def fetches(self, at: int) -> Iterator[tuple[Edge, str, ArrayName, int]]:
        """Yield what `apply` asks of one edge for all wanted tensors: edge, pool, array, chunk."""
        for pool, chunk, pieces in self.chunks():
            live, tensors, begins = self._live(pieces)
            for edge, here in self._setters(at, live, begins):
                for array in edge.arrays_of(here):
                    yield edge, pool, array, chunk
            if self._adds(at, tensors[begins < at]):
                yield self.edges[at], pool, "add", chunk

    def sources(self) -> set[tuple[str, str, ArrayName]]:
        """Return the arrays that wanted tensors are set from: the place of the first chunk, pool, array."""
        found: set[tuple[str, str, ArrayName]] = set()
        for pool, _, pieces in self.chunks():
            live, _, begins = self._live(pieces)
            for at in {*begins.tolist()} - {START}:
                for edge, here in self._setters(at, live, begins):
                    found |= {(edge.locate(pool, array, 0), pool, array) for array in edge.arrays_of(here)}
        return found


def _run(steps: Sequence[Step], low: int, part: Array) -> None:
    for step in steps:
        step.run(low, part)


def span_of(pieces: Sequence[Piece]) -> Span:
    """Return where in their chunk pieces begin and end."""
    return min(piece.at for piece in pieces), max(piece.at + piece.size for piece in pieces)
