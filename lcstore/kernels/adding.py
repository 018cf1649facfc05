"""Coded levels onto others, and what is escaped onto the track: segment by segment, so that all are in cache.

Levels of equal step sizes are added to each other first, as a track is four or eight times as wide. Who
decodes, takes escapes and adds by three calls goes to memory between them, and waits for Python's lock three
times.
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.kernels.escapes import decode_escapes
from lcstore.kernels.grid import add_levels
from lcstore.kernels.pack import decode_pack
from lcstore.kernels.runs import SIDE, decode_runs
from lcstore.kernels.status import OK


@kernel
def add_coded(
    words: Array,
    start: int,
    directory: Array,
    joined: Array,
    moves: Array,
    per: int,
    table: Array,
    sizes: Array,
    levels: Array,
    segment: int,
    least: int,
    places: Array,
    values: Array,
    scales: Array,
    block: int,
    sign: int,
    sums: Array,
    first: bool,
    track: Array,
) -> int:
    """Decode some segments and add them to levels that wait for their track.

    Parameters
    ----------
    words, start, directory, joined, moves, per
        As for :func:`lcstore.kernels.pack.decode_pack`; `per` is 0 where segments are of tokens.
    table, sizes
        As for :func:`lcstore.kernels.runs.decode_runs`; of tokens alone.
    levels
        ``int8``: room for the levels of `SIDE` segments.
    segment, least
        Elements per segment, smallest magnitude of an escaped level.
    places, values
        ``int64``: room for the escapes of `SIDE` segments.
    scales, block, sign
        As for :func:`lcstore.kernels.grid.add_levels`; blocks are powers of two, as segments are.
    sums, first
        ``int8[n]``: what levels are added to, in place; filled with them where they are the `first`.
    track
        ``int32[n]`` or ``int64[n]``: the elements of these segments. Escapes are added to it.

    Returns
    -------
    int
        `OK`, or the status of what does not decode: all before its segments is added then.
    """
    side = 1 if per else SIDE
    for s in range(0, directory.shape[0], side):
        low, rows = s * segment, directory[s : s + side]
        part, whole = track[low : low + side * segment], sums[low : low + side * segment]
        some = whole if first else levels[: part.size]
        if per:
            status = decode_pack(words, start, rows, joined, moves, per, some, segment)
        else:
            status = decode_runs(words, start, rows, table, sizes, some, segment)
        if status != OK:
            return status
        found = decode_escapes(words, start, rows, some, segment, least, places, values)
        if found < 0:
            return found
        if not first:
            for i in range(some.size):
                whole[i] = np.int8(whole[i] + some[i])
        here = scales[low // block :]
        add_levels(some[:0], places[:found], values[:found], here, block, sign, part)
        for row in rows:
            for size in row:
                start += int(size)
    return OK
