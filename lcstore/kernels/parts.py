"""Deltas of one piece on several steps, in one call."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.digest import weight
from lcstore.kernels.grid import ESCAPE, MAX_LEVEL, Quantizer, advance, clear
from lcstore.kernels.ints import shift_right, wrap_add, wrap_mul, wrap_sub
from lcstore.kernels.jit import kernel
from lcstore.kernels.status import RANGE, SPACE

#: Parts of fewer elements are coded here: `advance` is made for long runs, and would take long to begin.
SHORT = 256


@kernel(inline=True)
def _advance_short(
    state: Array,
    track: Array,
    levels: Array,
    escapes: Array,
    escaped: int,
    by: Quantizer,
    start: int,
    out: Array,
) -> int:
    """Do what `advance` does where sums are not made even, for one run."""
    real, kind = state.dtype.type, track.dtype.type
    bad, top = np.int32(0), kind(0)
    sign_bit = kind(8 * track.itemsize - 1)
    for i in range(state.size):
        scaled = state[i] * by.inverse
        bad = np.int32(bad | np.int32(not (abs(scaled) <= by.limit)))
        exact = real(real(wrap_sub(kind(np.rint(scaled)), track[i])) * by.gain)
        level = kind(exact + np.copysign(by.rounding, exact))
        sign = shift_right(level, sign_bit)
        top = kind(top | wrap_sub(kind(level ^ sign), sign))
        levels[i] = np.int8(level)
    if bad != 0:
        clear(levels)
        return RANGE
    total = np.uint64(0)
    if top <= MAX_LEVEL:
        factor = kind(by.step)
        for i in range(state.size):
            track[i] = wrap_add(track[i], wrap_mul(kind(levels[i]), factor))
            total += weight(np.uint64(start + i)) * np.uint64(np.int64(levels[i]))
        total *= np.uint64(by.step)
    else:
        if escaped + state.size > escapes.size:
            clear(levels)
            return SPACE
        for i in range(state.size):
            difference = np.int64(np.rint(state[i] * by.inverse)) - np.int64(track[i])
            size = abs(difference)
            far = np.int64(np.float64(size) * by.gain + by.rounding)
            if far > MAX_LEVEL:
                far = max(np.int64(MAX_LEVEL + 1), (size + (by.step >> 1)) // by.step)
            signed = far if difference >= 0 else -far
            levels[i] = np.int8(signed)
            if far > MAX_LEVEL:
                levels[i] = ESCAPE
                escapes[escaped] = signed
                escaped += 1
            move = signed * by.step
            track[i] = kind(np.int64(track[i]) + move)
            total += weight(np.uint64(start + i)) * np.uint64(move)
    out[0] += total
    return escaped


@kernel
def advance_parts(
    parts: Array,
    units: Array,
    gains: Array,
    roundings: Array,
    evens: Array,
    state: Array,
    track: Array,
    levels: Array,
    escapes: Array,
    escaped: int,
    inverse: float,
    limit: float,
    start: int,
    out: Array,
) -> int:
    """Code parts of a piece, each on a step of its own, as `advance` does a whole one; no more is looked at.

    Parameters
    ----------
    parts
        ``int64[p, 2]``: first element and the one behind the last, rising and apart.
    units, gains, roundings, evens
        ``int64[p]``, twice ``[p]`` of the state's dtype, ``bool[p]``: of each part what `advance` takes of a
        step.
    levels
        Not changed outside the parts.

    Returns
    -------
    int
        As `advance` does.
    """
    for p in range(parts.shape[0]):
        low, high = parts[p, 0], parts[p, 1]
        values, grid, coded = state[low:high], track[low:high], levels[low:high]
        by = Quantizer(inverse, limit, units[p], gains[p], roundings[p], evens[p])
        if high - low < SHORT and not evens[p]:
            escaped = _advance_short(values, grid, coded, escapes, escaped, by, start + low, out)
        else:
            escaped = advance(values, grid, coded, escapes, escaped, by, start + low, out)
        if escaped < 0:
            return escaped
    return escaped
