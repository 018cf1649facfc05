"""Levels with signs that say whether they are those of the levels before, where neighbours agree in them."""

from __future__ import annotations

from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.relative import to_relative
from lcstore.coders import format as f

#: Signs are relative where that saves so many bits for each level that is not zero: they are turned back
#: one by one.
_MUST_SAVE: Final = 0.1
#: What it saves is told by pieces of so many levels, with at least so many signs.
GLANCE, _LEAST = 1 << 9, 64


def agree(sample: Array) -> bool:
    """Return whether ``int8`` levels often have the sign of the level before, zeros left out."""
    negative = sample[sample != 0] < 0
    if negative.size < _LEAST:
        return False
    alone, beside = _bits(np.mean(negative)), _bits(np.mean(negative[1:] != negative[:-1]))
    return beside < alone - _MUST_SAVE


def turned(levels: Array, escapes: Array) -> tuple[Array, Array]:
    """Return levels and escapes, as the narrow coders take them, with relative signs, in other memory."""
    levels, escapes = levels.copy(), escapes.copy()
    to_relative(levels, escapes, 1 << f.SEGMENT)
    return levels, escapes


def _bits(share: np.floating) -> float:
    """Return what it takes to say which of two something is, given the share of one of them."""
    shares = np.clip([share, 1 - share], 1e-9, 1)
    return float(-(shares @ np.log2(shares)))
