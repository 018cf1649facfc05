"""Samples of tensors, and sums over them: so short that calls of numpy would take longer than the work."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK

#: Sums of squares above this, and below its reciprocal, lost nothing.
_SAFE = 2.0**-900


@kernel
def gather(values: Array, places: Array, out: Array) -> int:
    """Fill ``float64[n]`` `out` with `values`, floats or integers, at ``int64[n]`` `places`."""
    for i in range(places.size):
        out[i] = np.float64(values[places[i]])
    return OK


@kernel
def cross(values: Array, phase: int, apart: Array, by_row: Array, by_column: Array) -> int:
    """Take some columns and some rows of a matrix, in one pass: column after column would read it many times.

    Parameters
    ----------
    values, phase
        Integers, and where in a row of the matrix they begin.
    apart
        ``int64[2]``: how far the columns that are taken lie apart, and the rows; from the first on.
    by_row, by_column
        ``[rows, some]`` and ``[cols, few]`` of the dtype of values, filled: those of each row in the columns
        that are taken, and those of each column in the rows. What the first row and the last one lack is 0.
    """
    cols, nothing = by_column.shape[0], values.dtype.type(0)
    for row in range(by_row.shape[0]):
        low = row * cols - phase
        for place in range(by_row.shape[1]):
            at = low + place * apart[0]
            by_row[row, place] = values[at] if 0 <= at < values.size else nothing
    for place in range(by_column.shape[1]):
        low = place * apart[1] * cols - phase
        for column in range(cols):
            at = low + column
            by_column[column, place] = values[at] if 0 <= at < values.size else nothing
    return OK


@kernel(inline=True)
def _squares(values: Array) -> float:
    """Sum up the squares, every fourth in a sum of its own: none waits for the last one."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    whole = values.size & ~3
    for i in range(0, whole, 4):
        a += values[i] * values[i]
        b += values[i + 1] * values[i + 1]
        c += values[i + 2] * values[i + 2]
        d += values[i + 3] * values[i + 3]
    for i in range(whole, values.size):
        a += values[i] * values[i]
    return (a + b) + (c + d)


@kernel(inline=True)
def _rms(values: Array) -> float:
    total = _squares(values)
    if _SAFE < total < 1 / _SAFE:
        return float(np.sqrt(total / values.size))
    top, total = 0.0, 0.0
    for i in range(values.size):
        top = max(top, abs(values[i]))
    if top == 0:
        return 0.0
    for i in range(values.size):
        part = values[i] / top
        total += part * part
    return top * float(np.sqrt(total / values.size))


@kernel
def root_mean_square(values: Array, out: Array) -> int:
    """Find the root mean square of ``float64[n]`` `values`; 0 for nothing. Squares do not overflow or vanish.

    Parameters
    ----------
    values
        Values of any magnitude.
    out
        ``float64[1]``, filled.
    """
    out[0] = _rms(values)
    return OK


@kernel
def residuals(track: Array, places: Array, unit: float, now: Array, before: Array, out: Array) -> int:
    """Sum up what a sample's changes were, and what is left of them.

    Parameters
    ----------
    track
        ``int32`` or ``int64``: the grid integers of a tensor.
    places, now, before
        ``int64[n]``: where it is sampled; ``float64[n]``: what was there at this save and at the one before.
    unit
        The unit of the grid.
    out
        ``float64[3]``, filled: the sums of ``left * left``, ``moved * moved`` and ``left * moved``.
    """
    has = np.empty(places.size)  # first: beside sums, few of them would be on their way from memory at once
    gather(track, places, has)
    error, change, along = 0.0, 0.0, 0.0
    for i in range(has.size):
        left = now[i] - has[i] * unit
        moved = now[i] - before[i]
        error += left * left
        change += moved * moved
        along += left * moved
    out[0], out[1], out[2] = error, change, along
    return OK


@kernel
def shares(change: Array, starts: Array, top: float, hold: float, least: float, held: Array) -> int:
    """Find the root mean square of each part of a sample, as a share of the whole one's.

    Parameters
    ----------
    change
        ``float64[n]``: the sample.
    starts
        ``int64[parts]``: where each part begins, rising from 0.
    top
        The root mean square of the whole, above 0.
    hold
        What a share falls to at most, as a part of what it was.
    least
        Shares below this are counted.
    held
        ``float64[parts]``: the shares, at most 1; changed in place.

    Returns
    -------
    int
        How many shares are below `least`.
    """
    below = 0
    for p in range(starts.size):
        end = starts[p + 1] if p + 1 < starts.size else change.size
        share = min(_rms(change[starts[p] : end]) / top, 1.0)
        held[p] = max(share, hold * held[p])
        below += held[p] < least
    return below


@kernel
def follow_mean(change: Array, scale: float, taken: float, mean: Array, moved: Array, out: Array) -> int:
    """Compare a sample's change, made as long as all others, with the mean of those before, and let it in.

    Parameters
    ----------
    change, scale
        ``float64[n]``, and what it is divided by.
    taken
        How much of it the mean takes in.
    mean
        ``float64[n]``: of the changes before.
    moved
        ``float64[n]``, filled: the mean with this change.
    out
        ``float64[1]``, filled: the sum of the products of the change and the mean before.
    """
    along = 0.0
    for i in range(change.size):
        one = change[i] / scale
        along += mean[i] * one
        moved[i] = mean[i] + taken * (one - mean[i])
    out[0] = along
    return OK
