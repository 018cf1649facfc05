"""Bit streams, least significant bit first, in ``uint64`` words.

A writer's state is (accumulator, bits in it, words written); a reader's is one bit position. Readers rely on
padding behind the payload (`PADDING` bytes), so a stream that runs on meets zeros and not the end of memory,
and is found out when its end is checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.ints import leading_zeros
from lcstore.kernels.jit import kernel

_1 = np.uint64(1)
_6 = np.uint64(6)
_56 = np.uint64(56)
_63 = np.uint64(63)
#: What brings the lowest bits of all bytes together in the top one.
_GATHER = np.uint64(0x0102040810204080)
#: Bits behind the leading one of an Elias-gamma code that is put in one go, with its sign.
_MOST_AT_ONCE = np.uint64(30)

#: Elements in a segment at most; directory entries are 16 bits because of it.
MAX_SEGMENT = 1 << 16
#: Zero bytes that must follow a payload: the longest stream a damaged one can turn into is all of a segment's
#: codes at 12 + 62 bits.
PADDING = MAX_SEGMENT * 10 + 64


@kernel(inline=True)
def put(
    words: Array, acc: np.uint64, used: np.uint64, at: np.uint64, value: np.uint64, bits: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Append the `bits` (at most 63) low bits of `value`, whose others are zero.

    Without a branch: the word is stored each time, and the place moves on once it is full.
    """
    acc |= value << used
    words[at] = acc
    total = used + bits
    full = total >> _6
    acc = np.uint64((value >> _1) >> (_63 - used)) if full else acc
    return acc, total & _63, at + full


@kernel(inline=True)
def copy(source: Array, size: Any, target: Array, at: Any) -> None:
    """Copy the first `size` of `source` to `target`, from `at` on; slices compile five times as long."""
    for i in range(size):
        target[at + i] = source[i]


@kernel(inline=True)
def mask_of(flags: Array, at: Any) -> Any:
    """Give one bit for each byte of eight words from `at` on, whose bytes are all 0 or 1."""
    mask = np.uint64(0)
    for k in range(8):
        mask |= ((flags[at + k] * _GATHER) >> _56) << np.uint64(8 * k)
    return mask


@kernel(inline=True, checked=True)
def window(words: Array, position: np.uint64) -> np.uint64:
    """Give the 64 bits from `position`."""
    i = position >> _6
    r = position & _63
    return np.uint64((words[i] >> r) | ((words[i + _1] << _1) << (_63 - r)))


@kernel(inline=True)
def bit_length(value: np.uint64) -> np.uint64:
    """Count the bits of ``uint64`` `value`, 0 for 0."""
    return np.uint64(np.uint64(64) - leading_zeros(value))


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
