"""One edge of a path: what it says, how to get its chunks, and the values that it sets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.errors import CorruptionError, LcstoreError
from lcstore.state.layout import Layout
from lcstore.track import grid
from lcstore.track.columns import EXACT, SET, SET_GRID, Columns, OpName
from lcstore.track.frames import apply_delta, values_of_frame
from lcstore.track.poolmap import Piece

#: Gives the bytes of a chunk of an edge, checked; None where it is not stored (all zero).
Fetch: TypeAlias = Callable[[str, OpName, int], bytes | None]


@dataclass(frozen=True)
class Edge:
    """One edge of a path: what it says of the tensors of its layout, and how to get its chunks."""

    layout: Layout
    columns: Columns
    fetch: Fetch
    #: Names a chunk, for messages.
    locate: Callable[[str, OpName, int], str]
    #: Of a shortcut: the own edge of its target, which has the same layout. Needed where columns say `OWN`.
    own: Edge | None = None

    @contextmanager
    def named(self, pool: str, op: OpName, chunk: int) -> Iterator[None]:
        """Name the chunk in errors about its content."""
        try:
            yield
        except LcstoreError as error:
            error.key = error.key or self.locate(pool, op, chunk)
            raise


def fill(
    edge: Edge, pool: str, chunk: int, pieces: Sequence[Piece], out: Array, part: tuple[int, int] | None
) -> None:
    """Fill the pieces of a chunk that an edge sets from its own chunks, of which `part` is needed."""
    ops = edge.columns.op
    if edge.layout.pools[pool].role != "weights":
        _copy(edge, pool, chunk, "exact" if EXACT in ops[[p.tensor for p in pieces]] else "set", pieces, out)
        return
    _take_integers(edge, pool, chunk, [p for p in pieces if ops[p.tensor] == SET_GRID], out, part)
    _round_to_grid(edge, pool, chunk, [p for p in pieces if ops[p.tensor] == EXACT], out)
    for piece in pieces:
        if ops[piece.tensor] == SET:  # weights are set without a value only where they are all zero
            out[piece.at : piece.at + piece.size] = 0


def _copy(edge: Edge, pool: str, chunk: int, op: OpName, pieces: Sequence[Piece], out: Array) -> None:
    values = _values(edge, pool, chunk, op, out.size)
    for piece in pieces:
        here = slice(piece.at, piece.at + piece.size)
        out[here] = 0 if values is None else values[here]


def _take_integers(
    edge: Edge, pool: str, chunk: int, pieces: Sequence[Piece], out: Array, part: tuple[int, int] | None
) -> None:
    if not pieces:
        return
    data = edge.fetch(pool, "grid", chunk)
    integers = np.zeros(out.size, out.dtype)
    if data is not None:
        with edge.named(pool, "grid", chunk):
            apply_delta(data, integers, part=part)
    for piece in pieces:
        here = slice(piece.at, piece.at + piece.size)
        out[here] = integers[here]


def _round_to_grid(edge: Edge, pool: str, chunk: int, pieces: Sequence[Piece], out: Array) -> None:
    values = _values(edge, pool, chunk, "exact", out.size) if pieces else None
    for piece in pieces:
        here = slice(piece.at, piece.at + piece.size)
        spec = edge.layout.tensors[piece.tensor]
        if values is None:
            out[here] = 0
        elif not grid.to_grid(values[here], int(edge.columns.grid[piece.tensor]), out[here], spec.dtype):
            raise CorruptionError(f"tensor {spec.name!r} does not fit its grid")


def _values(edge: Edge, pool: str, chunk: int, op: OpName, count: int) -> Array | None:
    """Decode a chunk of values; None where it is all zero."""
    data = edge.fetch(pool, op, chunk)
    if data is None:
        return None
    with edge.named(pool, op, chunk):
        return values_of_frame(data, count, dtype_from_name(edge.layout.pools[pool].dtype))
