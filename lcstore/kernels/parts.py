"""Deltas of one piece on several steps, in one call."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.advance import MAX_LEVEL, Quantizer, advance, clear, move, move_far, quantize
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
    kind, first = track.dtype.type, np.uint64(start)
    top = quantize(state, track, levels, by, kind)
    if top < 0:
        clear(levels)
        return RANGE
    if top <= MAX_LEVEL:
        out[0] += move(track, levels, kind(by.step), first, kind) * np.uint64(by.step)
        return escaped
    if escaped + state.size > escapes.size:
        clear(levels)
        return SPACE
    escaped, total = move_far(state, track, levels, escapes, escaped, by, first, kind)
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
