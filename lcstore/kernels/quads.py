"""Levels coded four by four: two codes of a pair each, the second from a table that the first chooses.

A pair is a symbol of the dense coder, two levels of 4 bits (see `pack`). The code of the first pair of a
group is of table 0; that of the second is of table 1 where the sum of the first is even, else of table 2.
Where all groups have an even sum, each of those two tables needs half of the symbols.
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.bits import window
from lcstore.kernels.emit import emit_segment
from lcstore.kernels.huffman import MAX_BITS, TABLE_SIZE
from lcstore.kernels.jit import kernel
from lcstore.kernels.pack import at_end, pack
from lcstore.kernels.status import LENGTH, OK

#: Levels of a group, bits of a level, tables.
GROUP, BITS, TABLES = 4, 4, 3
#: Levels of which symbols are counted at a time, whole groups.
_AT_ONCE = 1 << 13
_MOST = (1 << (BITS - 1)) - 1
_MASK = np.uint64((1 << MAX_BITS) - 1)
_3 = np.uint64(3)


@kernel
def even_groups(levels: Array) -> int:
    """Count the whole groups whose sum is even."""
    odd = np.int64(0)
    for i in range(levels.size // GROUP):
        four = levels[GROUP * i : GROUP * i + GROUP]
        odd += np.int64((four[0] ^ four[1] ^ four[2] ^ four[3]) & np.int8(1))
    return levels.size // GROUP - int(odd)


@kernel
def symbols_of(levels: Array, symbols: Array) -> int:
    """Fill ``uint16[2 * ceil(n / 4)]`` with the symbols of the pairs, each plus 256 times its table."""
    pairs = np.zeros(symbols.size, np.uint8)
    pack(levels, BITS, 2, pairs[: (levels.size + 1) // 2])
    for i in range(symbols.size // 2):
        first = np.uint16(pairs[2 * i])
        odd = np.uint16((first ^ (first >> np.uint16(BITS))) & np.uint16(1))
        symbols[2 * i] = first
        symbols[2 * i + 1] = np.uint16(np.uint16(pairs[2 * i + 1]) + np.uint16((odd + np.uint16(1)) << 8))
    return OK


@kernel
def count(levels: Array, counts: Array) -> int:
    """Add how often each symbol occurs to ``int64[768]`` `counts`."""
    symbols = np.empty(2 * _AT_ONCE // GROUP, np.uint16)
    part = np.zeros((2, counts.size), np.int64)  # equal neighbours do not wait for each other
    for low in range(0, levels.size, _AT_ONCE):
        some = levels[low : low + _AT_ONCE]
        used = 2 * ((some.size + GROUP - 1) // GROUP)
        symbols_of(some, symbols[:used])
        whole = used & ~3
        for i in range(0, whole, 4):
            part[0, symbols[i]] += 1
            part[0, symbols[i + 1]] += 1
            part[1, symbols[i + 2]] += 1
            part[1, symbols[i + 3]] += 1
        for i in range(whole, used):
            part[0, symbols[i]] += 1
    for s in range(counts.size):
        counts[s] += part[0, s] + part[1, s]
    return OK


@kernel
def encode_quads(
    levels: Array,
    escapes: Array,
    streams: int,
    segment: int,
    codes: Array,
    payload: Array,
    directory: Array,
) -> int:
    """Code all segments of a frame, as `pack.encode_pack` does.

    Parameters
    ----------
    levels
        ``int8[n]``; -128 where the level is the next of `escapes`.
    escapes
        ``int64[m]``, in the order of the elements.
    streams, segment
        Streams per segment, elements per segment.
    codes
        ``uint32[768]``: of the three tables one behind the other, for every symbol that occurs.
    payload
        ``uint8``, filled.
    directory
        ``uint16[segments, streams + 1]``, filled: bytes of each stream, then of the side stream.

    Returns
    -------
    int
        Bytes of `payload` used, or `SPACE`.
    """
    symbols = np.empty(2 * ((segment + GROUP - 1) // GROUP), np.uint16)
    words = np.empty(symbols.size * 4 + 16, np.uint64)
    at = 0
    taken = 0
    for s in range(directory.shape[0]):
        part = levels[s * segment : (s + 1) * segment]
        groups = (part.size + GROUP - 1) // GROUP
        symbols_of(part, symbols[: 2 * groups])
        each = 2 * ((groups + streams - 1) // streams)
        at, taken = emit_segment(
            *(symbols[: 2 * groups], each, codes, part, escapes, taken, _MOST, words, payload, at),
            directory[s],
        )
        if at < 0:
            return at
    return at


@kernel(inline=True, checked=True)
def _second(pair: np.uint16) -> np.uint64:
    """Give where in the look-up tables the table of a group's second pair begins."""
    odd = np.uint64((pair ^ (pair >> np.uint16(8))) & np.uint16(1))
    return (odd + np.uint64(1)) << np.uint64(MAX_BITS)


