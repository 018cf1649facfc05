"""Run-level tokens: the sparse coder. One symbol says how many zeros are skipped and which level follows.

symbol = 5 * run class + level class. Runs below 16 have a class each; longer ones four classes an octave up
to 255 and two above, with the rest of the run in extra bits behind the code. Level classes: +1, -1, +2, -2,
escaped. `END` says that the rest of the segment is zero. One stream per segment; an empty one means all zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.bits import at_end, bit_length, finish, lay, mask_of, put_code, window
from lcstore.bitkernels.escapes import put_escape
from lcstore.bitkernels.huffman import MAX_BITS
from lcstore.compiling.ints import bit_count, trailing_zeros
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import LENGTH, OK, SPACE, SYMBOL

END = 255
CLASSES = 48
LEVELS = 5
#: Smallest magnitude that is escaped.
LEAST = 3
#: Segments that are decoded side by side: where a token begins is known only once the one before is decoded.
SIDE = 4

_MASK = np.uint64((1 << MAX_BITS) - 1)
_1 = np.uint64(1)
_3 = np.uint64(3)
_TOP = np.uint64(1 << 63)
#: Levels that are searched at a time for those that are not zero, and how many are found at a time.
_LOOK = 1024
_AT_ONCE = 4
#: Runs below this are looked up: most are, and their classes are what no processor can foretell.
_SHORT = 256


@kernel(inline=True)
def _run_class(run: Any) -> tuple[Any, Any]:
    """Return the class of a run and the number of its extra bits."""
    if run < 16:
        return run, 0
    e = np.int64(bit_length(np.uint64(run))) - 1
    if e < 8:
        return 16 + (e - 4) * 4 + ((run >> (e - 2)) & 3), e - 2
    return 32 + (e - 8) * 2 + ((run >> (e - 1)) & 1), e - 1


@kernel(inline=True)
def _short_runs(symbols: Array, masks: Array) -> None:
    """Fill for each run below 256 the symbol with level class 0, and the bits of the run that are extra."""
    for run in range(symbols.size):
        kind, bits = _run_class(run)
        symbols[run] = np.uint8(kind * LEVELS)
        masks[run] = np.uint8((1 << bits) - 1)


@kernel(inline=True)
def _token(run: Any, level: Any, classes: Array, starts: Array, masks: Array) -> tuple[Any, Any]:
    """Return the symbol of a run and the level behind it, and what its extra bits hold."""
    kind = classes[np.uint8(level)]
    if run < _SHORT:
        return np.uint8(starts[run] + kind), np.uint32(run) & np.uint32(masks[run])
    start, bits = _run_class(np.int64(run))
    return np.uint8(start * LEVELS + kind), np.uint32(np.int64(run) & ((1 << bits) - 1))


@kernel(inline=True)
def _find(levels: Array, places: Array) -> Any:
    """Fill where levels are not zero; give their number. `places` has room for 64 more than there are levels.

    So many at a time, whether there are so many or not: a loop over those that there are ends at random, and
    costs more in wrong guesses than in work.
    """
    flags = np.zeros(_LOOK, np.uint8)
    words = flags.view(np.uint64)
    found = np.int64(0)
    for low in range(0, levels.size, _LOOK):
        some = levels[low : low + _LOOK]
        flags[some.size :] = 0
        for i in range(some.size):
            flags[i] = np.uint8(some[i] != 0)
        for w in range(0, words.size, 8):
            mask = mask_of(words, w)
            count = np.int64(bit_count(mask))
            for done in range(0, 64, _AT_ONCE):
                if done >= count:
                    break
                for k in range(_AT_ONCE):
                    # Behind the last one any place will do; only zero itself has no trailing zeros.
                    places[found + done + k] = low + 8 * w + np.int64(trailing_zeros(mask | _TOP))
                    mask &= mask - _1
            found += count
    return found


@kernel
def tokenize(levels: Array, segment: int, symbols: Array, extras: Array, counts: Array) -> int:
    """Turn levels into tokens.

    Parameters
    ----------
    levels
        ``int8[n]``.
    segment
        Elements per segment; tokens start afresh in each.
    symbols, extras
        ``uint8`` and ``uint32``, filled: symbols, and what the extra bits of each hold.
    counts
        ``int64[segments]``, filled: tokens of each segment.

    Returns
    -------
    int
        Number of tokens, or `SPACE`.
    """
    at = np.uint64(0)  # unsigned: of other places it is asked each time whether they are negative
    places = np.empty(segment + 64, np.int32)
    classes = np.full(256, 4, np.uint8)
    classes[1], classes[255], classes[2], classes[254] = 0, 1, 2, 3
    starts, masks = np.empty(_SHORT, np.uint8), np.empty(_SHORT, np.uint8)
    _short_runs(starts, masks)
    for s in range(counts.size):
        low = s * segment
        high = min(low + segment, levels.size)
        begin = at
        part = levels[low:high]
        found = _find(part, places)
        if np.int64(at) + found + 1 > symbols.size:
            return SPACE
        expected = np.int64(0)
        for k in range(found):
            place = np.int64(places[np.uint64(k)])
            run = np.uint64(place - expected)
            symbols[at], extras[at] = _token(run, part[np.uint64(place)], classes, starts, masks)
            at += _1
            expected = place + 1
        if at > begin and expected < part.size:
            symbols[at] = END
            extras[at] = 0
            at += _1
        counts[s] = np.int64(at - begin)
    return int(np.int64(at))


@kernel
def extra_bits(bits: Array) -> int:
    """Fill ``uint8[256]`` with the number of extra bits behind each symbol."""
    bits[:] = 0
    for kind in range(CLASSES):
        if kind < 16:
            n = 0
        elif kind < 32:
            n = (kind - 16) // 4 + 2
        else:
            n = (kind - 32) // 2 + 7
        for level in range(LEVELS):
            bits[kind * LEVELS + level] = n
    return OK


@kernel
def encode_runs(
    levels: Array,
    escapes: Array,
    segment: int,
    symbols: Array,
    extras: Array,
    counts: Array,
    codes: Array,
    payload: Array,
    directory: Array,
) -> int:
    """Code the tokens of all segments.

    Parameters
    ----------
    levels, escapes, segment
        As for :func:`lcstore.bitkernels.pack.encode_pack`.
    symbols, extras, counts
        As from `tokenize`.
    codes
        ``uint32[256]`` as from `assign_codes`.
    payload, directory
        ``uint8``, and ``uint16[segments, 2]``: bytes of the tokens and of the side stream; filled.

    Returns
    -------
    int
        Bytes of `payload` used, or `SPACE`.
    """
    bits, ahead = np.empty(256, np.uint8), np.zeros(256, np.int64)
    extra_bits(bits)
    for symbol in range(CLASSES * LEVELS):
        ahead[symbol] = _run_base(symbol // LEVELS, np.int64(bits[symbol])) + 1
    words, side = np.empty(2 * segment // 4 + 64, np.uint64), np.empty(segment // 2 + 64, np.uint64)
    at = np.int64(0)
    token, taken = 0, 0
    for s in range(counts.size):
        acc, used, to = np.uint64(0), np.uint64(0), np.uint64(0)
        side_acc, side_used, side_to = np.uint64(0), np.uint64(0), np.uint64(0)
        place = np.int64(s * segment)
        for t in range(token, token + counts[s]):
            if np.int64(to) + 4 > words.size or np.int64(side_to) + 4 > side.size:
                return SPACE
            symbol, extra = symbols[np.uint64(t)], np.uint64(extras[np.uint64(t)])
            n = np.uint64(bits[symbol])
            acc, used, to = put_code(words, acc, used, to, codes[symbol], extra, n)
            place += ahead[symbol] + np.int64(extra)
            if symbol % np.uint8(LEVELS) == LEVELS - 1:
                level = np.int64(levels[place - 1])
                if level == -128:
                    level = escapes[taken]
                    taken += 1
                side_acc, side_used, side_to = put_escape(side, side_acc, side_used, side_to, level, LEAST)
        token += counts[s]
        directory[s, 0] = size = finish(words, acc, used, to)
        directory[s, 1] = side_size = finish(side, side_acc, side_used, side_to)
        at = lay(words, size, payload, at)
        if at >= 0:
            at = lay(side, side_size, payload, at)
        if at < 0:
            return SPACE
    return int(at)


@kernel(inline=True)
def _run_base(kind: Any, bits: Any) -> Any:
    """Return the shortest run of a class that has `bits` extra bits."""
    if kind < 16:
        return kind
    if kind < 32:
        return (4 + ((kind - 16) & 3)) << bits
    return (2 + ((kind - 32) & 1)) << bits


@kernel(checked=True)
def decode_runs(
    words: Array,
    start: int,
    directory: Array,
    table: Array,
    sizes: Array,
    levels: Array,
    segment: int,
) -> int:
    """Decode the tokens of some segments.

    Parameters
    ----------
    words, start, directory
        As for :func:`lcstore.bitkernels.pack.decode_pack`.
    table, sizes
        As from `fill_table`; `table` holds symbols.
    levels
        ``int8``, filled; -128 where a level is escaped.
    segment
        Elements per segment.

    Returns
    -------
    int
        `OK`, `LENGTH` or `SYMBOL`.
    """
    base = np.zeros(256, np.int64)
    bits = np.zeros(256, np.uint8)
    value = np.zeros(256, np.int8)
    extra_bits(bits)
    for symbol in range(CLASSES * LEVELS):
        kind = symbol // LEVELS
        base[symbol] = _run_base(kind, np.int64(bits[symbol]))
        level = symbol - kind * LEVELS
        value[symbol] = -128 if level == 4 else (1 + level // 2) * (1 - 2 * (level & 1))
    positions, stops = np.empty(SIDE, np.uint64), np.empty(SIDE, np.uint64)
    places, ends = np.empty(SIDE, np.int64), np.empty(SIDE, np.int64)
    rows, at = directory.shape[0], np.int64(start)
    for s in range(0, rows, SIDE):
        side = min(SIDE, rows - s)
        for j in range(side):
            positions[j] = np.uint64(at) << _3
            stops[j] = positions[j] + (np.uint64(directory[s + j, 0]) << _3)
            places[j], ends[j] = (s + j) * segment, min((s + j + 1) * segment, levels.size)
            levels[places[j] : ends[j]] = 0
            at += np.int64(directory[s + j, 0]) + np.int64(directory[s + j, 1])
        busy = True
        while busy:
            busy = False
            for j in range(side):
                position, place = positions[j], places[j]
                if position >= stops[j] or place >= ends[j]:
                    continue
                busy = True
                look = window(words, position)
                code = look & _MASK
                symbol = table[code]
                n = np.uint64(sizes[code])
                extra = np.uint64(bits[symbol])
                positions[j] = position + n + extra
                if symbol >= CLASSES * LEVELS:
                    if symbol != END:
                        return SYMBOL
                    places[j] = ends[j]
                    continue
                place += base[symbol] + np.int64((look >> n) & ((_1 << extra) - _1))
                if place >= ends[j]:
                    return SYMBOL
                levels[place] = value[symbol]
                places[j] = place + 1
        for j in range(side):
            if not at_end(positions[j], stops[j] >> _3) or (places[j] < ends[j] and directory[s + j, 0] != 0):
                return LENGTH
    return OK
