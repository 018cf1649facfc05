"""CRC-32C of bytes in pieces, and of pieces of which it is known already: no byte is gone over twice.

The checksum of two pieces, one behind the other, is that of the first times ``x**(8 * n)``, `n` being the
bytes of the second, and that of the second added: polynomials over GF(2), modulo the checksum's own, lowest
power in the highest bit (as `crc32_combine` of zlib has it).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import google_crc32c
import numpy as np

from lcstore.arrays import Buffer

_POLYNOMIAL: Final = 0x82F63B78
_ONE: Final = 1 << 31


def checksum(pieces: Iterable[Buffer], before: int = 0) -> int:
    """Return the checksum of pieces one behind another, and behind bytes that have the checksum `before`."""
    crc = before
    for piece in pieces:
        crc = google_crc32c.extend(crc, _readable(piece))
    return crc


def joined(first: int, second: int, length: int) -> int:
    """Return the checksum of two pieces from theirs; the second has `length` bytes."""
    place = 0
    while length:
        if length & 1:
            first = _multiplied(_POWERS[place], first)
        length, place = length >> 1, place + 1
    return first ^ second


def _readable(data: Buffer) -> Any:
    """Return bytes as what the checksum takes: not a memoryview, and no copy."""
    return np.frombuffer(data, np.uint8) if len(data) else b""


def _multiplied(one: int, other: int) -> int:
    product = 0
    while one:
        if one & _ONE:
            product ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def _powers() -> list[int]:
    """Return ``x**(8 * 2**k)`` for each `k`: lengths are below 2^64."""
    powers = [_ONE >> 8]
    while len(powers) < 64:
        powers.append(_multiplied(powers[-1], powers[-1]))
    return powers


_POWERS: Final = _powers()