@kernel(inline=True, checked=True)
def _decode1(words: Array, position: np.uint64, table: Array, sizes: Array, out: Array) -> np.uint64:
    for i in range(0, out.size, 2):
        ahead = window(words, position)
        code = ahead & _MASK
        bits = np.uint64(sizes[code])
        out[i] = table[code]
        code = _second(table[code]) + ((ahead >> bits) & _MASK)
        out[i + 1] = table[code]
        position += bits + np.uint64(sizes[code])
    return position


@kernel(inline=True, checked=True)
def _decode4(
    words: Array,
    p0: np.uint64,
    p1: np.uint64,
    p2: np.uint64,
    p3: np.uint64,
    table: Array,
    sizes: Array,
    out: Array,
    each: int,
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Follow four streams side by side, a group of each at a time."""
    common = max(out.size - 3 * each, 0)
    a, b, c, d = out[:each], out[each : 2 * each], out[2 * each : 3 * each], out[3 * each :]
    for i in range(0, common, 2):
        w0, w1, w2, w3 = window(words, p0), window(words, p1), window(words, p2), window(words, p3)
        c0, c1, c2, c3 = w0 & _MASK, w1 & _MASK, w2 & _MASK, w3 & _MASK
        n0, n1 = np.uint64(sizes[c0]), np.uint64(sizes[c1])
        n2, n3 = np.uint64(sizes[c2]), np.uint64(sizes[c3])
        v0, v1, v2, v3 = table[c0], table[c1], table[c2], table[c3]
        a[i], b[i], c[i], d[i] = v0, v1, v2, v3
        c0, c1 = _second(v0) + ((w0 >> n0) & _MASK), _second(v1) + ((w1 >> n1) & _MASK)
        c2, c3 = _second(v2) + ((w2 >> n2) & _MASK), _second(v3) + ((w3 >> n3) & _MASK)
        a[i + 1], b[i + 1], c[i + 1], d[i + 1] = table[c0], table[c1], table[c2], table[c3]
        p0 += n0 + np.uint64(sizes[c0])
        p1 += n1 + np.uint64(sizes[c1])
        p2 += n2 + np.uint64(sizes[c2])
        p3 += n3 + np.uint64(sizes[c3])
    p0 = _decode1(words, p0, table, sizes, a[common:])
    p1 = _decode1(words, p1, table, sizes, b[common:])
    p2 = _decode1(words, p2, table, sizes, c[common:])
    p3 = _decode1(words, p3, table, sizes, d[common:])
    return p0, p1, p2, p3


@kernel(checked=True)
def decode_quads(
    words: Array, start: int, directory: Array, table: Array, sizes: Array, packed: Array, segment: int
) -> int:
    """Decode the symbols of some segments, each to its two levels.

    Parameters
    ----------
    words
        ``uint64``: the payload and its padding.
    start
        Byte at which the first segment begins.
    directory
        ``uint16[segments, streams + 1]`` of these segments; 1 or 4 streams.
    table, sizes
        ``uint16`` and ``uint8[3 * TABLE_SIZE]``: of the three tables, as from `fill_table`; a value of
        `table` holds both levels of a pair.
    packed
        ``uint16``: the levels of whole groups, a pair in each; filled.
    segment
        Elements per segment, whole groups; the last one of a frame may hold fewer.

    Returns
    -------
    int
        `OK` or `LENGTH`.
    """
    if table.size != TABLES * TABLE_SIZE or sizes.size != table.size or packed.size % 2 != 0:
        return LENGTH
    streams = directory.shape[1] - 1
    for s in range(directory.shape[0]):
        out = packed[s * (segment // 2) : (s + 1) * (segment // 2)]
        e0 = start + directory[s, 0]
        first = np.uint64(start) << _3
        if streams == 4:
            e1 = e0 + directory[s, 1]
            e2 = e1 + directory[s, 2]
            e3 = e2 + directory[s, 3]
            each = 2 * ((out.size // 2 + 3) // 4)
            p1, p2, p3 = np.uint64(e0) << _3, np.uint64(e1) << _3, np.uint64(e2) << _3
            p0, p1, p2, p3 = _decode4(words, first, p1, p2, p3, table, sizes, out, each)
            if not (at_end(p0, e0) and at_end(p1, e1) and at_end(p2, e2) and at_end(p3, e3)):
                return LENGTH
            start = e3 + directory[s, 4]
        else:
            if not at_end(_decode1(words, first, table, sizes, out), e0):
                return LENGTH
            start = e0 + directory[s, 1]
    return OK
