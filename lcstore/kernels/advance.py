"""The fused pass over a tensor on its integer grid: delta, level, move, digest.

One pass reads the state and the track, writes a level per element and moves the track by exactly what a
reader will add, the level times the step size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.ints import wrap_add, wrap_mul, wrap_sub
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import RANGE, SPACE
from lcstore.kernels.digest import digest_from, weight
from lcstore.kernels.grid import RUN

#: In a level buffer: the level is in the list of escapes.
ESCAPE = np.int8(-128)
#: The largest magnitude that a level buffer holds itself.
MAX_LEVEL = 127


class Quantizer(NamedTuple):
    """What makes a level of a value and its track.

    Attributes
    ----------
    inverse
        ``2**-g``, of the state's dtype.
    limit
        Largest magnitude allowed on the grid, of the state's dtype.
    step_size
        Grid units of a level.
    gain, rounding
        Of the state's dtype. The level is the whole part of ``size * gain + rounding``, where that is at most
        127; larger ones are rounded to nearest. Values too large to be exact in that dtype may come out a
        level off: the track knows, and the next delta makes up for it.
    """

    inverse: float
    limit: float
    step_size: int
    gain: float
    rounding: float


@kernel(inline=True)
def _quantize(
    state: Array,
    track: Array,
    levels: Array,
    by: Quantizer,
    kind: Any,
) -> Any:
    """Fill the levels of one run; give a bound of their magnitudes, or -1 where a value is off the grid."""
    top = kind(0)
    real = state.dtype.type
    bad = False
    for i in range(state.size):
        scaled = state[i] * by.inverse
        bad |= not (abs(scaled) <= by.limit)
        difference = wrap_sub(kind(np.rint(scaled)), track[i])
        exact = real(real(difference) * by.gain)
        level = kind(exact + np.copysign(by.rounding, exact))
        top = kind(top | (level if level >= 0 else wrap_sub(kind(0), level)))
        levels[i] = np.int8(level)
    return kind(-1) if bad else top


@kernel(inline=True)
def _move(track: Array, levels: Array, factor: Any, start: np.uint64, kind: Any) -> np.uint64:
    """Move one run of the track; give the digest of its levels."""
    for i in range(track.size):
        track[i] = wrap_add(track[i], wrap_mul(kind(levels[i]), factor))
    return digest_from(levels, 0, levels.size, start)


@kernel(inline=True)
def _move_far(
    state: Array,
    track: Array,
    levels: Array,
    escapes: Array,
    escaped: int,
    by: Quantizer,
    start: np.uint64,
    kind: Any,
) -> tuple[int, np.uint64]:
    """Do both for a run with levels of any size; return the escapes in use and the digest of the moves."""
    total = np.uint64(0)
    for i in range(state.size):
        difference = np.int64(np.rint(state[i] * by.inverse)) - np.int64(track[i])
        level = np.int64(np.float64(abs(difference)) * by.gain + by.rounding)
        if level > MAX_LEVEL:
            level = max(np.int64(MAX_LEVEL + 1), (abs(difference) + (by.step_size >> 1)) // by.step_size)
        signed = level if difference >= 0 else -level
        levels[i] = np.int8(signed)
        if level > MAX_LEVEL:
            levels[i] = ESCAPE
            escapes[escaped] = signed
            escaped += 1
        moved = signed * by.step_size
        track[i] = kind(np.int64(track[i]) + moved)
        total += weight(start + np.uint64(i)) * np.uint64(moved)
    return escaped, total


@kernel(inline=True)
def _clear(levels: Array) -> None:
    """Fill the levels of a run that is not moved: zeros."""
    for i in range(levels.size):
        levels[i] = np.int8(0)


@kernel(inline=True)
def _advance_run(
    state: Array,
    track: Array,
    levels: Array,
    escapes: Array,
    escaped: int,
    by: Quantizer,
    start: np.uint64,
    out: Array,
) -> int:
    """Code one run, as `advance` does a piece."""
    kind = track.dtype.type
    top = _quantize(state, track, levels, by, kind)
    if top < 0:
        _clear(levels)
        return RANGE
    if top <= MAX_LEVEL:
        out[0] += _move(track, levels, kind(by.step_size), start, kind) * np.uint64(by.step_size)
        return escaped
    if escaped + state.size > escapes.size:
        _clear(levels)
        return SPACE
    escaped, moved = _move_far(state, track, levels, escapes, escaped, by, start, kind)
    out[0] += moved
    return escaped


@kernel
def advance(
    parts: Array,
    sizes: Array,
    gains: Array,
    roundings: Array,
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
    """Code parts of one piece of a tensor against its track, and move the track to what a reader will have.

    Parameters
    ----------
    parts
        ``int64[p, 3]``: first element, the one behind the last, and the place of the step size; rising and
        apart. No other element is looked at.
    sizes, gains, roundings
        ``int64[s]``, and twice ``[s]`` of the state's dtype: the step sizes, as in `Quantizer`.
    state
        ``float32[n]`` or ``float64[n]``: the true values.
    track
        ``int32[n]`` or ``int64[n]``: changed in place.
    levels
        ``int8[n]``, filled in the parts; `ESCAPE` where the level is in `escapes`.
    escapes, escaped
        ``int64[m]`` and how many of it are in use already.
    inverse, limit
        As in `Quantizer`.
    start
        Position of the first element inside its tensor.
    out
        ``uint64[1]``: digest of the moves, added to.

    Returns
    -------
    int
        Escapes in use, or `RANGE` (a value is not finite or outside the grid) or `SPACE`. Either way levels
        say what was moved: those of the run that was not are zero, and those behind it are left.
    """
    for p in range(parts.shape[0]):
        which = parts[p, 2]
        by = Quantizer(inverse, limit, sizes[which], gains[which], roundings[which])
        for low in range(parts[p, 0], parts[p, 1], RUN):
            run = slice(low, min(low + RUN, parts[p, 1]))
            escaped = _advance_run(
                state[run], track[run], levels[run], escapes, escaped, by, np.uint64(start + low), out
            )
            if escaped < 0:
                return escaped
    return escaped
