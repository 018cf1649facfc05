"""Several levels in one prefix code: the dense coder.

`per` levels of `bits` bits each, in two's complement, make one symbol of at most 8 bits: (2, 4), (3, 2),
(4, 2) or (8, 1). The most negative pattern says "escaped": the level is in the segment's side stream.
A segment is cut in `streams` parts of equal symbol counts, each a bit stream of its own, so that a decoder
has several independent chains to follow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.kernels.bits import at_end, finish, lay, put, window
from lcstore.kernels.escapes import any_past, encode_escapes
from lcstore.kernels.huffman import MAX_BITS, histogram
from lcstore.kernels.status import LENGTH, OK, SPACE

_3 = np.uint64(3)
_16 = np.uint64(16)
_LOW = np.uint64(0xFFFF)
_MASK = np.uint64((1 << MAX_BITS) - 1)
#: Levels that are searched for one that is not zero, or counted, at a time.
_SPAN = 1 << 16


@kernel(inline=True)
def _symbol(level: Any, bits: int) -> Any:
    most = (1 << (bits - 1)) - 1
    return (level & ((1 << bits) - 1)) if -most <= level <= most else (1 << (bits - 1))


@kernel(inline=True)
def _pack4(levels: Array, symbols: Array) -> None:
    # Levels -1, 0, 1 are their own low two bits; everything else is escaped as 2.
    for i in range(symbols.size):
        word = np.uint32(0)
        for j in range(4):
            level = np.int8(levels[4 * i + j])
            code = np.uint32(level & np.int8(3)) if np.int8(-1) <= level <= np.int8(1) else np.uint32(2)
            word |= np.uint32(code << np.uint32(2 * j))
        symbols[i] = np.uint8(word)


@kernel(inline=True)
def _pack2(levels: Array, bits: int, symbols: Array) -> None:
    for i in range(symbols.size):
        symbols[i] = np.uint8(_symbol(levels[2 * i], bits) | (_symbol(levels[2 * i + 1], bits) << bits))


@kernel
def pack(levels: Array, bits: int, per: int, symbols: Array) -> int:
    """Make symbols of levels.

    Parameters
    ----------
    levels
        ``int8[n]``.
    bits, per
        Bits per level, levels per symbol.
    symbols
        ``uint8[ceil(n / per)]``, filled. Levels that are missing at the end count as zero.
    """
    whole = levels.size // per
    if per == 4:
        _pack4(levels, symbols[:whole])
    elif per == 2:
        _pack2(levels, bits, symbols[:whole])
    else:
        for i in range(whole):
            symbols[i] = np.uint8(levels[i])
    if whole < symbols.size:
        word = 0
        for j in range(levels.size - whole * per):
            word |= _symbol(np.int64(levels[whole * per + j]), bits) << (bits * j)
        symbols[whole] = np.uint8(word)
    return OK


@kernel
def count_symbols(levels: Array, bits: int, per: int, counts: Array) -> int:
    """Count the symbols that `pack` makes of ``int8`` `levels`; ``int64[256]`` `counts` are added to."""
    symbols = np.empty(_SPAN // per, np.uint8)
    for low in range(0, levels.size, _SPAN):
        part = levels[low : low + _SPAN]
        some = symbols[: (part.size + per - 1) // per]
        pack(part, bits, per, some)
        histogram(some, counts)
    return OK


@kernel
def any_level(levels: Array) -> int:
    """Return whether any of the ``int8`` `levels` is not zero: 1 or 0."""
    for low in range(0, levels.size, _SPAN):
        if any_past(levels, low, low + _SPAN, np.int8(0)):
            return 1
    return 0


@kernel(inline=True)
def _emit(symbols: Array, codes: Array, words: Array) -> Any:
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
    return finish(words, acc, used, at)


@kernel
def encode_pack(
    levels: Array,
    escapes: Array,
    bits: int,
    per: int,
    streams: int,
    segment: int,
    codes: Array,
    payload: Array,
    directory: Array,
) -> int:
    """Code all segments of a frame.

    Parameters
    ----------
    levels
        ``int8[n]``; -128 where the level is the next of `escapes`.
    escapes
        ``int64[m]``, in the order of the elements.
    bits, per
        Bits per level, levels per symbol.
    streams, segment
        Streams per segment, elements per segment.
    codes
        ``uint32[256]`` as from `assign_codes`, for every symbol that occurs.
    payload
        ``uint8``, filled.
    directory
        ``uint16[segments, streams + 1]``, filled: bytes of each stream, then of the side stream.

    Returns
    -------
    int
        Bytes of `payload` used, or `SPACE`.
    """
    symbols = np.empty((segment + per - 1) // per, np.uint8)
    words = np.empty(symbols.size * 2 + 16, np.uint64)
    at, taken = np.int64(0), 0
    for s in range(directory.shape[0]):
        part = levels[s * segment : (s + 1) * segment]
        count = (part.size + per - 1) // per
        pack(part, bits, per, symbols[:count])
        each = (count + streams - 1) // streams
        for j in range(streams + 1):
            if j < streams:
                size = _emit(symbols[min(j * each, count) : min((j + 1) * each, count)], codes, words)
            else:
                size, taken = encode_escapes(part, escapes, taken, (1 << (bits - 1)) - 1, words)
            at = lay(words, size, payload, at)
            if at < 0:
                return SPACE
            directory[s, j] = size
    return int(at)


@kernel(inline=True, checked=True)
def _decode1(words: Array, position: np.uint64, table: Array, sizes: Array, out: Array) -> np.uint64:
    for i in range(out.size):
        code = window(words, position) & _MASK
        out[i] = table[code]
        position += np.uint64(sizes[code])
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
    """Follow four streams side by side, four codes to a window."""
    last = out.size - 3 * each
    common = max(last, 0) & ~3
    a = out[:each]
    b = out[each : 2 * each]
    c = out[2 * each : 3 * each]
    d = out[3 * each :]
    for i in range(0, common, 4):
        w0, w1, w2, w3 = window(words, p0), window(words, p1), window(words, p2), window(words, p3)
        for j in range(4):
            c0, c1, c2, c3 = w0 & _MASK, w1 & _MASK, w2 & _MASK, w3 & _MASK
            n0, n1 = np.uint64(sizes[c0]), np.uint64(sizes[c1])
            n2, n3 = np.uint64(sizes[c2]), np.uint64(sizes[c3])
            a[i + j] = table[c0]
            b[i + j] = table[c1]
            c[i + j] = table[c2]
            d[i + j] = table[c3]
            w0 >>= n0
            w1 >>= n1
            w2 >>= n2
            w3 >>= n3
            p0 += n0
            p1 += n1
            p2 += n2
            p3 += n3
    p0 = _decode1(words, p0, table, sizes, a[common:])
    p1 = _decode1(words, p1, table, sizes, b[common:])
    p2 = _decode1(words, p2, table, sizes, c[common:])
    p3 = _decode1(words, p3, table, sizes, d[common:])
    return p0, p1, p2, p3


@kernel(checked=True)
def decode_pack(
    words: Array,
    start: int,
    directory: Array,
    table: Array,
    sizes: Array,
    packed: Array,
    per_segment: int,
) -> int:
    """Decode the symbols of some segments, each to the levels that it stands for.

    Parameters
    ----------
    words
        ``uint64``: the payload and its padding.
    start
        Byte at which the first segment begins.
    directory
        ``uint16[segments, streams + 1]`` of these segments; 1 or 4 streams.
    table, sizes
        As from `fill_table`; a value of `table` holds all levels of one symbol.
    packed
        The levels, viewed as one value per symbol; filled.
    per_segment
        Symbols per segment; the last one of a frame may hold fewer.

    Returns
    -------
    int
        `OK` or `LENGTH`.
    """
    streams = directory.shape[1] - 1
    for s in range(directory.shape[0]):
        out = packed[s * per_segment : (s + 1) * per_segment]
        e0 = start + directory[s, 0]
        first = np.uint64(start) << _3
        if streams == 4:
            e1 = e0 + directory[s, 1]
            e2 = e1 + directory[s, 2]
            e3 = e2 + directory[s, 3]
            each = (out.size + 3) // 4
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
