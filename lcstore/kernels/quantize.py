"""Values to levels and back, for floats that have no track: linear, exponent and logarithmic scales.

No transcendental function is used on either side: numba's and numpy's differ in the last bit. Step sizes
have few bits, and the logarithmic scale is the float's own bit pattern, cut short.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK, RANGE
from lcstore.kernels.scales import step_size_of

#: Magnitude that a level must stay below.
MOST = 1 << 61
#: Parts of an octave that rules of coarse levels tell apart.
PARTS = 64
#: Sums that go on side by side, so that their order never changes and several are added to at a time.
LANES = 64
#: What a block of coarse levels may keep of itself along itself; how often its step size is halved for it.
LEAST_KEPT, MOST_KEPT, HALVINGS = 0.75, 1.5, 3
#: log2 of a step size must stay here, so that step sizes and their reciprocals are normal float64 numbers.
LEAST_EXPONENT, MOST_EXPONENT = -1022, 1000


@kernel
def linear_levels(values: Array, scales: Array, block: int, rounding: float, levels: Array) -> int:
    """Round values to multiples of their block's step size.

    Parameters
    ----------
    values
        ``float32[n]`` or ``float64[n]``.
    scales
        ``float64``, one per block: 1 / step size.
    block
        Elements per block.
    rounding
        Part of a step size added to the magnitude before it is cut: 0.5 rounds to nearest, less widens the
        zero.
    levels
        ``int64[n]``, filled.

    Returns
    -------
    int
        `OK`, or `RANGE` where a value is not finite or its level reaches `MOST`.
    """
    limit = np.float64(MOST)
    bad = 0
    for b in range(scales.size):
        scale = scales[b]
        for i in range(b * block, min((b + 1) * block, values.size)):
            size = abs(np.float64(values[i])) * scale + rounding
            if not (size < limit):
                bad += 1
                size = 0.0
            level = np.int64(size)
            levels[i] = -level if values[i] < 0 else level
    return RANGE if bad > 0 else OK


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
def _along(values: Array, down: Any, narrow: Array, lanes: Array) -> Any:
    """Return the sum of magnitudes times `down` times those of their levels, in float64."""
    kind = values.dtype.type
    lanes[:] = kind(0)
    whole = values.size // LANES * LANES
    for low in range(0, whole, LANES):
        part, levels = values[low : low + LANES], narrow[low : low + LANES]
        for j in range(LANES):
            lanes[j] += part[j] * down * kind(levels[j])
    for i in range(whole, values.size):
        lanes[i - whole] += values[i] * down * kind(narrow[i])
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
    """Choose the step size of each block by its root mean square, and round values to multiples of it.

    A block that keeps too little or too much of itself along itself is rounded to the nearest multiple of
    smaller steps: most of all one of which all values are as large.

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
        down = kind(math.ldexp(1.0, bias - octave))
        energy = _energy(some, down, lanes)
        part, power = math.frexp(energy / some.size)
        odd = power & 1
        index = odd * (PARTS // 2) + np.int64((part - 0.5) * PARTS)
        exponent: Any = octave - bias + ((power - odd) >> 1) + np.int64(shifts[index])
        exponent = min(max(exponent, LEAST_EXPONENT), MOST_EXPONENT)
        rounding = kind(roundings[index])
        hidden = (np.int64(1) << mantissa) if octave > 0 else np.int64(0)
        size = np.float64((np.int64(peak) & ((np.int64(1) << mantissa) - 1)) | hidden)
        largest = kind(math.ldexp(size, max(octave, 1) - bias - mantissa))
        first, second, top = kind(0), kind(0), kind(0)
        for left in range(HALVINGS, -1, -1):
            first = kind(math.ldexp(1.0, -(exponent >> 1)))
            second = kind(math.ldexp(1.0, (exponent >> 1) - exponent))
            top = largest * first * second + rounding
            if not (top < kind(128)):
                break
            _put(some, first, second, rounding, coded)
            kept = math.ldexp(_along(some, down, coded, lanes), exponent - (octave - bias)) / energy
            if left == 0 or LEAST_KEPT < kept < MOST_KEPT or exponent == LEAST_EXPONENT:
                break
            exponent, rounding = exponent - 1, kind(0.5)
        if not (top < kind(MOST)):
            return RANGE
        exponents[b], tops[b] = exponent, np.int64(top)
        if top < kind(128):
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


@kernel
def linear_values(levels: Array, sizes: Array, block: int, out: Array) -> int:
    """Fill ``float32`` or ``float64`` `out` with ``level * step_size``, rounded once; one per block."""
    kind = out.dtype.type
    for b in range(sizes.size):
        step_size = sizes[b]
        part, to = levels[b * block : (b + 1) * block], out[b * block : (b + 1) * block]
        for i in range(part.size):
            to[i] = kind(np.float64(part[i]) * step_size)
    return OK


@kernel
def integer_values(levels: Array, scales: Array, block: int, out: Array) -> int:
    """Fill ``int32`` or ``int64`` `out` with levels times their step sizes; an ``int16`` scale a block."""
    kind = out.dtype.type
    for b in range(scales.size):
        step_size = step_size_of(scales[b])
        part, to = levels[b * block : (b + 1) * block], out[b * block : (b + 1) * block]
        for i in range(part.size):
            to[i] = kind(np.int64(part[i]) * step_size)
    return OK


@kernel
def log_levels(patterns: Array, drop: int, top: int, block: int, bases: Array, levels: Array) -> int:
    """Cut the bit patterns of values that are not negative to a logarithmic scale, against a base per block.

    A value that is not zero never becomes zero.

    Parameters
    ----------
    patterns
        ``int32[n]`` or ``int64[n]``: the floats' bits.
    drop
        Mantissa bits cut off.
    top
        The pattern of infinity: patterns must be below it.
    block
        Elements per block.
    bases
        ``int64``, one per block; filled with the block's middle code.
    levels
        ``int64[n]``, filled: code minus base.

    Returns
    -------
    int
        `OK`, or `RANGE` where a value is negative or not finite.
    """
    half = np.int64(1) << (drop - 1)
    most = (np.int64(top) >> drop) - 1
    for b in range(bases.size):
        low, high = most, np.int64(0)
        for i in range(b * block, min((b + 1) * block, patterns.size)):
            pattern = np.int64(patterns[i])
            if pattern < 0 or pattern >= top:
                return RANGE
            code = min((pattern + half) >> drop, most)
            if pattern != 0:
                code = max(code, np.int64(1))
                low = min(low, code)
                high = max(high, code)
            levels[i] = code
        base = (low + high) >> 1 if high > 0 else np.int64(0)
        bases[b] = base
        for i in range(b * block, min((b + 1) * block, patterns.size)):
            levels[i] -= base
    return OK


@kernel
def log_values(levels: Array, drop: int, top: int, block: int, bases: Array, out: Array) -> int:
    """Fill ``int32`` or ``int64`` `out` with the bit patterns that `log_levels` stands for.

    Returns
    -------
    int
        `OK`, or `RANGE` where a code lies outside ``0 .. top``.
    """
    kind = out.dtype.type
    bad = 0
    for b in range(bases.size):
        base = bases[b]
        for i in range(b * block, min((b + 1) * block, levels.size)):
            code = np.int64(levels[i]) + base
            if code < 0 or code >= np.int64(top) >> drop:
                bad += 1
                code = 0
            out[i] = kind(code << drop)
    return RANGE if bad > 0 else OK


@kernel
def bucket_statistics(patterns: Array, mantissa: int, counts: Array, lows: Array, highs: Array) -> int:
    """Count the values of each bucket (sign and exponent) and find their smallest and largest magnitude.

    Parameters
    ----------
    patterns
        ``uint32[n]`` or ``uint64[n]``: the floats' bits.
    mantissa
        Bits of mantissa: 23 or 52.
    counts
        ``int64[buckets]``, added to.
    lows, highs
        ``int64[buckets]``: smallest and largest mantissa; filled where a count is not zero.
    """
    mask = np.uint64((1 << mantissa) - 1)
    for i in range(patterns.size):
        pattern = np.uint64(patterns[i])
        bucket = np.int64(pattern >> np.uint64(mantissa))
        rest = np.int64(pattern & mask)
        if counts[bucket] == 0:
            lows[bucket] = rest
            highs[bucket] = rest
        counts[bucket] += 1
        lows[bucket] = min(lows[bucket], rest)
        highs[bucket] = max(highs[bucket], rest)
    return OK


@kernel
def bucket_levels(patterns: Array, mantissa: int, ids: Array, levels: Array) -> int:
    """Fill the id of the bucket of each value: ``levels[i] = ids[sign and exponent]``; ``int8`` both."""
    for i in range(patterns.size):
        levels[i] = ids[np.int64(np.uint64(patterns[i]) >> np.uint64(mantissa))]
    return OK


@kernel(checked=True)
def table_values(levels: Array, values: Array, out: Array) -> int:
    """Fill `out` with ``values[level]``.

    Returns
    -------
    int
        `OK`, or `RANGE` where a level is not an index of `values`.
    """
    bad = 0
    for i in range(levels.size):
        level = np.int64(levels[i])
        if level < 0 or level >= values.size:
            bad += 1
            level = np.int64(0)
        out[i] = values[level]
    return RANGE if bad > 0 else OK


@kernel
def linear_errors(values: Array, restored: Array, out: Array) -> int:
    """Find the largest ``abs(value - restored)`` in float64; `out` is ``float64[1]``. NaN has no distance."""
    worst = 0.0
    for i in range(values.size):
        error = abs(np.float64(values[i]) - np.float64(restored[i]))
        worst = error if error > worst else worst
    out[0] = worst
    return OK
