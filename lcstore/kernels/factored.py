"""Values on a logarithmic scale around a row's factor times a column's, as second moments nearly are.

This file has the loops; `lcstore.codec.factored` has the bytes of their frames.

A value's code is its bit pattern cut to `FINE` bits of mantissa: a logarithm that every machine agrees on.
The centre of an element of a matrix is its row's code plus its column's, but no more than the last code there
is; its level says how many step sizes its own code is from there.

Codes, and sums of a few, are integers below 2**24: loops compute with them in float32, exactly, and so
several at a time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.kernels.status import OK, RANGE

#: Bits of mantissa in a code: codes count sixteenths of an octave.
FINE = 4
#: Bits of a pattern that a code does without, and the last code before that of infinity: float32, float64.
DROP_4, LAST_4 = 23 - FINE, (0xFF << FINE) - 1
DROP_8, LAST_8 = 52 - FINE, (0x7FF << FINE) - 1
#: The code of a row or a column in which every value is zero: with whatever other, no code above 0 remains.
EMPTY = -32768
#: Levels are at most this: no difference of codes is larger.
MOST = 1 << 17

_0 = np.float32(0)
_HALF = np.float32(0.5)
_1 = np.float32(1)


@kernel
def fit_codes(patterns: Array, cols: int, phase: int, rows: Array, sums: Array, counts: Array) -> int:
    """Fill the code of each row: the mean of the codes of its values, but for those that are zero.

    By how much codes differ from that of their row is added up by column while the row is in cache.

    Parameters
    ----------
    patterns
        ``int32[n]`` or ``int64[n]``: the bits of values that are not negative.
    cols, phase
        Length of a row, and where in a row the values begin.
    rows
        ``int16[ceil((phase + n) / cols)]``, filled; `EMPTY` where all values are zero.
    sums, counts
        ``int64[cols]``, added to: differences, and how many there are; zeros do not count. Both are empty
        where nobody asks for them.

    Returns
    -------
    int
        `OK`, or `RANGE` where a value is negative, infinite or not a number.
    """
    drop = DROP_4 if patterns.itemsize == 4 else DROP_8
    last = LAST_4 if patterns.itemsize == 4 else LAST_8
    for row in range(rows.size):
        low = max(row * cols - phase, 0)
        part = patterns[low : (row + 1) * cols - phase]
        least, most = _ends(part)
        if least < 0 or most >> drop > last:
            return RANGE
        total, count = np.int64(0), np.int64(0)
        for i in range(part.size):
            total += part[i] >> drop
            count += part[i] != 0
        code = (total + (count >> 1)) // count if count > 0 else np.int64(EMPTY)
        rows[row] = code
        if sums.size == 0:
            continue
        first = low + phase - row * cols
        of_column, number = sums[first : first + part.size], counts[first : first + part.size]
        for i in range(part.size):
            some_ = np.int64(part[i] != 0)
            of_column[i] += ((part[i] >> drop) - code) * some_
            number[i] += some_
    return OK


@kernel(inline=True)
def _ends(patterns: Array) -> tuple[Any, Any]:
    """Return the least and the greatest pattern; zeros of none."""
    least = most = patterns[0] if patterns.size > 0 else patterns.dtype.type(0)
    for i in range(patterns.size):
        least, most = min(least, patterns[i]), max(most, patterns[i])
    return least, most


@kernel(inline=True)
def _row_levels(
    patterns: Array, of_row: Any, columns: Array, step_size: int, threshold: int, levels: Array
) -> Any:
    """Fill the levels of a part of a row; give the zeros whose level is not 0."""
    drop = DROP_4 if patterns.itemsize == 4 else DROP_8
    last = np.float32(LAST_4 if patterns.itemsize == 4 else LAST_8)
    wide, inverse = np.float32(step_size), _1 / np.float32(step_size)
    rounding = np.float32(step_size - threshold) + _HALF  # half a code keeps the quotient away from integers
    zeros = 0
    for i in range(patterns.size):
        centre = min(of_row + np.float32(columns[i]), last)
        difference = np.float32(np.int32(patterns[i] >> drop)) - centre
        size = np.float32(np.int32((abs(difference) + rounding) * inverse))
        level = size if difference > _0 else -size
        code = centre + level * wide
        if patterns[i] == 0:
            level = (level - _1 if code > _0 else level) if centre > _0 else _0
            zeros += 1 if level != _0 else 0
        else:
            level = level + _1 if code < _1 else level
            level = level - _1 if code > last else level
        levels[i] = np.int32(level)
    return zeros


@kernel(inline=True)
def _plain_levels(
    patterns: Array, of_row: Any, columns: Array, step_size: int, threshold: int, narrow: Array
) -> None:
    """Fill the levels of a part of a row that has no zero, and whose levels are small and lead to codes."""
    drop = DROP_4 if patterns.itemsize == 4 else DROP_8
    inverse = _1 / np.float32(step_size)
    rounding = np.float32(step_size - threshold) + _HALF
    for i in range(patterns.size):
        difference = np.float32(np.int32(patterns[i] >> drop)) - (of_row + np.float32(columns[i]))
        size = np.int32((abs(difference) + rounding) * inverse)
        narrow[i] = np.int8(size if difference > _0 else np.int32(-size))


@kernel
def factored_levels(
    patterns: Array,
    phase: int,
    rows: Array,
    columns: Array,
    step_size: int,
    threshold: int,
    narrow: Array,
    escapes: Array,
    zeros: Array,
) -> int:
    """Fill the level of each value: how many step sizes its code is from its centre.

    A value of zero gets one that leads to a code of 0 or less; any other gets one that leads to a code above
    0, and to one that there is.

    Parameters
    ----------
    patterns, phase
        As in `fit_codes`.
    rows, columns
        ``int16``: codes.
    step_size, threshold
        Codes in a step size, and from which difference on a level is not 0, in the same unit.
    narrow
        ``int8[n]``, filled; -128 where the level is in `escapes`.
    escapes
        ``int64[m]``, filled as far as it goes: the levels of magnitude above 127, in order.
    zeros
        ``int64[1]``, added to: zeros whose level is not 0.

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
            _plain_levels(part, np.float32(rows[row]), of_column, step_size, threshold, to)
            continue
        if scratch.size < part.size:
            scratch = np.empty(part.size, np.int32)
        some = scratch[: part.size]
        zeros[0] += _row_levels(part, np.float32(rows[row]), of_column, step_size, threshold, some)
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
            code = min(of_row + np.float32(of_column[i]), last) + level * wide
            bad |= (abs(level) > most) | (code > last)
            code = min(max(code, _0), last)
            pattern = (kind(np.int32(code)) << drop) | half
            to[i] = kind(pattern) if code > _0 else kind(0)
    return RANGE if bad else OK
