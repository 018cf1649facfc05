"""Values to levels at few bits each: every block has a step size and a threshold by its root mean square.

A block is gone over three times while it is in the nearest cache, and once in memory.
`lcstore.edges.unbiased` says which step size and which threshold a root mean square asks for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.jit import kernel
from lcstore.kernels.status import RANGE

#: Parts of an octave that rules tell apart.
PARTS = 64
#: Sums that go on side by side, so that their order never changes and several are added to at a time.
LANES = 64
#: Magnitude that a level must stay below.
_LEVELS = 1 << 61
#: log2 of a step size must stay here, so that step sizes and their reciprocals are normal float64 numbers.
LEAST, MOST = -1022, 1000


@kernel(inline=True)
def _energy(values: Array, down: Any, lanes: Array) -> Any:
    """Return the sum of the squares of values times `down`, in float64."""
    lanes[:] = values.dtype.type(0)
    whole = values.size // LANES * LANES
    for low in range(0, whole, LANES):
        part = values[low : low + LANES]
        for j in range(LANES):
            size = part[j] * down
            lanes[j] += size * size
    for i in range(whole, values.size):
        size = values[i] * down
        lanes[i - whole] += size * size
    total = 0.0
    for j in range(LANES):
        total += np.float64(lanes[j])
    return total


@kernel(inline=True)
def _put(values: Array, first: Any, second: Any, rounding: Any, narrow: Array) -> None:
    """Fill levels that are all small."""
    zero = values.dtype.type(0)
    for i in range(values.size):
        level = np.int32(abs(values[i]) * first * second + rounding)
        narrow[i] = np.int8(np.int32(-level) if values[i] < zero else level)


@kernel
def coarse_levels(
    values: Array,
    patterns: Array,
    block: int,
    shifts: Array,
    roundings: Array,
    exponents: Array,
    narrow: Array,
    escapes: Array,
    tops: Array,
) -> int:
    """Choose the step size of each block, and round values to multiples of it.

    Parameters
    ----------
    values, patterns
        ``float32[n]`` or ``float64[n]``, and their bits as integers.
    block
        Elements per block.
    shifts, roundings
        ``int16[PARTS]`` and ``float64[PARTS]``, by where in its octave a root mean square lies: log2 of the
        step size over that of the octave's beginning, and the part of a step size that is added to a
        magnitude before it is cut.
    exponents
        ``int16``, one per block, filled: log2 of the step size; 0 where all values are zero.
    narrow
        ``int8[n]``, filled; -128 where the level is in `escapes`.
    escapes
        ``int64[m]``, filled as far as it goes: the levels of magnitude above 127, in order.
    tops
        ``int64``, one per block, filled: the largest magnitude of its levels.

    Returns
    -------
    int
        Number of such levels, even where it is more than `escapes` holds; or `RANGE` where a value is not
        finite or its level is too large for one.
    """
    kind, whole = values.dtype.type, patterns.dtype.type
    mantissa, bias = (23, 0x7F) if values.itemsize == 4 else (52, 0x3FF)
    sizes = whole((np.int64(1) << (8 * values.itemsize - 1)) - 1)  # all bits but the sign
    lanes = np.empty(LANES, kind)
    found = 0
    for b in range(exponents.size):
        low, high = b * block, min((b + 1) * block, values.size)
        some, bits, coded = values[low:high], patterns[low:high], narrow[low:high]
        peak = whole(0)
        for i in range(bits.size):
            peak = max(peak, whole(bits[i] & sizes))
        octave: Any = np.int64(peak) >> mantissa
        if octave > 2 * bias:
            return RANGE
        exponents[b], tops[b] = 0, 0
        if peak == 0:
            coded[:] = np.int8(0)
            continue
        part, power = math.frexp(_energy(some, kind(math.ldexp(1.0, bias - octave)), lanes) / some.size)
        odd = power & 1
        index = odd * (PARTS // 2) + np.int64((part - 0.5) * PARTS)
        exponent: Any = octave - bias + ((power - odd) >> 1) + np.int64(shifts[index])
        exponent = min(max(exponent, LEAST), MOST)
        first = kind(math.ldexp(1.0, -(exponent >> 1)))
        second = kind(math.ldexp(1.0, (exponent >> 1) - exponent))
        rounding = kind(roundings[index])
        hidden = (np.int64(1) << mantissa) if octave > 0 else np.int64(0)
        size = np.float64((np.int64(peak) & ((np.int64(1) << mantissa) - 1)) | hidden)
        top = kind(math.ldexp(size, max(octave, 1) - bias - mantissa)) * first * second + rounding
        if not (top < kind(_LEVELS)):
            return RANGE
        exponents[b], tops[b] = exponent, np.int64(top)
        if top < kind(128):
            _put(some, first, second, rounding, coded)
            continue
        for i in range(some.size):
            level = np.int64(abs(some[i]) * first * second + rounding)
            level = -level if some[i] < kind(0) else level
            small = -128 < level < 128
            coded[i] = np.int8(level if small else -128)
            if not small and found < escapes.size:
                escapes[found] = level
            found += 0 if small else 1
    return found
