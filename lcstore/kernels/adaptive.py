"""Levels bit by bit, each with the odds that levels like it had: the small coder, and the slow one.

What a level is like is told by the levels before it in its segment: how large those of its row and of its
column have been of late, the one before it and the one above it, and, of each fourth, whether the sum of the
three before it is even. A level is a count of bits in unary, a sign, and the bits below the highest one.

Arrays are not handed to what is done for each bit: the compiler would count references to them each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.arithmetic import (
    FRESH,
    HALF,
    LOW,
    WHOLE,
    carry,
    chance,
    cut,
    fill_rates,
    finish,
    learned,
    put_word,
    split,
    take_word,
)
from lcstore.kernels.bits import bit_length
from lcstore.kernels.jit import kernel
from lcstore.kernels.status import LENGTH, OK, RANGE, SPACE, SYMBOL

#: Elements of a segment; the longest row that has columns.
SEGMENT = 1 << 16
#: A level has fewer bits than this.
MOST_BITS = 62
#: So many digits behind the end of a stream, nothing is left of it: no work is done for what is not there.
BEHIND = 64
#: Bytes that one level and the end of a stream take at most: of each bit four go at the most.
_LEVEL_BYTES = 4 * (2 * MOST_BITS + 1)

# Places of the probabilities: of counts of bits, by activity, neighbours, bit and parity; of signs; of bits.
_ACTIVITIES, _NEAR, _UNARY, _PARITIES = 37, 9, 12, 3
_SIGNS = _ACTIVITIES * _NEAR * _UNARY * _PARITIES
_BITS = _SIGNS + 27
#: Below this many bits, each bit has odds of its own after all those above it.
_FEW = 8
_EVEN = _BITS + (128 + 4 * MOST_BITS) * _PARITIES
STATES = _EVEN + 1
#: A magnitude of one, as rows and columns count; what they begin with; the largest magnitude that counts.
_UNIT, _BEGIN, _LARGEST = 8, 128, 1 << 16


@kernel(inline=True)
def _sign(level: Any) -> Any:
    """Give 0 for zero, 1 for more, 2 for less."""
    return np.int64(level > 0) + 2 * np.int64(level < 0)


@kernel(inline=True)
def _first_place(row: Any, column: Any, left: Any, above: Any) -> Any:
    """Give the place of a count of bits, by the product of the means of row and column and by neighbours."""
    activity: Any = min(np.int64(bit_length(np.uint64((row * column) >> 8))), _ACTIVITIES - 1)
    near: Any = 3 * min(abs(left), 2) + min(abs(above), 2)
    return (activity * _NEAR + near) * _UNARY


@kernel(inline=True)
def _follow(mean: Any, size: Any) -> Any:
    """Move the mean of a row or a column towards a magnitude."""
    return mean + (((min(size, _LARGEST) << _UNIT) - mean) >> 4)


@kernel(inline=True)
def _place(bits: Any, at: Any, above: Any, parity: Any) -> Any:
    """Give the place of the odds of bit `at` of a magnitude of `bits` bits, `_EVEN` where they are even."""
    if bits < _FEW:
        place = (1 << (bits - 1)) + above
    elif bits - at < 4:
        place = 128 + 4 * bits + above
    elif at == 0:
        place = 128 + 4 * bits
    else:
        return _EVEN
    return _BITS + 3 * place + (parity if at == 0 else 0)


@kernel
def encode_adaptive(levels: Array, stretches: Array, payload: Array, directory: Array, columns: Array) -> int:
    """Code levels, each of a magnitude below 2**61.

    Parameters
    ----------
    levels
        ``int32[n]`` or ``int64[n]``; zero outside the stretches.
    stretches
        ``int64[r, 3]``, rising and apart: first element, size, and length of a row, `SEGMENT` at most.
    payload, directory
        ``uint8``, and ``uint32[segments]``: bytes of the stream; filled.
    columns
        ``int64[SEGMENT]``, for work.

    Returns
    -------
    int
        Bytes of `payload` used, `SPACE` or `RANGE`.
    """
    states, rates = np.empty(STATES, np.uint32), np.empty(256, np.uint32)
    fill_rates(rates)
    start: Any = np.int64(0)
    now = 0
    for s in range(directory.size):
        states[:] = FRESH
        low, width, at = np.uint64(0), WHOLE, start
        row = np.int64(_BEGIN)
        end = min((s + 1) * SEGMENT, levels.size)
        while now < stretches.shape[0] and stretches[now, 0] + stretches[now, 1] <= s * SEGMENT:
            now += 1
        for r in range(now, stretches.shape[0]):
            first, stride = max(stretches[r, 0], s * SEGMENT), stretches[r, 2]
            last = min(stretches[r, 0] + stretches[r, 1], end)
            if first >= end:
                break
            for k in range(min(stride, last - first)):
                columns[k] = row
            column = 0
            left = second = third = np.int64(0)
            for i in range(first, last):
                if at + _LEVEL_BYTES > payload.size:
                    return SPACE
                above = np.int64(levels[i - stride]) if i >= first + stride else np.int64(0)
                parity = 1 + ((left + second + third) & 1) if i & 3 == 3 else 0
                base = _first_place(row, columns[column], left, above)
                level = np.int64(levels[i])
                size = abs(level)
                bits = np.int64(bit_length(np.uint64(size)))
                if bits >= MOST_BITS:
                    return RANGE
                for k in range(bits + 1):
                    place = 3 * (base + min(k, _UNARY - 1)) + parity
                    state, before = states[place], low
                    low, width = cut(low, width, chance(state), k < bits)
                    states[place] = learned(state, rates[state & 255], k < bits)
                    if low < before:
                        carry(payload, at)
                    if width <= LOW:
                        put_word(payload, at, low)
                        low, width, at = low << HALF, width << HALF, at + 4
                sign = _SIGNS + 9 * _sign(left) + 3 * _sign(above) + _sign(second)
                for k in range(bits - 1, -1, -1):
                    bit = (size >> k) & 1 if k < bits - 1 else np.int64(level < 0)
                    place = _place(bits, k, size >> (k + 1), parity) if k < bits - 1 else sign
                    state, before = states[place], low
                    low, width = cut(low, width, chance(state), bit)
                    states[place] = learned(state, rates[state & 255], bit) if place != _EVEN else FRESH
                    if low < before:
                        carry(payload, at)
                    if width <= LOW:
                        put_word(payload, at, low)
                        low, width, at = low << HALF, width << HALF, at + 4
                row, columns[column] = _follow(row, size), _follow(columns[column], size)
                left, second, third = level, left, second
                column = column + 1 if column + 1 < stride else 0
        at = finish(payload, low, at, start)
        directory[s] = at - start
        start = at
    return int(start)


@kernel(checked=True)
def decode_adaptive(
    data: Array, start: Any, directory: Array, stretches: Array, begin: int, levels: Array, columns: Array
) -> int:
    """Decode some segments.

    Parameters
    ----------
    data
        ``uint8``: the payload.
    start, directory
        Where the first stream begins; ``uint32[segments]``: the bytes of each.
    stretches
        As for `encode_adaptive`; those that end before the first segment may be missing.
    begin
        Element that the first segment begins with.
    levels
        ``int64``, filled.
    columns
        ``int64[SEGMENT]``, for work.

    Returns
    -------
    int
        `OK`, `LENGTH` or `SYMBOL`.
    """
    states, rates = np.empty(STATES, np.uint32), np.empty(256, np.uint32)
    fill_rates(rates)
    levels[:] = 0
    now = 0
    for s in range(directory.size):
        states[:] = FRESH
        end = start + np.int64(directory[s])
        at = np.int64(start)
        code = (take_word(data, at, end) << np.uint64(32)) | take_word(data, at + 4, end)
        at += 8
        width = WHOLE
        row = np.int64(_BEGIN)
        low, high = s * SEGMENT, min((s + 1) * SEGMENT, levels.size)
        while now < stretches.shape[0] and stretches[now, 0] + stretches[now, 1] - begin <= low:
            now += 1
        for r in range(now, stretches.shape[0]):
            first, stride = max(stretches[r, 0] - begin, low), stretches[r, 2]
            last = min(stretches[r, 0] + stretches[r, 1] - begin, high)
            if first >= high:
                break
            for k in range(min(stride, last - first)):
                columns[k] = row
            column = 0
            left = second = third = np.int64(0)
            for i in range(first, last):
                above = np.int64(levels[i - stride]) if i >= first + stride else np.int64(0)
                parity = 1 + ((left + second + third) & 1) if i & 3 == 3 else 0
                base = _first_place(row, columns[column], left, above)
                bits = np.int64(0)
                while bits < MOST_BITS:
                    place = 3 * (base + min(bits, _UNARY - 1)) + parity
                    state = states[place]
                    code, width, more = split(code, width, chance(state))
                    states[place] = learned(state, rates[state & 255], more)
                    if width <= LOW:
                        code, width = (code << HALF) | take_word(data, at, end), width << HALF
                        at += 4
                        if code != 0 and at > end + BEHIND:
                            return LENGTH
                    if not more:
                        break
                    bits += 1
                if bits == MOST_BITS:
                    return SYMBOL
                size, less = np.int64(bits > 0), False
                sign = _SIGNS + 9 * _sign(left) + 3 * _sign(above) + _sign(second)
                for k in range(bits - 1, -1, -1):
                    place = _place(bits, k, size, parity) if k < bits - 1 else sign
                    state = states[place]
                    code, width, bit = split(code, width, chance(state))
                    states[place] = learned(state, rates[state & 255], bit) if place != _EVEN else FRESH
                    if width <= LOW:
                        code, width = (code << HALF) | take_word(data, at, end), width << HALF
                        at += 4
                        if code != 0 and at > end + BEHIND:
                            return LENGTH
                    if k < bits - 1:
                        size = 2 * size + np.int64(bit)
                    else:
                        less = bit
                level = -size if less else size
                levels[i] = level
                row, columns[column] = _follow(row, size), _follow(columns[column], size)
                left, second, third = level, left, second
                column = column + 1 if column + 1 < stride else 0
        # The end lies in what is left of the interval and has no digits to spare; the reader was four ahead.
        if end > at - 4 or code >> np.uint64(32) != 0 or (end > start and data[end - 1] == 0):
            return LENGTH
        start = end
    return OK
