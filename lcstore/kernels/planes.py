"""Words to byte planes and back: what is alike in neighbouring values lies together, and codes well.

A float's word is turned left by one bit first, so that its exponent fills one byte and its sign joins the
mantissa (which cannot be compressed anyway).
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK

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
        if words.itemsize == 4 and turn:
            low0, low1, low2, low3 = places[0] + low, places[1] + low, places[2] + low, places[3] + low
            _split_four(part, room[low0:], room[low1:], room[low2:], room[low3:])
            continue
        for p in range(places.size):
            at = places[p] + low
            _split(part, turn, p, room[at : at + part.size])
    return OK


@kernel(inline=True)
def _split_four(words: Array, first: Array, second: Array, third: Array, top: Array) -> None:
    """Spread turned words of four bytes: most anchors are of these; one loop takes a third of the time."""
    for i in range(words.size):
        word = np.uint32(words[i])
        turned = np.uint32(np.uint32(word << np.uint32(1)) | np.uint32(word >> np.uint32(31)))
        first[i] = np.uint8(turned)
        second[i] = np.uint8(turned >> np.uint32(8))
        third[i] = np.uint8(turned >> np.uint32(16))
        top[i] = np.uint8(turned >> np.uint32(24))


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
def join_four(first: Array, second: Array, third: Array, top: Array, words: Array) -> int:
    """Put four byte planes of as many ``uint32`` words together, and turn each word back.

    As `join_plane` for each and `turn_back`, in one pass.
    """
    for i in range(words.size):
        turned = np.uint32(
            np.uint32(first[i])
            | np.uint32(np.uint32(second[i]) << np.uint32(8))
            | np.uint32(np.uint32(third[i]) << np.uint32(16))
            | np.uint32(np.uint32(top[i]) << np.uint32(24))
        )
        words[i] = np.uint32(np.uint32(turned >> np.uint32(1)) | np.uint32(turned << np.uint32(31)))
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
