"""Bit streams, least significant bit first, in ``uint64`` words.

A writer's state is (accumulator, bits in it, words written); a reader's is one bit position. A damaged stream
runs on, past its end and that of the payload. There it meets the last word of memory again and again, and is
found out when its end is checked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.ints import leading_zeros
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import SPACE

_1, _3, _6, _7, _16, _56, _63 = map(np.uint64, (1, 3, 6, 7, 16, 56, 63))
_LOW = np.uint64(0xFFFF)
#: What brings the lowest bits of all bytes together in the top one.
_GATHER = np.uint64(0x0102040810204080)

#: Bytes of a stream, at most: directory entries have 16 bits.
MAX_STREAM = (1 << 16) - 1
#: Bytes that must follow a payload, whatever they hold: a reader looks at two words at a time.
PADDING = 16


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
    """Return one bit for each byte of eight words from `at` on, whose bytes are all 0 or 1."""
    mask = np.uint64(0)
    for k in range(8):
        mask |= ((flags[at + k] * _GATHER) >> _56) << np.uint64(8 * k)
    return mask


@kernel(inline=True, checked=True)
def window(words: Array, position: np.uint64) -> np.uint64:
    """Return the 64 bits from `position`; any bits where that is past the end of memory."""
    i = min(position >> _6, np.uint64(words.size - 2))
    r = position & _63
    return np.uint64((words[i] >> r) | ((words[i + _1] << _1) << (_63 - r)))


@kernel(inline=True)
def bit_length(value: np.uint64) -> np.uint64:
    """Count the bits of ``uint64`` `value`, 0 for 0."""
    return np.uint64(np.uint64(64) - leading_zeros(value))


@kernel(inline=True)
def put_code(
    words: Array, acc: np.uint64, used: np.uint64, at: np.uint64, code: Any, extra: np.uint64, bits: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64]:
    """Append a code as from `assign_codes`, and behind it `bits` (at most 62) bits of `extra`."""
    value, size = np.uint64(code) & _LOW, np.uint64(code) >> _16
    if size + bits > _63:
        acc, used, at = put(words, acc, used, at, value, size)
        return put(words, acc, used, at, extra, bits)
    return put(words, acc, used, at, value | (extra << size), size + bits)


@kernel(inline=True)
def finish(words: Array, acc: np.uint64, used: np.uint64, at: np.uint64) -> np.int64:
    """End a stream; return its bytes."""
    words[at] = acc
    return np.int64((at << _3) + ((used + _7) >> _3))


@kernel(inline=True)
def lay(words: Array, size: Any, payload: Array, at: Any) -> Any:
    """Copy a stream of `size` bytes to the payload, from byte `at` on; return where it ends, or `SPACE`."""
    if size < 0 or size > MAX_STREAM or at + size > payload.size:
        return np.int64(SPACE)
    copy(words.view(np.uint8), size, payload, at)
    return np.int64(at + size)


@kernel(inline=True, checked=True)
def at_end(position: np.uint64, end: Any) -> Any:
    """Return whether a stream that was read up to the bit `position` ends within the byte before `end`."""
    return (position + _7) >> _3 == np.uint64(end)
