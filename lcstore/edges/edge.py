"""One edge of a path: what it says, how to get its chunks, and the values that it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.dtypes import clear, dtype_from_name
from lcstore.edges import grid
from lcstore.edges.algebra import ArrayName, Effect, by_array
from lcstore.edges.blocks import reader, sums
from lcstore.edges.columns import EXACT, Columns
from lcstore.edges.deltas import BLOCK, Delta, Step, apply_delta
from lcstore.edges.frames import values_of_frame
from lcstore.edges.patterns import decode_patterns, patterns
from lcstore.errors import CorruptionError, LcstoreError
from lcstore.frames.decode import Room
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import PieceColumns
from lcstore.layout.specs import PoolSpec
from lcstore.once import once

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

    @once
    def effect(self) -> Effect:
        """What it does along the path."""
        effect = Effect.of(self.layout, self.columns.op, None if self.own is None else self.own.columns.op)
        return effect.back() if self.back else effect

    def size_of(self, pool: str, chunk: int) -> int:
        """Return how many elements a chunk has here; a pool that grew since had fewer, or none."""
        spec = self.layout.pools.get(pool)
        return max(0, min(spec.chunk, spec.size - chunk * spec.chunk)) if spec is not None else 0

    def setters(self, pieces: PieceColumns) -> list[tuple[Edge, PieceColumns]]:
        """Divide pieces of a chunk that the edge sets by who holds them: itself, or the target's own edge."""
        owned = self.effect.owned[pieces.tensor]
        divided = (self, pieces.where(~owned)), (self.own, pieces.where(owned))
        return [(edge, some) for edge, some in divided if edge is not None and len(some)]

    def by_array(self, pieces: PieceColumns) -> list[tuple[ArrayName | None, PieceColumns]]:
        """Divide pieces by which of its arrays holds them; with None, those of which nothing is stored."""
        return by_array(self.columns.op, self.layout.weights, pieces)

    def arrays_of(self, pieces: PieceColumns) -> list[ArrayName]:
        """Return which of its arrays hold pieces."""
        return [array for array, _ in self.by_array(pieces) if array is not None]

    def adder(self, pool: str, chunk: int, room: Room) -> Step | Delta | None:
        """Get what the edge adds to a chunk; return the step that adds it, or takes it back."""
        data = self.fetch(pool, "add", chunk)
        if data is None:
            return None
        dtype, sign = composed_dtype(self.layout.pools[pool]), self.effect.sign
        if self.layout.pools[pool].role != "weights":
            return self._pattern_adder(pool, chunk, data, room)
        return Delta(data, self.size_of(pool, chunk), dtype, sign, partial(self.named, pool, "add", chunk))

    def _pattern_adder(self, pool: str, chunk: int, data: Buffer, room: Room) -> Step:
        """Return the step that adds differences of bit patterns to a chunk, or takes them back."""
        size, sign = self.size_of(pool, chunk), self.effect.sign
        kind = patterns(np.empty(0, composed_dtype(self.layout.pools[pool]))).dtype
        with self.named(pool, "add", chunk):
            read = reader(data, size, kind, room)

        def run(low: int, out: Array) -> None:
            words = patterns(out)[: max(0, size - low)]
            moves = room.values(words.size, kind)
            with self.named(pool, "add", chunk):
                if out.size < BLOCK and low + out.size < size:
                    raise CorruptionError(f"the frame holds {size} elements instead of {low + out.size}")
                read(low, moves)
            (np.add if sign > 0 else np.subtract)(words, moves, out=words)

        return Step(run, size * kind.itemsize)  # decoded, it is held as it is

    def setter(self, pool: str, chunk: int, pieces: PieceColumns, room: Room) -> Step:
        """Get pieces of a chunk that the edge itself sets; return the step that fills them."""
        steps = [self._setting(pool, array, chunk, some, room) for array, some in self.by_array(pieces)]

        def run(low: int, out: Array) -> None:
            for step in steps:
                step.run(low, out)

        return Step(run, sum(step.nbytes for step in steps))

    def _setting(
        self, pool: str, array: ArrayName | None, chunk: int, pieces: PieceColumns, room: Room
    ) -> Step:
        """Return the step that fills pieces of a chunk from one array; with zeros where nothing is stored."""
        data = None if array is None else self.fetch(pool, array, chunk)
        if array is None or data is None:
            return Step(partial(_clear, pieces), 0)
        spec, size = self.layout.pools[pool], self.size_of(pool, chunk)
        grids = spec.role == "weights" and array != "exact"
        dtype = composed_dtype(spec) if grids else dtype_from_name(spec.dtype)
        with self.named(pool, array, chunk):
            read = sums(data, size, dtype, room) if grids else reader(data, size, dtype, room)

        def run(low: int, out: Array) -> None:
            high = min(low + out.size, size)
            here = pieces.within(low, high).moved(-low)
            if not len(here):
                return
            values = room.values(high - low, dtype)
            with self.named(pool, array, chunk):
                read(low, values)
                to_track(self.layout, self.columns, here, values, out)

        return Step(run, len(data))

    @contextmanager
    def named(self, pool: str, array: ArrayName, chunk: int) -> Iterator[None]:
        """Name the chunk in errors about its content."""
        try:
            yield
        except LcstoreError as error:
            error.key = error.key or self.locate(pool, array, chunk)
            raise


def _clear(pieces: PieceColumns, low: int, out: Array) -> None:
    for first, behind in pieces.within(low, low + out.size).runs():
        clear(out[first - low : behind - low])


def composed_dtype(pool: PoolSpec) -> np.dtype:
    """Return what a pool is composed in: the integers of its grid, or the values themselves."""
    return grid.track_dtype(pool.dtype) if pool.role == "weights" else dtype_from_name(pool.dtype)


def decode(pool: PoolSpec, array: ArrayName, data: Buffer, size: int) -> Array:
    """Decode a chunk of an array: integers of the grid, or values in the dtype of the pool.

    Differences of bit patterns are given as such values, too.

    Parameters
    ----------
    data, size
        The frame, and how many elements the chunk has.

    Raises
    ------
    CorruptionError
        It is no frame of such a chunk, or its checksum is not that of its bytes.
    """
    if pool.role != "weights" or array == "exact":
        decode_ = decode_patterns if array == "add" else values_of_frame
        return decode_(data, size, dtype_from_name(pool.dtype))
    out = np.zeros(size, composed_dtype(pool))
    apply_delta(data, out)
    return out


def to_track(layout: Layout, columns: Columns, pieces: PieceColumns, values: Array, out: Array) -> None:
    """Fill pieces of `out` with the track of what an array holds of them: exact weights are rounded.

    Raises
    ------
    CorruptionError
        A value does not fit its grid.
    """
    first = layout.tensors[int(pieces.tensor[0])]
    if first.role != "weights" or columns.op[pieces.tensor[0]] != EXACT:
        for low, high in pieces.runs():
            out[low:high] = values[low:high]
        return
    rounded = grid.to_grids(values, pieces, columns.grid[pieces.tensor], out, first.dtype)
    if rounded < len(pieces):
        name = layout.tensors[int(pieces.tensor[rounded])].name
        raise CorruptionError(f"tensor {name!r} does not fit its grid")
