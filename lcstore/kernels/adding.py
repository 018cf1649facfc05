"""Coded levels of frames, one after another, onto the block of a track that they meet in.

Levels of equal step sizes are added to each other first, as a track is four or eight times as wide. Segments
are added one by one, in cache; and all by one call, since between two a thread waits for Python's lock.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.escapes import decode_escapes
from lcstore.bitkernels.pack import decode_pack
from lcstore.bitkernels.relative import from_relative
from lcstore.bitkernels.runs import SIDE, decode_runs
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK
from lcstore.kernels.grid import add_levels

#: Columns of what `add_frames` is told of each frame: its elements; the first byte of its payload; the place
#: of its directory, and entries of a segment; levels per symbol, 0 where segments are of tokens; the smallest
#: magnitude of an escaped level; the place of its scales, and elements per scale (a power of two, as segments
#: are); 1 to add, -1 to take back; whether signs of levels are relative.
COUNT, START, DIRECTORY, ENTRIES, PER, LEAST, SCALES, BLOCK, SIGN, RELATIVE = COLUMNS = tuple(range(10))


@kernel(inline=True)
def _add_segments(
    words: Array, start: Any, directory: Array, tables: Any, how: Any, room: Any, scales: Array, onto: Any
) -> Any:
    """Decode segments onto the levels that wait (or be the first), and what is escaped onto the track."""
    joined, moves, symbols, sizes = tables
    per, segment, least, block, sign, relative = how
    (levels, places, values), (sums, first, track) = room, onto
    side = 1 if per else SIDE
    for s in range(0, directory.shape[0], side):
        low, rows = s * segment, directory[s : s + side]
        part, whole = track[low : low + side * segment], sums[low : low + side * segment]
        some = whole if first else levels[: part.size]
        if per:
            status = decode_pack(words, start, rows, joined, moves, per, some, segment)
        else:
            status = decode_runs(words, start, rows, symbols, sizes, some, segment)
        if status != OK:
            return status
        found = decode_escapes(words, start, rows, some, segment, least, places, values)
        if found < 0:
            return found
        if relative:
            from_relative(some, places[:found], values[:found], segment)
        if not first:
            for i in range(some.size):
                whole[i] = np.int8(whole[i] + some[i])
        here = scales[low // block :]
        add_levels(some[:0], places[:found], values[:found], here, block, sign, part)
        for row in rows:
            for size in row:
                start += int(size)
    return OK


@kernel
def add_frames(
    low: int,
    words: Array,
    frames: Array,
    directories: Array,
    joined: Array,
    moves: Array,
    symbols: Array,
    sizes: Array,
    scales: Array,
    segment: int,
    levels: Array,
    places: Array,
    values: Array,
    sums: Array,
    track: Array,
) -> int:
    """Add the levels of frames, from element `low` on, to a block of the track.

    Parameters
    ----------
    low
        Element of the frames that the block begins with: a segment does.
    words
        ``uint64``: payloads, each with its padding.
    frames
        ``int64[k, 10]``; see `COLUMNS`.
    directories, scales
        ``uint16`` and ``int16``: those of all frames.
    joined, moves, symbols, sizes
        Tables of `decode_pack` and of `decode_runs`, ``[k, ...]``; a frame has two.
    segment
        Elements per segment.
    levels, places, values, sums
        ``int8``, ``int64``, ``int64``, ``int8``: room for levels and escapes of `SIDE` segments, and for the
        levels of the block.
    track
        ``int32[n]`` or ``int64[n]``, changed in place. Frames may end before it does.

    Returns
    -------
    int
        k, or the number of the first frame that does not decode: the block means nothing then.
    """
    room = levels, places, values
    left, size, other, block, sign = 0, 0, 0, 1, 1  # of the levels that wait
    for k in range(frames.shape[0]):
        some = min(track.size, frames[k, COUNT] - low)
        if some <= 0:
            continue
        entries, least, step, turn = frames[k, ENTRIES], frames[k, LEAST], frames[k, BLOCK], frames[k, SIGN]
        at = frames[k, DIRECTORY] + low // segment * entries
        behind = at + (some + segment - 1) // segment * entries
        start, scale = frames[k, START], frames[k, SCALES] + low // step
        for entry in directories[frames[k, DIRECTORY] : at]:
            start += np.int64(entry)
        first = least - 1 > left or some != size or step != block or turn != sign
        if not first:
            for b in range((some + block - 1) // block):
                first |= scales[scale + b] != scales[other + b]
        if first:
            add_levels(sums[:size], places[:0], values[:0], scales[other:], block, sign, track[:size])
            left, size, other, block, sign = 127, some, scale, step, turn
        left -= least - 1
        directory = directories[at:behind].reshape(-1, entries)
        tables = joined[k], moves[k], symbols[k], sizes[k]
        how = frames[k, PER], segment, least, step, turn, frames[k, RELATIVE]
        onto = sums[:some], first, track[:some]
        if _add_segments(words, start, directory, tables, how, room, scales[scale:], onto) != OK:
            return int(k)
    add_levels(sums[:size], places[:0], values[:0], scales[other:], block, sign, track[:size])
    return int(frames.shape[0])
