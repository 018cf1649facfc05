"""One edge of a path: what it says, how to get its chunks, and the values that it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.edges import grid
from lcstore.edges.algebra import ArrayName, Effect, array_of
from lcstore.edges.columns import EXACT, Columns
from lcstore.edges.frames import apply_delta, values_of_frame
from lcstore.edges.patterns import apply_patterns, decode_patterns
from lcstore.errors import CorruptionError, LcstoreError
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import Piece
from lcstore.layout.specs import PoolSpec

#: Gives the bytes of a chunk of an edge, checked; None where it is not stored (all zero).
Fetch: TypeAlias = Callable[[str, ArrayName, int], bytes | None]
#: First element of a chunk that is needed, and the one behind the last.
Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Edge:
    """One edge of a path: what it says of the tensors of its target's layout, and how to get its chunks."""

    layout: Layout
    columns: Columns
    fetch: Fetch
    #: Names a chunk, for messages.
    locate: Callable[[str, ArrayName, int], str]
    #: Of a shortcut: the own edge of its target, which has the same layout. Needed where columns say `OWN`.
    own: Edge | None = None
    #: Whether the path leads over it from its target to its base.
    back: bool = False

    @cached_property
    def effect(self) -> Effect:
        """What it does along the path."""
        effect = Effect.of(self.layout, self.columns.op, None if self.own is None else self.own.columns.op)
        return effect.back() if self.back else effect

    def size_of(self, pool: str, chunk: int) -> int:
        """Return how many elements a chunk has here; a pool that grew since had fewer, or none."""
        spec = self.layout.pools.get(pool)
        return max(0, min(spec.chunk, spec.size - chunk * spec.chunk)) if spec is not None else 0

    def setters(self, pieces: Sequence[Piece]) -> list[tuple[Edge, list[Piece]]]:
        """Divide pieces of a chunk that the edge sets by who holds them: itself, or the target's own edge."""
        owned = self.effect.owned
        divided = (
            (self, [piece for piece in pieces if not owned[piece.tensor]]),
            (self.own, [piece for piece in pieces if owned[piece.tensor]]),
        )
        return [(edge, some) for edge, some in divided if edge is not None and some]

    def array_of(self, piece: Piece) -> ArrayName | None:
        """Return which of its arrays holds a piece; None where nothing is stored of it."""
        return array_of(int(self.columns.op[piece.tensor]), bool(self.layout.weights[piece.tensor]))

    def arrays_of(self, pieces: Iterable[Piece]) -> set[ArrayName]:
        """Return which of its arrays hold pieces."""
        return {array for piece in pieces if (array := self.array_of(piece)) is not None}

    def add(self, pool: str, chunk: int, out: Array, span: Span) -> None:
        """Add to a chunk what the edge adds, or take it back: at least within `span`."""
        data = self.fetch(pool, "add", chunk)
        if data is None:
            return
        size = self.size_of(pool, chunk)
        with self.named(pool, "add", chunk):
            if self.layout.pools[pool].role == "weights":
                apply_delta(data, out[:size], self.effect.sign, (min(span[0], size), min(span[1], size)))
            else:
                apply_patterns(data, out[:size], self.effect.sign)

    def fill(self, pool: str, chunk: int, pieces: Sequence[Piece], out: Array, span: Span) -> None:
        """Fill pieces of a chunk that the edge itself sets, at least within `span`."""
        held = {array: self._values(pool, array, chunk, span) for array in self.arrays_of(pieces)}
        for piece in pieces:
            here = slice(piece.at, piece.at + piece.size)
            array = self.array_of(piece)
            values = None if array is None else held[array]
            if values is None:
                out[here] = 0
            else:
                to_track(self.layout, self.columns, piece.tensor, values[here], out[here])

    def _values(self, pool: str, array: ArrayName, chunk: int, span: Span) -> Array | None:
        """Return what a chunk of one array holds; None where it is all zero."""
        data = self.fetch(pool, array, chunk)
        if data is None:
            return None
        size = self.size_of(pool, chunk)
        with self.named(pool, array, chunk):
            within = min(span[0], size), min(span[1], size)
            return decode(self.layout.pools[pool], array, data, size, within)

    @contextmanager
    def named(self, pool: str, array: ArrayName, chunk: int) -> Iterator[None]:
        """Name the chunk in errors about its content."""
        try:
            yield
        except LcstoreError as error:
            error.key = error.key or self.locate(pool, array, chunk)
            raise


def composed_dtype(pool: PoolSpec) -> np.dtype:
    """Return what a pool is composed in: the integers of its grid, or the values themselves."""
    return grid.track_dtype(pool.dtype) if pool.role == "weights" else dtype_from_name(pool.dtype)


def decode(pool: PoolSpec, array: ArrayName, data: bytes, size: int, span: Span | None = None) -> Array:
    """Decode a chunk of an array: integers of the grid, or values in the dtype of the pool.

    Differences of bit patterns are given as such values, too.

    Parameters
    ----------
    data, size
        The frame, and how many elements the chunk has.
    span
        Only these need to be right, of integers.

    Raises
    ------
    CorruptionError
        It is no frame of such a chunk.
    """
    if pool.role != "weights" or array == "exact":
        decode_ = decode_patterns if array == "add" else values_of_frame
        return decode_(data, size, dtype_from_name(pool.dtype))
    out = np.zeros(size, composed_dtype(pool))
    apply_delta(data, out, part=span)
    return out


def to_track(layout: Layout, columns: Columns, tensor: int, values: Array, out: Array) -> None:
    """Fill `out` with the track of what an array holds of a tensor: exact values of weights are rounded.

    Raises
    ------
    CorruptionError
        A value does not fit its grid.
    """
    if columns.op[tensor] != EXACT or not layout.weights[tensor]:
        out[:] = values
        return
    spec = layout.tensors[tensor]
    if not grid.to_grid(values, int(columns.grid[tensor]), out, spec.dtype):
        raise CorruptionError(f"tensor {spec.name!r} does not fit its grid")
