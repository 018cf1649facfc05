"""Canonical prefix codes of at most `MAX_BITS` bits over at most 256 symbols.

Lengths are optimal under the limit (package-merge: Larmore and Hirschberg, "A fast algorithm for optimal
length-limited Huffman codes", JACM 1990). Codes go out least significant bit first, so a decoder looks up
the low bits of its window.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK, SYMBOL, TABLE

_7 = np.uint64(7)
MAX_BITS = 12
TABLE_SIZE = 1 << MAX_BITS
#: In the nibbles of written lengths: a run of zeros, and a repeat of the last length.
ZEROS = 13
REPEAT = 14


@kernel
def code_lengths(counts: Array, lengths: Array) -> int:
    """Find optimal code lengths for `counts`.

    Parameters
    ----------
    counts
        ``int64[k]``, k <= 256. A count of zero means that the symbol gets no code.
    lengths
        ``uint8[k]``, filled. The code is always complete: where fewer than two symbols occur, an unused one
        takes the other half of the code space.

    Returns
    -------
    int
        Number of symbols with a code, or `TABLE` when no symbol occurs.
    """
    k = counts.size
    used = 0
    order = np.empty(k, np.int64)  # by count; sorted here because np.argsort takes a second to compile
    for s in range(k):
        lengths[s] = 0
        if counts[s] > 0:
            at = used
            while at > 0 and counts[order[at - 1]] > counts[s]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = s
            used += 1
    if used == 0 or k < 2:
        return TABLE
    if used == 1:
        lengths[order[0]] = 1
        lengths[1 if order[0] == 0 else 0] = 1
        return 2
    # Level 0 holds the leaves; every further level merges the leaves with pairs of the level before.
    width = 2 * used
    weights = np.empty((MAX_BITS, width), np.int64)
    leaf = np.empty((MAX_BITS, width), np.uint8)
    sizes = np.empty(MAX_BITS, np.int64)
    for i in range(used):
        weights[0, i] = counts[order[i]]
        leaf[0, i] = 1
    sizes[0] = used
    for level in range(1, MAX_BITS):
        pairs = sizes[level - 1] // 2
        i = 0
        p = 0
        m = 0
        while i < used or p < pairs:
            take_leaf = p >= pairs
            if i < used and p < pairs:
                pair = weights[level - 1, 2 * p] + weights[level - 1, 2 * p + 1]
                take_leaf = counts[order[i]] <= pair
            if take_leaf:
                weights[level, m] = counts[order[i]]
                leaf[level, m] = 1
                i += 1
            else:
                weights[level, m] = weights[level - 1, 2 * p] + weights[level - 1, 2 * p + 1]
                leaf[level, m] = 0
                p += 1
            m += 1
        sizes[level] = m
    take = 2 * used - 2
    for level in range(MAX_BITS - 1, -1, -1):
        leaves = 0
        for m in range(take):
            leaves += leaf[level, m]
        for i in range(leaves):
            lengths[order[i]] += 1
        take = 2 * (take - leaves)
    return used


@kernel
def code_bits(counts: Array, lengths: Array) -> int:
    """Sum up the bits that ``int64`` `counts` of symbols take; `SYMBOL` where one that occurs has no code."""
    bits = np.int64(0)
    for s in range(counts.size):
        if counts[s] > 0 and lengths[s] == 0:
            return SYMBOL
        bits += counts[s] * np.int64(lengths[s])
    return int(bits)


@kernel
def entropy(counts: Array, out: Array) -> int:
    """Fill ``float64[1]`` `out` with the bits that ``int64`` `counts` of symbols take at the least."""
    total, bits = np.int64(0), 0.0
    for s in range(counts.size):
        total += counts[s]
    for s in range(counts.size):
        if counts[s] > 0:
            bits += np.float64(counts[s]) * np.log2(np.float64(total) / np.float64(counts[s]))
    out[0] = max(bits, np.float64(total))  # no code is shorter than a bit
    return OK


@kernel
def assign_codes(lengths: Array, codes: Array) -> int:
    """Assign each symbol its canonical code, in the order of (length, symbol), bits reversed.

    Parameters
    ----------
    lengths
        ``uint8[k]``, each at most `MAX_BITS`.
    codes
        ``uint32[k]``, filled with ``code | length << 16``.

    Returns
    -------
    int
        `OK`, or `TABLE` unless the lengths make a complete prefix code.
    """
    tally = np.zeros(MAX_BITS + 2, np.int64)
    for s in range(lengths.size):
        if lengths[s] > MAX_BITS:
            return TABLE
        tally[lengths[s]] += 1
    space = 0
    for bits in range(1, MAX_BITS + 1):
        space += tally[bits] << (MAX_BITS - bits)
    if space != TABLE_SIZE:
        return TABLE
    first = np.zeros(MAX_BITS + 2, np.int64)
    tally[0] = 0
    for bits in range(1, MAX_BITS + 1):
        first[bits] = (first[bits - 1] + tally[bits - 1]) << 1
    for s in range(lengths.size):
        size = np.int64(lengths[s])
        codes[s] = 0
        if size == 0:
            continue
        code = first[size]
        first[size] += 1
        reversed_ = 0
        for _ in range(size):
            reversed_ = (reversed_ << 1) | (code & 1)
            code >>= 1
        codes[s] = np.uint32(reversed_ | (size << 16))
    return OK


@kernel(inline=True)
def _put_nibble(out: Array, at: int, value: Any) -> int:
    out[at >> 1] |= np.uint8(value << 4 * (at & 1))
    return at + 1


@kernel
def write_lengths(lengths: Array, out: Array) -> int:
    """Write lengths in nibbles: 0 to 12 a length, 13 a run of zeros, 14 a repeat of the last one.

    Runs are written so only where that is shorter, and zeros at the end not at all.

    Parameters
    ----------
    lengths
        ``uint8[k]``, each at most `MAX_BITS`.
    out
        ``uint8[ceil(k / 2)]`` of zeros, filled; the first nibble is the low one.

    Returns
    -------
    int
        Bytes used.
    """
    end, at, s = lengths.size, 0, 0
    while end > 0 and lengths[end - 1] == 0:
        end -= 1
    while s < end:
        value, run = np.int64(lengths[s]), 1
        most = 258 if value == 0 else 19
        while s + run < end and run < most and lengths[s + run] == value:
            run += 1
        if value == 0 and run >= 3:
            at = _put_nibble(out, at, ZEROS)
            at = _put_nibble(out, at, (run - 3) & 15)
            at = _put_nibble(out, at, (run - 3) >> 4)
        elif run >= 4:
            at = _put_nibble(out, at, value)
            at = _put_nibble(out, at, REPEAT)
            at = _put_nibble(out, at, run - 4)
        else:
            for _ in range(run):
                at = _put_nibble(out, at, value)
        s += run
    return (at + 1) >> 1


@kernel
def fill_table(codes: Array, values: Array, table: Array, sizes: Array) -> int:
    """Expand a complete code into look-up tables over `MAX_BITS` bits.

    Parameters
    ----------
    codes
        ``uint32[k]`` as from `assign_codes`.
    values
        What each symbol decodes to, ``[k]`` of the dtype of `table`.
    table, sizes
        ``[TABLE_SIZE]`` values, and ``uint8[TABLE_SIZE]`` code lengths; filled.
    """
    for s in range(codes.size):
        bits = np.int64(codes[s] >> np.uint32(16))
        if bits == 0:
            continue
        code = np.int64(codes[s] & np.uint32(0xFFFF))
        for at in range(code, TABLE_SIZE, 1 << bits):
            table[at] = values[s]
            sizes[at] = bits
    return OK


@kernel
def join_codes(table: Array, sizes: Array, per: int, joined: Array, moves: Array) -> int:
    """Join the codes that lie whole in each window of `MAX_BITS` bits, of sixteen bytes at most.

    Parameters
    ----------
    table, sizes
        As from `fill_table`, ``uint64`` and ``uint8``: a symbol stands for `per` bytes (1, 2 or 4), the first
        one lowest.
    joined
        ``uint64[TABLE_SIZE, 2]``, filled: the bytes of all symbols whose codes lie whole in the window.
    moves
        ``uint16[TABLE_SIZE]``, filled: bits of these codes in the low six, bits of the first one in four
        above, their bytes in the high five.
    """
    for at in range(TABLE_SIZE):
        joined[at, 0] = joined[at, 1] = 0
        used, nbytes, size = np.int64(0), 0, np.int64(sizes[at])
        while used + size <= MAX_BITS and nbytes + per <= 16:
            joined[at, nbytes // 8] |= table[at >> used] << np.uint64(nbytes % 8 * 8)
            used += size
            nbytes += per
            size = np.int64(sizes[at >> used])
        moves[at] = np.uint16(used | (np.int64(sizes[at]) << 6) | (nbytes << 11))
    return OK


@kernel
def histogram(symbols: Array, counts: Array) -> int:
    """Add how often each symbol of ``uint8`` `symbols` occurs to ``int64[256]`` `counts`."""
    part = np.zeros((8, 256), np.uint32)  # eight tables: equal neighbours do not wait for each other
    for i in range(np.uint64(symbols.size)):
        part[i & _7, symbols[i]] += np.uint32(1)
    for table in range(8):
        for s in range(256):
            counts[s] += np.int64(part[table, s])
    return OK
