"""One symbol per level, for levels of any size: the coder of fine step sizes.

The level is folded to `z`: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
Below 16 a symbol each; above, four symbols an octave and the rest of `z` in extra bits behind the code.
One stream per segment.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.bits import at_end, bit_length, finish, lay, put_code, window
from lcstore.bitkernels.huffman import MAX_BITS
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import LENGTH, OK, SPACE, SYMBOL

#: Symbols in use: 16 and four for each octave up to 2**63.
SYMBOLS = 252
#: Elements per segment: 72 bits each at most keeps a stream's length within 16 bits.
SEGMENT = 1 << 12

_MASK = np.uint64((1 << MAX_BITS) - 1)
_1, _3, _16, _64 = map(np.uint64, (1, 3, 16, 64))
#: Segments that are decoded side by side: where a level begins is known only once the one before is decoded.
_SIDE = 4


@kernel(inline=True)
def _split(level: np.int64) -> tuple[Any, np.uint64, np.uint64]:
    """Return symbol, extra bits and their number."""
    z = np.uint64(level << 1) ^ np.uint64(level >> 63)
    if z < _16:
        return np.int64(z), np.uint64(0), np.uint64(0)
    n = bit_length(z) - _3
    return 16 + (np.int64(n) - 2) * 4 + np.int64((z >> n) & _3), z & ((_1 << n) - _1), n


@kernel
def count_wide(levels: Array, counts: Array) -> int:
    """Add how often each symbol occurs to ``int64[256]`` `counts`."""
    for i in range(levels.size):
        symbol, _extra, _n = _split(np.int64(levels[i]))
        counts[symbol] += 1
    return OK


@kernel
def encode_wide(levels: Array, segment: int, codes: Array, payload: Array, directory: Array) -> int:
    """Code integer levels, each of a magnitude below 2**62.

    Parameters
    ----------
    levels
        ``int32[n]`` or ``int64[n]``.
    segment, codes
        Elements per segment; ``uint32[256]`` as from `assign_codes`.
    payload, directory
        ``uint8``, and ``uint16[segments, 2]``: bytes of the stream, and 0; filled.

    Returns
    -------
    int
        Bytes of `payload` used, or `SPACE`.
    """
    words = np.empty(segment * 10 // 8 + 16, np.uint64)
    at = np.int64(0)
    for s in range(directory.shape[0]):
        acc, used, to = np.uint64(0), np.uint64(0), np.uint64(0)
        part = levels[s * segment : (s + 1) * segment]
        for i in range(part.size):
            symbol, extra, n = _split(np.int64(part[i]))
            acc, used, to = put_code(words, acc, used, to, codes[symbol], extra, n)
        size = finish(words, acc, used, to)
        at = lay(words, size, payload, at)
        if at < 0:
            return SPACE
        directory[s, 0] = size
        directory[s, 1] = 0
    return int(at)


@kernel(checked=True)
def decode_wide(
    words: Array,
    start: int,
    directory: Array,
    table: Array,
    sizes: Array,
    levels: Array,
    segment: int,
) -> int:
    """Decode some segments to ``int64`` levels: four side by side, and what is left one by one.

    Parameters
    ----------
    words, start, directory, table, sizes, segment
        As for :func:`lcstore.bitkernels.runs.decode_runs`.
    levels
        ``int64``, filled.

    Returns
    -------
    int
        `OK`, `LENGTH` or `SYMBOL`.
    """
    base, bits = np.zeros(256, np.uint64), np.zeros(256, np.uint64)
    for symbol in range(256):
        base[symbol] = symbol
        if symbol >= 16:
            bits[symbol] = (symbol - 16) // 4 + 2
            base[symbol] = np.uint64(4 | (symbol & 3)) << bits[symbol]
    places, ends = np.empty(_SIDE, np.uint64), np.empty(_SIDE, np.int64)
    rows, at, s = directory.shape[0], np.int64(start), 0
    while s < rows:
        out = levels[s * segment :]
        side = _SIDE if s + _SIDE <= rows and out.size >= _SIDE * segment else 1
        for j in range(side):
            places[j] = np.uint64(at) << _3
            at += np.int64(directory[s + j, 0])
            ends[j] = at
        for i in range(min(segment, out.size)):
            for j in range(side):
                look = window(words, places[j])
                code = look & _MASK
                symbol = table[code]
                size, n = np.uint64(sizes[code]), bits[symbol]
                if symbol >= SYMBOLS:
                    return SYMBOL
                rest = look >> size if size + n <= _64 else window(words, places[j] + size)
                z = base[symbol] | (rest & ((_1 << n) - _1))
                places[j] += size + n
                out[j * segment + i] = np.int64(z >> _1) ^ -np.int64(z & _1)
        for j in range(side):
            if not at_end(places[j], ends[j]) or directory[s + j, 1] != 0:
                return LENGTH
        s += side
    return OK
