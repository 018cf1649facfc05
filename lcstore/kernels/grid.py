"""The fused pass over a tensor on its integer grid: delta, level, move, digest; and the way back.

A tracked value is an integer `n` that stands for ``n * 2**g``. One pass reads the state and the track, writes
a level per element and moves the track by exactly what a reader will add, the level times the step.
Additions wrap, so any order of any deltas gives the same integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.bits import copy
from lcstore.kernels.digest import weight
from lcstore.kernels.ints import shift_right, wrap_add, wrap_mul, wrap_sub
from lcstore.kernels.jit import kernel
from lcstore.kernels.scales import step_of
from lcstore.kernels.status import OK, RANGE, SPACE

#: Elements that are worked on at a time: state, track and levels of one run stay in the first-level cache.
RUN = 1024
#: In a level buffer: the level is in the list of escapes.
ESCAPE = np.int8(-128)
#: The smallest normal bfloat16, and a float64 whose last place is that of the subnormal ones.
_NORMAL, _SUBNORMAL_STEPS = 2.0**-126, 1.5 * 2.0 ** (52 - 133)
#: Parts of a level that the costs of moving one are told apart by.
_COST = 128
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
    step
        Grid units of a level.
    gain, rounding
        Of the state's dtype. The level is the whole part of ``size * gain + rounding``, where that is at most
        127; larger ones are rounded to nearest. Values too large to be exact in that dtype may come out a
        level off: the track knows, and the next delta makes up for it.
    even
        Make the sum of each four neighbours even: the four levels are then a point of the lattice D4, which
        takes 0.06 bit less for the same error (Conway and Sloane, "Fast quantizing and decoding algorithms
        for lattice quantizers and codes", 1982). Runs with a level of 127 or more are left as they are.
    """

    inverse: float
    limit: float
    step: int
    gain: float
    rounding: float
    even: bool


