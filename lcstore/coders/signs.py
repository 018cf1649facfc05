"""Levels with signs that say whether they are those of the levels before, where neighbours agree in them."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.relative import to_relative
from lcstore.coders import format as f

#: Relative signs are tried where two neighbours have the same one more often than by chance, by this much.
_AGREE: Final = 0.1
#: Whether they do is looked at in pieces of so many levels.
GLANCE: Final = 1 << 9


class Signed(NamedTuple):
    """Levels and escapes as the narrow coders take them, and whether their signs are relative."""

    levels: Array
    escapes: Array
    relative: bool = False

    def turned(self) -> Signed:
        """Return them with relative signs, in memory of its own."""
        levels, escapes = self.levels.copy(), self.escapes.astype(np.int64)
        to_relative(levels, escapes, 1 << f.SEGMENT)
        return Signed(levels, escapes, relative=True)


def agree(sample: Array) -> bool:
    """Return whether ``int8`` levels often have the sign of the level before, zeros left out."""
    negative = sample[sample != 0] < 0
    if negative.size < 2:
        return False
    share = float(np.mean(negative))
    return float(np.mean(negative[1:] == negative[:-1])) > share**2 + (1 - share) ** 2 + _AGREE
