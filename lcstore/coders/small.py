"""Levels of which few are large: these are listed apart, and the others take a byte each."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.status import SPACE

#: Narrow coders take no more escapes than one level in so many.
_ESCAPED_AT_MOST: Final = 32
#: Stands for a level that is listed apart; and the largest that is not.
ESCAPED: Final = -128
_LARGEST: Final = 127
#: Levels that are looked at in one go, while they are in cache.
_SPAN: Final = 1 << 15


class Small(NamedTuple):
    """Levels of which few are large, as the narrow coders take them.

    Attributes
    ----------
    levels
        ``int8[n]``, contiguous; `ESCAPED` where the level is the next of `escapes`.
    escapes
        ``int64[m]``: levels of magnitude above 127, in the order of the elements.
    """

    levels: Array
    escapes: Array

    @classmethod
    def room(cls, size: int) -> Small:
        """Return so many levels of zero, and memory for as many escapes as the narrow coders take."""
        return cls(np.zeros(size, np.int8), np.empty(size // _ESCAPED_AT_MOST + 16, np.int64))

    @classmethod
    def of(cls, levels: Array) -> Small | None:
        """Return ``int32[n]`` or ``int64[n]`` levels so; None where too many are large."""
        room = cls.room(levels.size)
        found = narrow_levels(levels, *room)
        return None if found < 0 else cls(room.levels, room.escapes[:found])

    def places(self) -> Array:
        """Return where the escapes are."""
        return np.flatnonzero(self.levels == ESCAPED) if self.escapes.size else np.empty(0, np.int64)

    def whole(self) -> Array:
        """Return the levels as ``int64[n]``."""
        levels = self.levels.astype(np.int64)
        levels[self.places()] = self.escapes
        return levels


def narrow_levels(levels: Array, narrow: Array, escapes: Array) -> int:
    """Fill levels as the narrow coders take them: small ones as they are, the others in a list.

    Parameters
    ----------
    levels
        ``int32[n]`` or ``int64[n]``.
    narrow
        ``int8[n]``, filled; `ESCAPED` where the level is in `escapes`.
    escapes
        ``int64[m]``, filled: the levels of magnitude above 127, in order.

    Returns
    -------
    int
        Number of escapes, or `SPACE`.
    """
    found = 0
    for low in range(0, levels.size, _SPAN):
        some, coded = levels[low : low + _SPAN], narrow[low : low + _SPAN]
        np.copyto(coded, some, casting="unsafe")
        if some.max() <= _LARGEST and some.min() >= -_LARGEST:
            continue
        far = np.flatnonzero((some > _LARGEST) | (some < -_LARGEST))
        if found + far.size > escapes.size:
            return SPACE
        coded[far] = ESCAPED
        escapes[found : found + far.size] = some[far]
        found += far.size
    return found
