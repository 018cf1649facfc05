"""By how much rows of second moments are off: such that what was restored comes back as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK
from lcstore.kernels.factored import DROP_4, DROP_8, LANES, LAST_4, LAST_8, lane_sum, row_levels

#: Bits of a pattern below those of its code that tell how far a value is off.
_FINER = 8
#: Values lie whole steps apart if they do so but for this part of a step, the root of the mean square.
_AGREE = 1 / 8
#: A row comes down by whole steps where one in so many of its values would come back too large at least.
_LOST = 4
_0 = np.float32(0)
_HALF = np.float32(0.5)
_1 = np.float32(1)


@kernel
def offsets(
    patterns: Array,
    rows: Array,
    columns: Array,
    known: Array,
    step_size: int,
    threshold: int,
    below: int,
    beside: Array,
    off: Array,
) -> int:
    """Fill by how many codes each row is too high.

    Values that were restored lie nearly whole steps apart. Then it is how far the row is from where all of
    them come back as they are. Otherwise its values come back too large by so many codes, in the mean; zeros
    count for nothing, nor does what may come back larger: it lies `threshold` to `below` under its centre.

    Parameters
    ----------
    patterns
        The bits of values as in `fit_roots`: those of one row after the other.
    rows, columns
        ``float32``: codes, whole or not.
    known
        ``float32``, one per column: by how many codes it is known to be too high.
    step_size, threshold, below
        As in `factored_levels`.
    beside, off
        ``float64``, one per row, filled: one of the two is 0, and both where all values are zero.
    """
    drop = (DROP_4 if patterns.itemsize == 4 else DROP_8) - _FINER
    last = np.float32(LAST_4 if patterns.itemsize == 4 else LAST_8)
    down, wide, above = np.float32(2.0**-_FINER), np.float32(step_size), np.float32(threshold)
    cols, lanes = columns.size, np.empty(LANES, np.float32)
    levels = np.empty(cols, np.int32)
    more, apart, squares = np.empty(cols, np.float32), np.empty(cols, np.float32), np.empty(cols, np.float32)
    for row in range(rows.size):
        part = patterns[row * cols : (row + 1) * cols]
        row_levels(part, rows[row], columns, step_size, threshold, below, levels)
        count = np.int64(0)
        for i in range(cols):
            level = np.float32(levels[i])
            steps = level + _1 if level < _0 else level
            centre = min(rows[row] + columns[i], last)
            left = centre - np.float32(np.int32(part[i] >> drop)) * down
            back = left + steps * wide + _HALF  # what is restored lies amid its code
            counts = part[i] != 0
            more[i] = back if (steps != _0) | (back < above) else _0
            more[i] = more[i] - known[i] if counts else _0
            apart[i] = left - known[i]
            count += part[i] != 0
        beside[row] = off[row] = 0.0
        if count == 0:
            continue
        one = 0
        while part[one] == 0:
            one += 1
        first = apart[one]
        for i in range(cols):
            between = apart[i] - first
            between -= wide * np.floor(between / wide + _HALF)
            apart[i] = between if part[i] != 0 else _0
            squares[i] = apart[i] * apart[i]
        mean = lane_sum(apart, lanes) / count
        if lane_sum(squares, lanes) / count - mean * mean < (_AGREE * step_size) ** 2:
            high = first + mean + 0.5
            high -= step_size * np.floor(high / step_size + 0.5)
            lost = _lost_steps(part, rows[row], columns, known, high, step_size, below)
            beside[row] = high + step_size * lost
        else:
            off[row] = lane_sum(more, lanes) / count
    return OK


@kernel(inline=True)
def _lost_steps(
    part: Array, of_row: Any, columns: Array, known: Array, high: float, step_size: int, below: int
) -> float:
    """Return by how many whole steps a row is too high for each value to come back as it is.

    A value one step under its centre comes back as the centre. Saved from there again, it is one step under
    the next one: a row with a single value grew by a step each time. A few of many do not take the row with
    them, and the others would need a level above zero each.
    """
    drop = (DROP_4 if part.itemsize == 4 else DROP_8) - _FINER
    last = np.float32(LAST_4 if part.itemsize == 4 else LAST_8)
    down = np.float32(2.0**-_FINER)
    most = 0.0
    count, lost = 0, 0
    for i in range(part.size):
        if part[i] == 0:
            continue
        count += 1
        under = (
            min(of_row + columns[i], last) - np.float32(np.int32(part[i] >> drop)) * down - known[i] - high
        )
        steps = np.floor(under / step_size + 0.5)
        if steps > 0:
            most = max(most, steps)
            lost += steps * step_size < below
    return most if lost and _LOST * lost >= count else 0.0
