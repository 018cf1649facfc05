"""Rows of a matrix: what is known of their sizes, and how far they are off."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK


@kernel
def note_sizes(means: Array, unit: float, floor: float, ahead: bool, size: Array, least: Array) -> int:
    """Take note of how large rows are.

    Parameters
    ----------
    means
        ``float32[r]`` or ``float64[r]``: the mean square of each row.
    unit
        Grid units of a root mean square of 1, of the means' dtype.
    floor
        Rows below this many grid units count as zero.
    ahead
        Whether rows that are shrinking are taken to shrink by as much again before they are seen again.
    size
        ``float32[r]``, changed in place: root mean squares in grid units; before, what they were, or NaN.
        Rows that are not finite become infinite.
    least
        ``float32[r]``, filled: what rows will shrink to; infinite for rows of zero, zero for those that have
        just become zero.

    Returns
    -------
    int
        How many have.
    """
    gone = 0
    infinity = np.float32(np.inf)
    for r in range(means.size):
        now = np.float32(np.sqrt(means[r]) * unit)
        if not now < infinity:
            now = infinity
        before = size[r]
        if now < floor:
            size[r] = np.float32(0)
            least[r] = infinity
            if before > 0:
                least[r] = np.float32(0)
                gone += 1
            continue
        size[r] = now
        least[r] = now
        if ahead and before > now:
            least[r] = np.float32(now * np.float32(now / before))
    return gone


@kernel
def misses(
    state: Array, track: Array, width: int, rows: Array, every: int, inverse: float, out: Array
) -> int:
    """Measure how far some rows are off.

    Parameters
    ----------
    state
        ``float32[n]`` or ``float64[n]``: the true values, row by row.
    track
        ``int32[n]`` or ``int64[n]``: what readers have of them, in grid units.
    width, every
        Elements of a row, of which one in `every` is looked at.
    rows
        ``int64[r]``: which.
    inverse
        ``2**-g``.
    out
        ``float64[r]``, filled: the relative error of each row; 0 for rows of zeros.
    """
    for k in range(rows.size):
        left, all_ = 0.0, 0.0
        low = rows[k] * width
        for i in range(low, low + width, every):
            value = np.float64(state[i]) * inverse
            miss = value - np.float64(track[i])
            left += miss * miss
            all_ += value * value
        out[k] = np.sqrt(left) / np.sqrt(all_) if all_ > 0 else 0.0  # their quotient may overflow
    return OK
