"""Signs of levels beside that of the level before: neighbours in a row of weights often move one way."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK


@kernel
def to_relative(levels: Array, escapes: Array, segment: int) -> int:
    """Turn each level that has a negative one before it, zeros left out, in its segment.

    Parameters
    ----------
    levels, escapes
        ``int8[n]``, -128 where the level is the next of ``int64[m]``; changed in place.
    segment
        Elements of a segment.

    Returns
    -------
    int
        `OK`.
    """
    taken = 0
    for low in range(0, levels.size, segment):
        sign = np.int8(0)  # -1 behind a negative level
        for i in range(low, min(low + segment, levels.size)):
            level = levels[i]
            if level == -128:
                escape = escapes[taken]
                escapes[taken] = -escape if sign else escape
                taken += 1
                sign = np.int8(-1) if escape < 0 else np.int8(0)
            else:  # without a branch: where zeros lie, nobody can guess
                levels[i] = np.int8((level ^ sign) - sign)
                moves = np.int8(-np.int8(level != 0))
                sign = np.int8((sign & ~moves) | (level >> 7))
    return OK


@kernel
def from_relative(levels: Array, places: Array, escapes: Array, segment: int) -> int:
    """Turn levels back.

    Parameters
    ----------
    levels
        ``int8[n]``, changed in place: zero where a level is escaped.
    places, escapes
        ``int64[m]``: where these are, in rising order, and what they are; the latter changed in place.
    segment
        Elements of a segment.

    Returns
    -------
    int
        `OK`.
    """
    for k in range(places.size):
        levels[places[k]] = -1 if escapes[k] < 0 else 1
    for low in range(0, levels.size, segment):
        sign = np.int8(0)
        for i in range(low, min(low + segment, levels.size)):
            level = levels[i]
            levels[i] = np.int8((level ^ sign) - sign)
            sign = np.int8(sign ^ (level >> 7))  # zero changes nothing
    for k in range(places.size):
        if (levels[places[k]] < 0) != (escapes[k] < 0):
            escapes[k] = -escapes[k]
        levels[places[k]] = 0
    return OK