@kernel(inline=True)
def _levels(
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
    sign_bit = kind(8 * track.itemsize - 1)
    for i in range(state.size):
        scaled = state[i] * by.inverse
        bad |= not (abs(scaled) <= by.limit)
        difference = wrap_sub(kind(np.rint(scaled)), track[i])
        exact = real(real(difference) * by.gain)
        level = kind(exact + np.copysign(by.rounding, exact))
        sign = shift_right(level, sign_bit)
        top = kind(top | wrap_sub(kind(level ^ sign), sign))
        levels[i] = np.int8(level)
    return kind(-1) if bad else top


@kernel(inline=True)
def _levels_and_costs(
    state: Array,
    track: Array,
    levels: Array,
    costs: Array,
    moves: Array,
    by: Quantizer,
    kind: Any,
) -> Any:
    """Do as `_levels`; fill also how far the nearer neighbour of each level is, and 1 or -1: up or down."""
    top = kind(0)
    real = state.dtype.type
    bad = False
    sign_bit = kind(8 * track.itemsize - 1)
    for i in range(state.size):
        scaled = state[i] * by.inverse
        bad |= not (abs(scaled) <= by.limit)
        difference = wrap_sub(kind(np.rint(scaled)), track[i])
        sign = shift_right(difference, sign_bit)
        size = real(abs(real(real(difference) * by.gain)) + by.rounding)
        level = kind(size)
        top = kind(top | level)
        part = real(size - real(level))
        inward = (level != kind(0)) & (part < real(0.5))
        costs[i] = np.uint8(kind((part if inward else real(real(1) - part)) * real(_COST)))
        levels[i] = np.int8(wrap_sub(kind(level ^ sign), sign))
        moves[i] = np.int8(kind(kind(sign ^ (kind(-1) if inward else kind(0))) | kind(1)))
    return kind(-1) if bad else top


@kernel(inline=True)
def _keyed(costs: Any, place: int) -> Any:
    """Give one of four costs, and its place in the low two bits."""
    cost = np.uint32((costs >> np.uint32(8 * place)) & np.uint32(255))
    return np.uint32(np.uint32(cost << np.uint32(2)) | np.uint32(place))


@kernel(inline=True)
def _make_even(levels: Array, costs: Array, moves: Array) -> None:
    """Move, in each four levels whose sum is odd, the one that is cheapest to move; the first of equal ones.

    Four bytes make a word here, the first one lowest: numba knows no machine where it is not.
    """
    for g in range(levels.size):
        four, cost = levels[g], costs[g]
        first, second = _keyed(cost, 0), _keyed(cost, 1)
        third, fourth = _keyed(cost, 2), _keyed(cost, 3)
        least = min(min(first, second), min(third, fourth))
        place = np.uint32((least & np.uint32(3)) << np.uint32(3))
        old = np.uint32((four >> place) & np.uint32(255))
        moved = np.uint32(np.uint32(old + (moves[g] >> place)) & np.uint32(255))
        halves = four ^ (four >> np.uint32(16))
        odd = np.uint32((halves ^ (halves >> np.uint32(8))) & np.uint32(1))
        levels[g] = four ^ np.uint32(np.uint32((old ^ moved) << place) * odd)


@kernel(inline=True)
def _move(track: Array, levels: Array, factor: Any, start: np.uint64, kind: Any) -> np.uint64:
    """Move one run of the track; give the digest of its levels."""
    total = np.uint64(0)
    for i in range(track.size):
        track[i] = wrap_add(track[i], wrap_mul(kind(levels[i]), factor))
        total += weight(start + np.uint64(i)) * np.uint64(np.int64(levels[i]))
    return total


@kernel(inline=True)
def clear(levels: Array) -> None:
    """Say of a run that it was not moved."""
    for i in range(levels.size):
        levels[i] = np.int8(0)


@kernel
def advance(
    state: Array,
    track: Array,
    levels: Array,
    escapes: Array,
    escaped: int,
    by: Quantizer,
    start: int,
    out: Array,
) -> int:
    """Code one piece of a tensor against its track, and move the track to what a reader will have.

    Parameters
    ----------
    state
        ``float32[n]`` or ``float64[n]``: the true values.
    track
        ``int32[n]`` or ``int64[n]``: changed in place.
    levels
        ``int8[n]``, filled; `ESCAPE` where the level is in `escapes`.
    escapes, escaped
        ``int64[m]`` and how many of it are in use already.
    by
        How levels are made.
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
    n = state.size
    total = np.uint64(0)
    kind = track.dtype.type
    made, costs, moves = np.empty(RUN, np.int8), np.empty(RUN, np.uint8), np.empty(RUN, np.int8)
    words, cost_words, move_words = made.view(np.uint32), costs.view(np.uint32), moves.view(np.uint32)
    for low in range(0, n, RUN):
        high = min(low + RUN, n)
        values, grid, coded = state[low:high], track[low:high], levels[low:high]
        if by.even:
            top = _levels_and_costs(values, grid, made, costs, moves, by, kind)
        else:
            top = _levels(values, grid, coded, by, kind)
        if top < 0:
            clear(coded)
            out[0] += total
            return RANGE
        first = np.uint64(start + low)
        if by.even:
            if top < MAX_LEVEL:
                _make_even(words[: (high - low) // 4], cost_words, move_words)
            copy(made, high - low, coded, 0)
        if top <= MAX_LEVEL:
            total += _move(grid, coded, kind(by.step), first, kind) * np.uint64(by.step)
        else:
            if escaped + (high - low) > escapes.size:
                clear(coded)
                out[0] += total
                return SPACE
            for i in range(high - low):
                difference = np.int64(np.rint(values[i] * by.inverse)) - np.int64(grid[i])
                level = np.int64(np.float64(abs(difference)) * by.gain + by.rounding)
                if level > MAX_LEVEL:
                    level = max(np.int64(MAX_LEVEL + 1), (abs(difference) + (by.step >> 1)) // by.step)
                signed = level if difference >= 0 else -level
                coded[i] = np.int8(signed)
                if level > MAX_LEVEL:
                    coded[i] = ESCAPE
                    escapes[escaped] = signed
                    escaped += 1
                move = signed * by.step
                grid[i] = kind(np.int64(grid[i]) + move)
                total += weight(first + np.uint64(i)) * np.uint64(move)
    out[0] += total
    return escaped


@kernel
def advance_ranges(
    ranges: Array,
    state: Array,
    track: Array,
    levels: Array,
    escapes: Array,
    escaped: int,
    by: Quantizer,
    start: int,
    out: Array,
) -> int:
    """Code some ranges of a piece, as `advance` does a whole one; the rest is not looked at.

    Parameters
    ----------
    ranges
        ``int64[r, 2]``: first element and the one behind the last, rising and apart.
    levels
        Not changed outside the ranges.
    """
    for r in range(ranges.shape[0]):
        low, high = max(ranges[r, 0], 0), min(ranges[r, 1], state.size)
        if low >= high:
            continue
        escaped = advance(
            state[low:high],
            track[low:high],
            levels[low:high],
            escapes,
            escaped,
            by,
            start + low,
            out,
        )
        if escaped < 0:
            return escaped
    return escaped


@kernel(inline=True)
def _add(levels: Array, factor: Any, track: Array, kind: Any) -> None:
    for i in range(levels.size):
        track[i] = wrap_add(track[i], wrap_mul(kind(levels[i]), factor))


@kernel
def add_levels(levels: Array, scales: Array, block: int, sign: int, track: Array) -> int:
    """Add levels times their steps to the track.

    Parameters
    ----------
    levels
        ``int8[n]`` or ``int64[n]``; escaped places hold zero.
    scales
        ``int16``, one per block, as in a frame; the first block begins with ``levels[0]``.
    block
        Elements per block.
    sign
        1 to apply, -1 to take back.
    track
        ``int32[n]`` or ``int64[n]``, changed in place.
    """
    n = levels.size
    kind = track.dtype.type
    for b in range((n + block - 1) // block):
        low = b * block
        factor = kind(np.int64(sign) * step_of(scales[b]))
        _add(levels[low : low + block], factor, track[low : low + block], kind)
    return OK


@kernel
def to_grid(values: Array, inverse: float, limit: float, track: Array) -> int:
    """Round `values` to the grid: ``track = rint(values * 2**-g)``.

    Returns
    -------
    int
        `OK`, or `RANGE` where a value is not finite or outside the grid.
    """
    bad = np.int32(0)
    for i in range(values.size):
        scaled = values[i] * inverse
        bad = np.int32(bad | np.int32(not (abs(scaled) <= limit)))
        track[i] = track.dtype.type(np.rint(scaled))
    return RANGE if bad != 0 else OK


@kernel
def is_at(values: Array, inverse: float, limit: float, track: Array) -> bool:
    """Say whether ``rint(values * 2**-g)`` is the track; reads no further than the run where it is not.

    What is not finite, or beyond `limit` on the grid, is not.
    """
    kind = track.dtype.type
    for low in range(0, values.size, RUN):
        high = min(low + RUN, values.size)
        state, grid = values[low:high], track[low:high]
        other = np.int32(0)
        for i in range(high - low):
            scaled = state[i] * inverse
            outside = np.int32(not (abs(scaled) <= limit))
            other = np.int32(other | outside | np.int32(kind(np.rint(scaled)) != grid[i]))
        if other != 0:
            return False
    return True


@kernel
def from_grid(track: Array, scale: float, out: Array) -> int:
    """Give the values that the track stands for, rounded once to the dtype of `out` (float32 or float64)."""
    for i in range(track.size):
        out[i] = out.dtype.type(np.float64(track[i]) * scale)
    return OK


@kernel
def from_grid_bfloat16(track: Array, scale: float, out: Array) -> int:
    """Give the values as bfloat16 bit patterns (``uint16``), rounded once, to nearest with ties to even."""
    buffer = np.empty(1, np.float64)
    bits = buffer.view(np.uint64)
    single = np.empty(1, np.float32)
    pattern = single.view(np.uint32)
    drop = np.uint64(45)
    half = np.uint64((1 << 44) - 1)
    fine = scale < _NORMAL
    for i in range(track.size):
        value = np.float64(track[i]) * scale
        if fine and abs(value) < _NORMAL:
            # Below the normal numbers the last place stays where it is: adding rounds to it.
            value = np.copysign((value + _SUBNORMAL_STEPS) - _SUBNORMAL_STEPS, value)
        buffer[0] = value
        odd = (bits[0] >> drop) & np.uint64(1)
        bits[0] = ((bits[0] + half + odd) >> drop) << drop
        single[0] = np.float32(buffer[0])
        out[i] = np.uint16(pattern[0] >> np.uint32(16))
    return OK


@kernel
def magnitude(values: Array, out: Array) -> int:
    """Find the largest magnitude of `values`.

    Parameters
    ----------
    values
        Floats.
    out
        ``float64[1]``: the largest magnitude; infinity where a value is not finite.
    """
    top = values.dtype.type(0)
    infinity = values.dtype.type(np.inf)
    bad = np.int32(0)
    for i in range(values.size):
        a = abs(values[i])
        top = max(top, a)
        bad |= np.int32(not (a < infinity))
    out[0] = np.inf if bad != 0 else np.float64(top)
    return OK
