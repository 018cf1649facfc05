"""The fused pass over a tensor on its integer grid: delta, level, move, digest.

One pass reads the state and the track, writes a level per element and moves the track by exactly what a
reader will add, the level times the step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.bits import copy
from lcstore.kernels.digest import weight
from lcstore.kernels.grid import RUN
from lcstore.kernels.ints import shift_right, wrap_add, wrap_mul, wrap_sub
from lcstore.kernels.jit import kernel
from lcstore.kernels.status import RANGE, SPACE

#: In a level buffer: the level is in the list of escapes.
ESCAPE = np.int8(-128)
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
def quantize(
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
    """Do as `quantize`; fill also how far the nearer neighbour of each level is, and 1 or -1: up or down."""
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
def move(track: Array, levels: Array, factor: Any, start: np.uint64, kind: Any) -> np.uint64:
    """Move one run of the track; give the digest of its levels."""
    total = np.uint64(0)
    for i in range(track.size):
        track[i] = wrap_add(track[i], wrap_mul(kind(levels[i]), factor))
        total += weight(start + np.uint64(i)) * np.uint64(np.int64(levels[i]))
    return total


@kernel(inline=True)
def move_far(
    state: Array,
    track: Array,
    levels: Array,
    escapes: Array,
    escaped: int,
    by: Quantizer,
    start: np.uint64,
    kind: Any,
) -> tuple[int, np.uint64]:
    """Do both for a run with levels of any size; give the escapes in use and the digest of the moves."""
    total = np.uint64(0)
    for i in range(state.size):
        difference = np.int64(np.rint(state[i] * by.inverse)) - np.int64(track[i])
        level = np.int64(np.float64(abs(difference)) * by.gain + by.rounding)
        if level > MAX_LEVEL:
            level = max(np.int64(MAX_LEVEL + 1), (abs(difference) + (by.step >> 1)) // by.step)
        signed = level if difference >= 0 else -level
        levels[i] = np.int8(signed)
        if level > MAX_LEVEL:
            levels[i] = ESCAPE
            escapes[escaped] = signed
            escaped += 1
        moved = signed * by.step
        track[i] = kind(np.int64(track[i]) + moved)
        total += weight(start + np.uint64(i)) * np.uint64(moved)
    return escaped, total


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
            top = quantize(values, grid, coded, by, kind)
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
            total += move(grid, coded, kind(by.step), first, kind) * np.uint64(by.step)
        else:
            if escaped + (high - low) > escapes.size:
                clear(coded)
                out[0] += total
                return SPACE
            escaped, far = move_far(values, grid, coded, escapes, escaped, by, first, kind)
            total += far
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
