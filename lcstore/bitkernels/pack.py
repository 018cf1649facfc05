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
from lcstore.bitkernels.bits import MAX_STREAM, at_end, lay, window
from lcstore.bitkernels.escapes import any_past, encode_escapes
from lcstore.bitkernels.huffman import MAX_BITS, TABLE_SIZE, histogram
from lcstore.compiling.ints import leading_zeros
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import LENGTH, OK, SPACE, TABLE
from lcstore.compiling.unaligned import copy_row, item, put_eight

_1, _3, _6, _7, _8, _11, _15, _16, _56, _63 = map(np.uint64, (1, 3, 6, 7, 8, 11, 15, 16, 56, 63))
_BYTE, _LOW, _MASK = np.uint64(0xFF), np.uint64(0xFFFF), np.uint64((1 << MAX_BITS) - 1)
#: Levels that are searched for one that is not zero, or counted, at a time.
_SPAN = 1 << 16
#: Looks at a window of 64 bits. Its top bit is set: zeros above that say later how far the window was moved.
_LOOKS, _TOP = 5, np.uint64(1 << 63)
#: Levels that must be missing then, as a look is not checked: it writes 16, and moves on by 31 at most.
_AHEAD = np.uint64(31 * _LOOKS)


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
    elif per == 2 and bits == 3:  # bits that are a constant: it takes a tenth of the time
        _pack2(levels, 3, symbols[:whole])
    elif per == 2:
        _pack2(levels, 4, symbols[:whole])
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
def _put(payload: Array, acc: np.uint64, used: np.uint64, at: np.uint64, value: Any, bits: Any) -> Any:
    """Append bits to a stream, unchecked: eight bytes are written, however many of them are full."""
    acc |= value << used
    used += bits
    put_eight(payload, at, acc)
    return acc >> (used & _56), used & _7, at + (used >> _3)


@kernel(inline=True)
def _emit(symbols: Array, codes: Array, payload: Array, at: np.uint64) -> np.int64:
    """Write the codes of `symbols` from byte `at` on, unchecked, and up to 8 bytes more; give their end."""
    acc, used = np.uint64(0), np.uint64(0)
    fours = symbols.size // 4
    for i in range(fours):
        a, b = np.uint64(codes[symbols[4 * i]]), np.uint64(codes[symbols[4 * i + 1]])
        c, d = np.uint64(codes[symbols[4 * i + 2]]), np.uint64(codes[symbols[4 * i + 3]])
        first, third = a >> _16, c >> _16
        half = first + (b >> _16)
        low = (a & _LOW) | ((b & _LOW) << first)
        high = (c & _LOW) | ((d & _LOW) << third)
        acc, used, at = _put(payload, acc, used, at, low | (high << half), half + third + (d >> _16))
    for i in range(4 * fours, symbols.size):
        a = np.uint64(codes[symbols[i]])
        acc, used, at = _put(payload, acc, used, at, a & _LOW, a >> _16)
    return np.int64(at + ((used + _7) >> _3))


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
    bits, per, streams, segment
        Bits per level, levels per symbol, streams per segment, elements per segment.
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
            start, some = at, symbols[min(j * each, count) : min((j + 1) * each, count)]
            if j == streams:
                size, taken = encode_escapes(part, escapes, taken, (1 << (bits - 1)) - 1, words)
                at = lay(words, size, payload, at)
            elif at + some.size * MAX_BITS // 8 + 9 <= payload.size:
                at = _emit(some, codes, payload, np.uint64(at))
            else:
                at = np.int64(SPACE)
            if at < 0 or at - start > MAX_STREAM:
                return SPACE
            directory[s, j] = at - start
    return int(at)


@kernel(inline=True)
def _look(joined: Array, moves: Array, levels: Array, look: np.uint64, at: np.uint64) -> Any:
    """Write what a window begins with, unchecked; give the rest of the window, and the next place."""
    code = look & _MASK
    copy_row(joined, code, levels, at)
    move = np.uint64(item(moves, code))
    return look >> (move & _63), at + (move >> _11)


