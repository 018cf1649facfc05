"""Words to byte planes and back: what is alike in neighbouring values lies together, and codes well.

A float's word is turned left by one bit first, so that its exponent fills one byte and its sign joins the
mantissa (which cannot be compressed anyway).
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.kernels.status import OK

#: Words that are spread at a time: they and their planes stay in the first-level cache.
_RUN = 1 << 12


@kernel
def split_planes(words: Array, turn: int, room: Array, places: Array) -> int:
    """Spread words over byte planes.

    Parameters
    ----------
    words
        ``uint8[n]``, ``uint16[n]``, ``uint32[n]`` or ``uint64[n]``.
    turn
        1 to turn each word left by one bit first, 0 to take it as it is.
    room
        ``uint8``: filled where the planes are to be.
    places
        ``int64[itemsize]``: where in it each plane begins, the least significant byte's first.
    """
    for low in range(0, words.size, _RUN):
        part = words[low : low + _RUN]
        for p in range(places.size):
            at = places[p] + low
            _split(part, turn, p, room[at : at + part.size])
    return OK


@kernel(inline=True)
def _split(words: Array, turn: int, index: int, plane: Array) -> None:
    kind = words.dtype.type
    width = np.uint64(8 * words.itemsize - 1)
    shift = np.uint64(8 * index)
    if turn:
        for i in range(words.size):
            word = np.uint64(words[i])
            plane[i] = np.uint8(np.uint64(kind((word << np.uint64(1)) | (word >> width))) >> shift)
    else:
        for i in range(words.size):
            plane[i] = np.uint8(np.uint64(words[i]) >> shift)


@kernel
def join_plane(plane: Array, index: int, words: Array) -> int:
    """Put one byte plane into place: ``words |= plane << 8 * index`` (plane 0 sets)."""
    kind = words.dtype.type
    shift = np.uint64(8 * index)
    if index == 0:
        for i in range(words.size):
            words[i] = kind(plane[i])
    else:
        for i in range(words.size):
            words[i] |= kind(np.uint64(plane[i]) << shift)
    return OK


@kernel
def turn_back(words: Array) -> int:
    """Turn each word right by one bit."""
    kind = words.dtype.type
    width = np.uint64(8 * words.itemsize - 1)
    for i in range(words.size):
        word = np.uint64(words[i])
        words[i] = kind((word >> np.uint64(1)) | (word << width))
    return OK
