"""One edge of a path: what it says, how to get its chunks, and the values that it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.codec.decode import Room
from lcstore.codec.dtypes import dtype_from_name
from lcstore.edges import grid
from lcstore.edges.algebra import ArrayName, Effect, array_of
from lcstore.edges.blocks import Delta, Step, reader, sums
from lcstore.edges.columns import EXACT, Columns
from lcstore.edges.frames import apply_delta, values_of_frame
from lcstore.errors import CorruptionError, LcstoreError
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import Piece, within
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

    def adder(self, pool: str, chunk: int, room: Room) -> Step | None:
        """Get what the edge adds to a chunk; return the step that adds it, or takes it back."""
        data = self.fetch(pool, "add", chunk)
        if data is None:
            return None
        dtype, sign = composed_dtype(self.layout.pools[pool]), self.effect.sign
        with self.named(pool, "add", chunk):
            delta = Delta(data, self.size_of(pool, chunk), dtype, sign, room)

        def run(low: int, out: Array) -> None:
            with self.named(pool, "add", chunk):
                delta.add(low, out)

        return Step(run, len(data))

    def setter(self, pool: str, chunk: int, pieces: Sequence[Piece], room: Room) -> Step:
        """Get pieces of a chunk that the edge itself sets; return the step that fills them."""
        found: dict[ArrayName | None, list[Piece]] = {}
        for piece in pieces:
            found.setdefault(self.array_of(piece), []).append(piece)
        steps = [self._setting(pool, array, chunk, some, room) for array, some in found.items()]

        def run(low: int, out: Array) -> None:
            for step in steps:
                step.run(low, out)

        return Step(run, sum(step.nbytes for step in steps))

    def _setting(
        self, pool: str, array: ArrayName | None, chunk: int, pieces: Sequence[Piece], room: Room
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
            here = [*within(pieces, low, high)]
            if not here:
                return
            values = room.values(high - low, dtype)
            with self.named(pool, array, chunk):
                read(low, values)
                for piece in here:
                    part = slice(piece.at - low, piece.at - low + piece.size)
                    to_track(self.layout, self.columns, piece.tensor, values[part], out[part])

        return Step(run, len(data))

    @contextmanager
    def named(self, pool: str, array: ArrayName, chunk: int) -> Iterator[None]:
        """Name the chunk in errors about its content."""
        try:
            yield
        except LcstoreError as error:
            error.key = error.key or self.locate(pool, array, chunk)
            raise


def _clear(pieces: Sequence[Piece], low: int, out: Array) -> None:
    for piece in within(pieces, low, low + out.size):
        out[piece.at - low : piece.at - low + piece.size] = 0


def composed_dtype(pool: PoolSpec) -> np.dtype:
    """Return what a pool is composed in: the integers of its grid, or the values themselves."""
    return grid.track_dtype(pool.dtype) if pool.role == "weights" else dtype_from_name(pool.dtype)


def decode(pool: PoolSpec, array: ArrayName, data: Buffer, size: int) -> Array:
    """Decode a chunk of an array: integers of the grid, or values in the dtype of the pool.

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
        return values_of_frame(data, size, dtype_from_name(pool.dtype))
    out = np.zeros(size, composed_dtype(pool))
    apply_delta(data, out)
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
