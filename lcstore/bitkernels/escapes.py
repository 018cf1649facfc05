"""Side streams: levels that have no symbol of their own, as signs and Elias-gamma codes."""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.bits import at_end, bit_length, finish, mask_of, put, window
from lcstore.compiling.ints import trailing_zeros
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import LENGTH, SPACE, SYMBOL

_1 = np.uint64(1)
_3 = np.uint64(3)
#: Bits behind the leading one of a code that is put in one go, with its sign.
_MOST_AT_ONCE = np.uint64(30)
#: Levels that are searched for escapes at a time, and those that are looked at one by one where one is.
_LOOK = 256
_FEW = 32


@kernel(inline=True)
def any_past(levels: Array, low: Any, high: Any, most: np.int8) -> Any:
    """Return whether any of the levels ``low:high`` lies outside ``-most .. most``.

    A slice would cost more than to look: references to its memory are counted for all threads.
    """
    past = np.int8(0)
    for i in range(np.uint64(low), np.uint64(min(high, levels.size))):
        past = np.int8(past | np.int8(levels[i] > most) | np.int8(levels[i] < np.int8(-most)))
    return past != 0


@kernel(inline=True)
def put_escape(
    words: Array, acc: np.uint64, used: np.uint64, at: np.uint64, level: Any, least: int
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Append an escaped level: its sign, then ``abs(level) - least`` as an Elias-gamma code of one more."""
    size = np.uint64(abs(level) - least) + _1
    n = bit_length(size) - _1
    sign, rest = np.uint64(level < 0), size & ((_1 << n) - _1)
    if n <= _MOST_AT_ONCE:
        value = sign | (((rest << _1) | _1) << (n + _1))
        return put(words, acc, used, at, value, n + n + np.uint64(2))
    acc, used, at = put(words, acc, used, at, sign, n + _1)
    acc, used, at = put(words, acc, used, at, _1, _1)
    return put(words, acc, used, at, rest, n)


@kernel(inline=True, checked=True)
def take_escape(words: Array, position: np.uint64, least: int) -> tuple[np.int64, np.uint64]:
    """Read an escaped level; give it and the next position. A level of 0 says that it is malformed."""
    negative = window(words, position) & _1
    position += _1
    n = np.uint64(0)
    look = window(words, position)
    while n < np.uint64(62) and (look & _1) == 0:
        look >>= _1
        n += _1
    if n >= np.uint64(62):
        return np.int64(0), position
    position += n + _1
    rest = window(words, position) & ((_1 << n) - _1)
    position += n
    size = np.int64((rest | (_1 << n)) - _1) + least
    return (-size if negative else size), position


@kernel(inline=True)
def encode_escapes(levels: Array, escapes: Array, taken: int, most: int, words: Array) -> tuple[Any, int]:
    """Write the side stream of a segment; give its bytes and how many of `escapes` are taken now."""
    if not any_past(levels, 0, levels.size, np.int8(most)):
        return np.int64(0), taken
    acc, used, at = np.uint64(0), np.uint64(0), np.uint64(0)
    past = np.zeros(_LOOK, np.uint8)
    looked = past.view(np.uint64)
    for low in range(0, levels.size, _LOOK):
        if not any_past(levels, low, low + _LOOK, np.int8(most)):
            continue
        some = levels[low : low + _LOOK]
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
    return finish(words, acc, used, at), taken


@kernel(checked=True)
def decode_escapes(
    words: Array,
    start: int,
    directory: Array,
    levels: Array,
    segment: int,
    least: int,
    places: Array,
    values: Array,
) -> int:
    """Read the side streams of some segments and set the escaped places of `levels` to zero.

    Parameters
    ----------
    words, start, directory
        As for the coder of the segments.
    levels
        ``int8``: -128 where a level is escaped.
    segment, least
        Elements per segment, smallest magnitude of an escaped level.
    places, values
        ``int64[m]``: index into `levels` and level of each escape; filled.

    Returns
    -------
    int
        Number of escapes, or `LENGTH`, `SYMBOL` or `SPACE`.
    """
    streams = directory.shape[1] - 1
    found = 0
    for s in range(directory.shape[0]):
        for j in range(streams):
            start += directory[s, j]
        position = np.uint64(start) << _3
        end = start + directory[s, streams]
        part = levels[s * segment : (s + 1) * segment]
        for low in range(0, part.size, _LOOK):
            if not any_past(part, low, low + _LOOK, np.int8(127)):
                continue
            for first in range(low, min(low + _LOOK, part.size), _FEW):
                if not any_past(part, first, first + _FEW, np.int8(127)):
                    continue
                for i in range(first, min(first + _FEW, part.size)):
                    if part[i] != -128:
                        continue
                    level, position = take_escape(words, position, least)
                    if level == 0:
                        return SYMBOL
                    if position > np.uint64(end) << _3:
                        return LENGTH
                    if found >= places.size:
                        return SPACE
                    part[i] = 0
                    places[found] = s * segment + i
                    values[found] = level
                    found += 1
        if not at_end(position, end):
            return LENGTH
        start = end
    return found
