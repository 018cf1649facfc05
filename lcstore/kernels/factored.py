"""Values on a logarithmic scale around a row's factor times a column's, as second moments nearly are.

This file has the loops; `lcstore.codec.factored` has the bytes of their frames.

A value's code is its bit pattern cut to `FINE` bits of mantissa: a logarithm that every machine agrees on.
The centre of an element of a matrix is its row's code plus its column's, but no more than the last code there
is; its level says how many step sizes its own code is from there. Level `ZERO` is for zeros, so levels of
what lies below its centre are one less.

Codes, and sums of a few, are integers below 2**24: loops compute with them in float32, exactly, and so
several at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.escapes import any_past
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK, RANGE

#: Bits of mantissa in a code: codes count sixteenths of an octave.
FINE = 4
#: Bits of a pattern that a code does without, and the last code before that of infinity: float32, float64.
DROP_4, LAST_4 = 23 - FINE, (0xFF << FINE) - 1
DROP_8, LAST_8 = 52 - FINE, (0x7FF << FINE) - 1
#: The code of 1.
ONE_4, ONE_8 = 127 << FINE, 1023 << FINE
#: The level of zeros, but for those whose centre stands for zero.
ZERO = -1
#: Levels are at most this: no difference of codes is larger.
MOST = 1 << 17

#: Sums that are made beside each other: one would wait for each addition.
LANES = 16
_0 = np.float32(0)
_HALF = np.float32(0.5)
_1 = np.float32(1)


@kernel
def fit_roots(
    values: Array, patterns: Array, cols: int, phase: int, rows: Array, sums: Array, weights: Array
) -> int:
    """Fill the mean fourth root of each row, and add up these roots by column while the row is in cache.

    Zeros do not count. What is far smaller than others hardly moves the mean of roots, where it would move
    that of logarithms; and what is far larger moves it less than that of the values.

    Parameters
    ----------
    values, patterns
        ``float32[n]`` or ``float64[n]``, and their bits: values that are not negative.
    cols, phase
        Length of a row, and where in a row the values begin.
    rows
        ``float64[ceil((phase + n) / cols)]``, filled; 0 where all values are zero.
    sums, weights
        ``[cols]`` of the dtype of values, added to: roots, and those that the rows of these have in the mean.
        Both are empty where nobody asks for them.

    Returns
    -------
    int
        How many values are not zero, or `RANGE` where one is negative, infinite or not a number.
    """
    drop = DROP_4 if patterns.itemsize == 4 else DROP_8
    last = LAST_4 if patterns.itemsize == 4 else LAST_8
    every = np.int64(0)
    kind = values.dtype.type
    scratch, lanes = np.empty(min(cols, values.size), kind), np.empty(LANES, kind)
    for row in range(rows.size):
        low = max(row * cols - phase, 0)
        part = patterns[low : (row + 1) * cols - phase]
        least, most = _ends(part)
        if least < 0 or most >> drop > last:
            return RANGE
        some, roots = values[low : low + part.size], scratch[: part.size]
        count = np.int64(0)
        for i in range(part.size):
            roots[i] = np.sqrt(np.sqrt(some[i]))
            count += part[i] != 0
        rows[row] = lane_sum(roots, lanes) / count if count > 0 else 0.0
        every += count
        if sums.size == 0:
            continue
        first, mean = low + phase - row * cols, kind(rows[row])
        of_column, weight = sums[first : first + part.size], weights[first : first + part.size]
        for i in range(part.size):
            of_column[i] += roots[i]
            weight[i] += mean if part[i] != 0 else kind(0)
    return int(every)


@kernel(inline=True)
def lane_sum(values: Array, lanes: Array) -> Any:
    """Return the sum of values, in several lanes at a time."""
    lanes[:] = values.dtype.type(0)
    whole = values.size - values.size % LANES
    for i in range(0, whole, LANES):
        for j in range(LANES):
            lanes[j] += values[i + j]
    for i in range(whole, values.size):
        lanes[i - whole] += values[i]
    total = 0.0
    for j in range(LANES):
        total += np.float64(lanes[j])
    return total


@kernel(inline=True)
def _ends(patterns: Array) -> tuple[Any, Any]:
    """Return the least and the greatest pattern; zeros of none."""
    least = most = patterns[0] if patterns.size > 0 else patterns.dtype.type(0)
    for i in range(patterns.size):
        least, most = min(least, patterns[i]), max(most, patterns[i])
    return least, most


@kernel(inline=True)
def row_levels(
    patterns: Array,
    of_row: Any,
    columns: Array,
    step_size: int,
    threshold: int,
    below: int,
    levels: Array,
) -> None:
    """Fill the levels of a part of a row."""
    drop = DROP_4 if patterns.itemsize == 4 else DROP_8
    last = np.float32(LAST_4 if patterns.itemsize == 4 else LAST_8)
    wide, inverse, least = np.float32(step_size), _1 / np.float32(step_size), np.float32(below)
    rounding = np.float32(step_size - threshold) + _HALF  # half a code keeps the quotient away from integers
    for i in range(patterns.size):
        centre = min(of_row + np.float32(columns[i]), last)
        difference = np.float32(np.int32(patterns[i] >> drop)) - centre
        size = np.float32(np.int32((abs(difference) + rounding) * inverse))
        level = size if difference > _0 else (-size if -difference >= least else _0)
        code = centre + level * wide
        level = level + _1 if code < _1 else level
        level = level - _1 if code > last else level
        level = level - _1 if level < _0 else level
        if patterns[i] == 0:
            level = np.float32(ZERO) if centre > _0 else _0
        levels[i] = np.int32(level)


@kernel(inline=True)
def _plain_levels(
    patterns: Array,
    of_row: Any,
    columns: Array,
    step_size: int,
    threshold: int,
    below: int,
    narrow: Array,
) -> None:
    """Fill the levels of a part of a row that has no zero, and whose levels are small and lead to codes."""
    drop = DROP_4 if patterns.itemsize == 4 else DROP_8
    inverse, least = _1 / np.float32(step_size), np.float32(below)
    rounding = np.float32(step_size - threshold) + _HALF
    for i in range(patterns.size):
        difference = np.float32(np.int32(patterns[i] >> drop)) - (of_row + np.float32(columns[i]))
        size = np.int32((abs(difference) + rounding) * inverse)
        low = np.int32(~size) if -difference >= least else np.int32(0)
        narrow[i] = np.int8(size if difference > _0 else low)


@kernel
def factored_levels(
    patterns: Array,
    phase: int,
    rows: Array,
    columns: Array,
    step_size: int,
    threshold: int,
    below: int,
    narrow: Array,
    escapes: Array,
) -> int:
    """Fill the level of each value: how many step sizes its code is from its centre.

    A value of zero gets `ZERO`, or 0 where the centre is 0 or less; any other gets a level that leads to a
    code above 0, and to one that there is.

    Parameters
    ----------
    patterns, phase
        The bits of values as in `fit_roots`, and where in a row they begin.
    rows, columns
        ``int16``: codes. Those of rows and columns in which every value is zero leave no centre above 0.
    step_size, threshold, below
        Codes in a step size, and from which difference on a level is not 0, in the same unit: `threshold`
        above the centre, `below` below it, where it is no less.
    narrow
        ``int8[n]``, filled; -128 where the level is in `escapes`.
    escapes
        ``int64[m]``, filled as far as it goes: the levels of magnitude above 127, in order.

    Returns
    -------
    int
        Number of such levels, even where it is more than `escapes` holds.
    """
    drop = DROP_4 if patterns.itemsize == 4 else DROP_8
    last = LAST_4 if patterns.itemsize == 4 else LAST_8
    cols, found = columns.size, 0
    left, right = _ends(columns)
    scratch = np.empty(0, np.int32)
    for row in range(rows.size):
        low = max(row * cols - phase, 0)
        part = patterns[low : (row + 1) * cols - phase]
        first, to = low + phase - row * cols, narrow[low : low + part.size]
        of_column = columns[first : first + part.size]
        least, most = _ends(part)
        centre, end = np.int64(rows[row]) + left, np.int64(rows[row]) + right
        lowest, highest = np.int64(least >> drop), np.int64(most >> drop)
        # A level leads to less than a step size from its own code.
        within = lowest > step_size and highest + step_size <= last and end <= last
        if least > 0 and within and max(highest - centre, end - lowest) <= 126 * step_size:
            _plain_levels(part, np.float32(rows[row]), of_column, step_size, threshold, below, to)
            continue
        if scratch.size < part.size:
            scratch = np.empty(part.size, np.int32)
        some = scratch[: part.size]
        row_levels(part, np.float32(rows[row]), of_column, step_size, threshold, below, some)
        for i in range(part.size):
            if -128 < some[i] < 128:
                to[i] = np.int8(some[i])
                continue
            if found < escapes.size:
                to[i] = np.int8(-128)
                escapes[found] = some[i]
            found += 1
    return found


@kernel
def arrange_rows(levels: Array, first: int, order: Array, segment: int) -> int:
    """Take the levels of rows in another order, of those that are there whole and lie in one segment.

    Parameters
    ----------
    levels
        ``int8[n]``, changed in place: those of neighbours, of which the first begins a segment.
    first
        Where the first row begins that is there whole.
    order
        ``uint32[cols]``: for each place in a row, that of the level which goes there.
    segment
        Elements of a segment.

    Returns
    -------
    int
        `OK`.
    """
    cols = order.size
    scratch = np.empty(cols, np.int8)
    for low in range(first, levels.size - cols + 1, cols):
        whole = low // segment == (low + cols - 1) // segment
        if not whole or not any_past(levels, low, low + cols, np.int8(0)):
            continue
        for i in range(cols):
            scratch[i] = levels[low + i]
        for i in range(cols):
            levels[low + i] = scratch[order[i]]
    return OK


@kernel
def factored_values(
    levels: Array, start: int, rows: Array, columns: Array, step_size: int, out: Array
) -> int:
    """Fill ``int32`` or ``int64`` `out` with the bit patterns that levels stand for, the middle of a code.

    Parameters
    ----------
    levels
        Those of neighbours in a matrix.
    start
        Place of the first, counted from the beginning of the first row of `rows`.
    rows, columns, step_size
        As in `factored_levels`.

    Returns
    -------
    int
        `OK`, or `RANGE` where a level is too large, or leads past the last code.
    """
    kind = out.dtype.type
    drop = DROP_4 if out.itemsize == 4 else DROP_8
    last = np.float32(LAST_4 if out.itemsize == 4 else LAST_8)
    half = np.int64(1) << (drop - 1)
    cols, wide, most = columns.size, np.float32(step_size), np.float32(MOST)
    bad: np.bool_ = np.bool_(False)
    for row in range(start // cols, min((start + levels.size - 1) // cols + 1, rows.size)):
        low = max(row * cols - start, 0)
        part = levels[low : (row + 1) * cols - start]
        first, of_row, to = low + start - row * cols, np.float32(rows[row]), out[low : low + part.size]
        of_column = columns[first : first + part.size]
        for i in range(part.size):
            level = np.float32(part[i])
            steps = level + _1 if level < _0 else level
            code = min(of_row + np.float32(of_column[i]), last) + steps * wide
            bad |= (abs(level) > most) | (code > last)
            code = min(max(code, _0), last)
            pattern = (kind(np.int32(code)) << drop) | half
            to[i] = kind(pattern) if (code > _0) & (part[i] != ZERO) else kind(0)
    return RANGE if bad else OK
