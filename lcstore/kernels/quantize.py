"""Values to levels and back, for floats that have no track: linear, exponent and logarithmic scales.

No transcendental function is used on either side: numba's and numpy's differ in the last bit. Step sizes
have few bits, and the logarithmic scale is the float's own bit pattern, cut short.
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.jit import kernel
from lcstore.kernels.scales import step_size_of
from lcstore.kernels.status import OK, RANGE

#: Magnitude that a level must stay below.
MOST = 1 << 61


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
