"""Integers for floats: the unit of a tensor's grid, and the values that grid integers stand for."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name, to_float16, working_dtype
from lcstore.kernels import grid as kernels
from lcstore.layout.poolmap import Piece, PieceColumns
from lcstore.layout.specs import PoolSpec

#: Bits of the largest magnitude when a grid is chosen, by bytes of the integer.
_GRID_BITS: Final = {4: 26, 8: 56}
#: A tensor may grow to eight times that before it is set on a new grid.
HEADROOM: Final = 3
#: Elements that are compared at a time: a mask of all of them would take a byte for each.
_AT_ONCE: Final = 1 << 18
#: Magnitudes (log2) for which a grid is possible: beyond them unit or reciprocal leave the normal floats.
_LOWEST: Final = {4: -90, 8: -900}
_HIGHEST: Final = {4: 120, 8: 1000}
#: The same of narrow floats. What float16 grows to on its grid, and as much again, it still holds.
_HIGHEST_OF: Final = {"float16": 15 - HEADROOM, "bfloat16": 120}


def track_dtype(name: str) -> np.dtype:
    """Return the integers that a tensor of dtype `name` is tracked in."""
    return np.dtype(np.int64 if name == "float64" else np.int32)


def pool_dtype(pool: PoolSpec) -> np.dtype | None:
    """Return what the track holds of a pool; None where it holds nothing."""
    if pool.role == "weights":
        return track_dtype(pool.dtype)
    return dtype_from_name(pool.dtype) if pool.role == "plain" else None


def grid_bits(name: str) -> int:
    """Return the bits of the largest magnitude of dtype `name` when a grid is chosen."""
    return _GRID_BITS[track_dtype(name).itemsize]


def exponent_of(magnitude: float, name: str) -> int | None:
    """Return log2 of the grid's unit for values up to `magnitude`; None where no grid fits."""
    if not math.isfinite(magnitude) or magnitude <= 0:
        return None
    top = math.frexp(magnitude)[1]
    size = track_dtype(name).itemsize
    if not _LOWEST[size] <= top <= _HIGHEST_OF.get(name, _HIGHEST[size]):
        return None
    return top - grid_bits(name)


def lowest(name: str) -> int:
    """Return log2 of the unit of the finest grid."""
    return _LOWEST[track_dtype(name).itemsize] - grid_bits(name)


def limit_of(name: str) -> float:
    """Return the largest magnitude allowed on the grid."""
    return float(1 << (grid_bits(name) + HEADROOM))


def as_working(values: Array, name: str) -> Array:
    """Return values of dtype `name` in their working dtype; no copy where they are in it already."""
    return np.ascontiguousarray(values, dtype=working_dtype(dtype_from_name(name)))


def to_grid(values: Array, grid: int, out: Array, name: str) -> bool:
    """Round `values` to the grid, into `out`; return whether all of them fit."""
    values = as_working(values, name)
    kind = values.dtype.type
    at, size, inverses = np.zeros(1, np.int64), np.array([values.size]), np.array([2.0**-grid], kind)
    fits = kernels.to_grids(values, at, size, inverses, kind(limit_of(name)), out)
    return bool(fits == 1)


def is_at(values: Array, grid: int, track: Array, name: str) -> bool:
    """Return whether `values`, rounded to the grid, are `track`."""
    values = as_working(values, name)
    kind = values.dtype.type
    return bool(kernels.is_at(values, kind(2.0**-grid), kind(limit_of(name)), track))


def to_grids(values: Array, pieces: PieceColumns, grids: Array, out: Array, name: str) -> int:
    """Round pieces of `values`, each to its grid, to the same places of `out`.

    Returns
    -------
    int
        How many were rounded before one that does not fit.
    """
    values = as_working(values, name)
    kind = values.dtype.type
    with np.errstate(over="ignore"):  # of what has no grid nothing fits
        inverses = np.ldexp(1.0, -grids.astype(np.int64)).astype(kind)
    rounded: int = kernels.to_grids(values, pieces.at, pieces.size, inverses, kind(limit_of(name)), out)
    return rounded


def from_grid(track: Array, grid: int, name: str, out: Array) -> None:
    """Fill `out` with the values that grid integers stand for, rounded once to its dtype `name`."""
    from_grids(track, PieceColumns.of([Piece(0, 0, 0, track.size)]), np.array([grid]), name, out)


def from_grids(track: Array, pieces: PieceColumns, grids: Array, name: str, out: Array) -> None:
    """Fill `out` with the values of pieces of the track, one behind another, rounded once to dtype `name`."""
    scales = np.ldexp(1.0, grids.astype(np.int64))
    where = pieces.at, pieces.size, scales
    if name == "bfloat16":
        kernels.from_grids_bfloat16(track, *where, out.view(np.uint16))
    elif name == "float16":
        wide = np.empty(out.size, np.float64)
        kernels.from_grids(track, *where, wide)
        out[:] = to_float16(wide)
    else:
        kernels.from_grids(track, *where, out)


def empty_values(count: int, name: str) -> Array:
    """Allocate `count` values of dtype `name`."""
    return np.empty(count, dtype_from_name(name))


def largest(flat: Array) -> float:
    """Return the largest magnitude of a flat tensor; infinity where one is not finite."""
    patterns = flat.view(f"u{flat.dtype.itemsize}")
    top = np.zeros(1, patterns.dtype)
    kernels.largest_pattern(patterns, (1 << (8 * flat.dtype.itemsize - 1)) - 1, top)
    found = float(top.view(flat.dtype)[0])
    return found if math.isfinite(found) else math.inf


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two flat arrays of one dtype hold the same bits."""
    if a.size != b.size:
        return False
    word = f"u{min(a.dtype.itemsize, 8)}"
    a, b = a.view(word), b.view(word)
    blocks = (slice(low, low + _AT_ONCE) for low in range(0, a.size, _AT_ONCE))
    return all(np.array_equal(a[block], b[block]) for block in blocks)
