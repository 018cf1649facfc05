"""Binary arithmetic coding with probabilities that learn: a stream is the digits of one long fraction.

A writer's state is (the low end of the interval, its width, bytes written), a reader's (how far above the
low end the fraction lies, the width, bytes read). Ends and widths are 64 bits; four bytes go once the width
is below 2**32. A probability is that of a zero, in 24 bits; the 8 below count what it has seen: it moves far
at first, later little (G. N. N. Martin, "Range encoding", 1979; the counted rate is that of PAQ coders).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.jit import kernel

#: The state of a probability that has seen nothing: one half.
FRESH = np.uint32(1 << 31)
#: The least probability of either bit, of 65,536.
_LEAST = 32
_OLDEST = 255
_TOP = (1 << 24) - 1

_8 = np.uint64(8)
_16 = np.uint64(16)
_BYTE = np.uint64(255)
_HIGH = np.uint64(((1 << 32) - 1) << 32)
#: What an interval begins with, and the most that is left of one before it is widened.
WHOLE, LOW = np.uint64((1 << 64) - 1), np.uint64((1 << 32) - 1)
HALF = np.uint64(32)


@kernel(inline=True)
def chance(state: np.uint32) -> np.int64:
    """Give the probability of a zero, of 65,536."""
    odds: Any = min(max(np.int64(state >> 16), _LEAST), 65536 - _LEAST)
    return np.int64(odds)


@kernel(inline=True)
def learned(state: np.uint32, rate: np.uint32, bit: Any) -> np.uint32:
    """Move a probability towards what was seen; `rate` is that of its count."""
    p = np.int64(state >> 8)
    p += (((0 if bit else _TOP) - p) * np.int64(rate)) >> 16
    seen: Any = min(np.int64(state & 255) + 1, _OLDEST)
    return np.uint32((p << 8) | seen)


@kernel(inline=True, checked=True)
def fill_rates(rates: Array) -> None:
    """Fill ``uint32[256]`` with how far a probability moves after so many bits, of 65,536."""
    for seen in range(rates.size):
        rates[seen] = 655360 // (10 * seen + 16)


@kernel(inline=True)
def cut(low: np.uint64, width: np.uint64, zero: Any, bit: Any) -> tuple[np.uint64, np.uint64]:
    """Give a bit's part of the interval, where a zero has the chance `zero`; a zero's is the lower one."""
    bound = (width >> _16) * np.uint64(zero)
    if bit:
        return low + bound, width - bound
    return low, bound


@kernel(inline=True)
def split(code: np.uint64, width: np.uint64, zero: Any) -> tuple[np.uint64, np.uint64, bool]:
    """Tell which bit was written; give what is left of the fraction and of the interval, and the bit."""
    bound = (width >> _16) * np.uint64(zero)
    if code >= bound:
        return code - bound, width - bound, True
    return code, bound, False


@kernel(inline=True)
def carry(out: Array, at: Any) -> None:
    """Add one to the last digit before `at`: the fraction is below one, so some digit takes it."""
    k = at - 1
    while out[k] == 255:
        out[k] = 0
        k -= 1
    out[k] += np.uint8(1)


@kernel(inline=True)
def put_word(out: Array, at: Any, low: np.uint64) -> None:
    """Write the upper half of `low`, the most significant byte first."""
    for k in range(4):
        out[at + k] = np.uint8((low >> np.uint64(56 - 8 * k)) & _BYTE)


@kernel(inline=True)
def finish(out: Array, low: np.uint64, at: Any, start: Any) -> Any:
    """Write the shortest fraction that lies in the interval; give where the stream ends, not in zeros."""
    end = np.uint64((low + LOW) & _HIGH)
    if end < low:
        carry(out, at)
    put_word(out, at, end)
    at += 4
    while at > start and out[at - 1] == 0:
        at -= 1
    return at


@kernel(inline=True, checked=True)
def take_word(data: Array, at: Any, end: Any) -> np.uint64:
    """Read four digits, those from `end` on as zeros."""
    word = np.uint64(0)
    for k in range(4):
        word <<= _8
        if at + k < end:
            word |= np.uint64(data[at + k])
    return word
