"""Coded levels onto the track: segment by segment, so that levels are still in cache when they are added.

Who decodes, takes escapes and adds by three calls goes to memory between them, and waits for Python's lock
three times.
"""

from __future__ import annotations

from typing import Any

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.kernels.escapes import decode_escapes
from lcstore.kernels.grid import add_levels
from lcstore.kernels.pack import decode_pack
from lcstore.kernels.runs import SIDE, decode_runs
from lcstore.kernels.status import OK


@kernel(inline=True)
def _add(
    words: Array,
    start: Any,
    rows: Array,
    levels: Array,
    segment: int,
    least: int,
    places: Array,
    values: Array,
    scales: Array,
    block: int,
    sign: int,
    track: Array,
) -> int:
    """Add the decoded levels of some segments, and what is escaped there; return a status."""
    found = decode_escapes(words, start, rows, levels, segment, least, places, values)
    if found < 0:
        return found
    return add_levels(levels, places[:found], values[:found], scales, block, sign, track)


@kernel
def add_pack(
    words: Array,
    start: int,
    directory: Array,
    joined: Array,
    moves: Array,
    per: int,
    levels: Array,
    segment: int,
    least: int,
    places: Array,
    values: Array,
    scales: Array,
    block: int,
    sign: int,
    track: Array,
) -> int:
    """Decode some segments of the dense coder and add them to the track.

    Parameters
    ----------
    words, start, directory, joined, moves, per
        As for :func:`lcstore.kernels.pack.decode_pack`.
    levels
        ``int8``: room for the levels of a segment.
    segment, least
        Elements per segment, smallest magnitude of an escaped level.
    places, values
        ``int64``: room for the escapes of a segment.
    scales, block, sign
        As for :func:`lcstore.kernels.grid.add_levels`; blocks are powers of two, as segments are.
    track
        ``int32[n]`` or ``int64[n]``: the elements of these segments, changed in place.

    Returns
    -------
    int
        `OK`, or the status of what does not decode: all before its segment is added then.
    """
    for s in range(directory.shape[0]):
        low, row = s * segment, directory[s : s + 1]
        part = track[low : low + segment]
        some = levels[: part.size]
        status = decode_pack(words, start, row, joined, moves, per, some, segment)
        if status == OK:
            here = scales[low // block :]
            status = _add(words, start, row, some, segment, least, places, values, here, block, sign, part)
        if status != OK:
            return status
        for j in range(directory.shape[1]):
            start += directory[s, j]
    return OK


@kernel
def add_runs(
    words: Array,
    start: int,
    directory: Array,
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
    track: Array,
) -> int:
    """Decode some segments of tokens and add them to the track; the rest is as of `add_pack`.

    `table` and `sizes` are as for :func:`lcstore.kernels.runs.decode_runs`. There is room for the levels and
    escapes of `SIDE` segments.
    """
    for s in range(0, directory.shape[0], SIDE):
        low, rows = s * segment, directory[s : s + SIDE]
        part = track[low : low + SIDE * segment]
        some = levels[: part.size]
        status = decode_runs(words, start, rows, table, sizes, some, segment)
        if status == OK:
            here = scales[low // block :]
            status = _add(words, start, rows, some, segment, least, places, values, here, block, sign, part)
        if status != OK:
            return status
        for row in rows:
            start += int(row[0]) + int(row[1])
    return OK
