"""Segments of dense levels as bits: their streams of codes, and the side stream of what is escaped."""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.bits import copy, mask_of, put, put_escape
from lcstore.kernels.ints import trailing_zeros
from lcstore.kernels.jit import kernel
from lcstore.kernels.status import SPACE

_1 = np.uint64(1)
_3 = np.uint64(3)
_7 = np.uint64(7)
_8 = np.uint64(8)
_16 = np.uint64(16)
_LOW = np.uint64(0xFFFF)
#: Levels that are searched for escapes at a time.
_LOOK = 256


@kernel(inline=True)
def any_past(levels: Array, most: np.int8) -> Any:
    """Say whether any level lies outside ``-most .. most``."""
    past = np.int8(0)
    for i in range(levels.size):
        past = np.int8(past | np.int8(levels[i] > most) | np.int8(levels[i] < np.int8(-most)))
    return past != 0


@kernel(inline=True)
def emit(symbols: Array, codes: Array, words: Array) -> Any:
    """Write the codes of `symbols`; give the number of bytes."""
    acc, used, at = np.uint64(0), np.uint64(0), np.uint64(0)
    fours = symbols.size // 4
    for i in range(fours):
        a, b = np.uint64(codes[symbols[4 * i]]), np.uint64(codes[symbols[4 * i + 1]])
        c, d = np.uint64(codes[symbols[4 * i + 2]]), np.uint64(codes[symbols[4 * i + 3]])
        first, third = a >> _16, c >> _16
        half = first + (b >> _16)
        low = (a & _LOW) | ((b & _LOW) << first)
        high = (c & _LOW) | ((d & _LOW) << third)
        acc, used, at = put(words, acc, used, at, low | (high << half), half + third + (d >> _16))
    for i in range(4 * fours, symbols.size):
        a = np.uint64(codes[symbols[i]])
        acc, used, at = put(words, acc, used, at, a & _LOW, a >> _16)
    words[at] = acc
    return np.int64(at * _8 + ((used + _7) >> _3))


@kernel(inline=True)
def emit_escapes(levels: Array, escapes: Array, taken: int, most: int, words: Array) -> tuple[Any, int]:
    """Write the side stream of a segment; give its bytes and how many of `escapes` are taken now."""
    acc, used, at = np.uint64(0), np.uint64(0), np.uint64(0)
    past = np.zeros(_LOOK, np.uint8)
    looked = past.view(np.uint64)
    for low in range(0, levels.size, _LOOK):
        some = levels[low : low + _LOOK]
        if not any_past(some, np.int8(most)):
            continue
        past[some.size :] = 0
        for i in range(some.size):
            past[i] = np.uint8(some[i] > np.int8(most)) | np.uint8(some[i] < np.int8(-most))
        for w in range(0, looked.size, 8):
            mask = mask_of(looked, w)
            while mask != 0:
                level = np.int64(some[8 * w + np.int64(trailing_zeros(mask))])
                mask &= mask - _1
                if level == -128:
                    level = escapes[taken]
                    taken += 1
                if np.int64(at) + 4 > words.size:
                    return -1, taken
                acc, used, at = put_escape(words, acc, used, at, level, most + 1)
    words[at] = acc
    return np.int64(at * _8 + ((used + _7) >> _3)), taken


@kernel(inline=True)
def emit_segment(
    symbols: Array,
    each: int,
    codes: Array,
    levels: Array,
    escapes: Array,
    taken: int,
    most: int,
    words: Array,
    payload: Array,
    at: int,
    sizes: Array,
) -> tuple[int, int]:
    """Write a segment's streams, of `each` symbols, and its side stream to the payload, from byte `at` on.

    `words` is room for one of them; `sizes`, of which the last one is that of the side stream, is filled.
    Gives where the next segment begins, or `SPACE`, and how many of `escapes` are taken now.
    """
    source = words.view(np.uint8)
    for j in range(sizes.size):
        size: Any = np.int64(0)
        if j + 1 < sizes.size:
            low, high = min(j * each, symbols.size), min((j + 1) * each, symbols.size)
            size = emit(symbols[low:high], codes, words)
        elif any_past(levels, np.int8(most)):
            size, taken = emit_escapes(levels, escapes, taken, most, words)
        if size < 0 or at + size > payload.size or size > 65535:
            return SPACE, taken
        copy(source, size, payload, at)
        sizes[j] = size
        at += size
    return at, taken