@kernel(inline=True, checked=True)
def _decode1(
    words: Array, position: Any, joined: Array, moves: Array, per: int, levels: Array, at: Any, end: Any
) -> Any:
    """Follow a stream to the levels ``at:end``; return where it ends."""
    while at + _AHEAD <= end:
        look = window(words, position) | _TOP
        for _ in range(_LOOKS):
            look, at = _look(joined, moves, levels, look, at)
        position += leading_zeros(look)
    while at < end:
        code = window(words, position) & _MASK
        word = joined[code, 0]
        for _ in range(per):
            if at < end:  # what a symbol has behind the last level is left out
                levels[at] = np.int8(word & _BYTE)
            word >>= _8
            at += _1
        position += (np.uint64(moves[code]) >> _6) & _15
    return position


@kernel(inline=True, checked=True)
def _decode4(
    words: Array, joined: Array, moves: Array, levels: Array, positions: Array, places: Array
) -> None:
    """Follow four streams side by side, until one of them nears its end.

    Stream ``j`` is read from bit ``positions[j]``, to the levels from ``places[j]`` to ``places[j + 1]``; it
    stands at the positions and places that are in these arrays then.
    """
    p0, p1, p2, p3 = positions[0], positions[1], positions[2], positions[3]
    a0, a1, a2, a3, end = places[0], places[1], places[2], places[3], places[4]
    e0, e1, e2 = a1, a2, a3
    while a0 + _AHEAD <= e0 and a1 + _AHEAD <= e1 and a2 + _AHEAD <= e2 and a3 + _AHEAD <= end:
        w0, w1 = window(words, p0) | _TOP, window(words, p1) | _TOP
        w2, w3 = window(words, p2) | _TOP, window(words, p3) | _TOP
        for _ in range(_LOOKS):
            w0, a0 = _look(joined, moves, levels, w0, a0)
            w1, a1 = _look(joined, moves, levels, w1, a1)
            w2, a2 = _look(joined, moves, levels, w2, a2)
            w3, a3 = _look(joined, moves, levels, w3, a3)
        p0, p1 = p0 + leading_zeros(w0), p1 + leading_zeros(w1)
        p2, p3 = p2 + leading_zeros(w2), p3 + leading_zeros(w3)
    positions[0], positions[1], positions[2], positions[3] = p0, p1, p2, p3
    places[0], places[1], places[2], places[3] = a0, a1, a2, a3


@kernel(checked=True)
def decode_pack(
    words: Array,
    start: int,
    directory: Array,
    joined: Array,
    moves: Array,
    per: int,
    levels: Array,
    segment: int,
) -> int:
    """Decode some segments.

    Parameters
    ----------
    words, start
        ``uint64``: the payload and its padding; and the byte at which the first segment begins.
    directory
        ``uint16[segments, streams + 1]`` of these segments; 1 or 4 streams.
    joined, moves, per
        As from `join_codes`; the bytes of a symbol are its levels, and `per` is how many.
    levels
        ``int8``, filled; -128 where one is escaped.
    segment
        Elements per segment; the last one of a frame may have fewer.

    Returns
    -------
    int
        `OK`; `LENGTH`, also where there are more segments than levels; `TABLE` unless the tables are whole.
    """
    if joined.shape != (TABLE_SIZE, 2) or moves.size != TABLE_SIZE:
        return TABLE
    if (directory.shape[0] - 1) * segment > levels.size:
        return LENGTH
    streams = directory.shape[1] - 1
    positions, stops = np.empty(4, np.uint64), np.empty(4, np.int64)
    places, ends = np.empty(5, np.uint64), np.empty(4, np.uint64)
    at = np.int64(start)
    for s in range(directory.shape[0]):
        low = s * segment
        high = min(low + segment, levels.size)
        each = ((high - low + per - 1) // per + streams - 1) // streams * per
        places[0] = np.uint64(low)
        for j in range(streams):
            ends[j] = places[j + 1] = np.uint64(min(low + (j + 1) * each, high))
            positions[j] = np.uint64(at) << _3
            stops[j] = at = at + np.int64(directory[s, j])
        if streams == 4:
            _decode4(words, joined, moves, levels, positions, places)
        for j in range(streams):
            end = _decode1(words, positions[j], joined, moves, per, levels, places[j], ends[j])
            if not at_end(end, stops[j]):
                return LENGTH
        at += np.int64(directory[s, streams])
    return OK
