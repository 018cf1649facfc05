"""Levels with signs that say whether they are those of the levels before, where neighbours agree in them."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels.relative import to_relative
from lcstore.coders import format as f

#: Signs are relative where that saves so many bits for each level that is not zero, and this part of what
#: all levels take: they are turned back one by one.
_MUST_SAVE, _OF_ALL = 0.1, 0.015
#: What it saves is told by pieces of so many levels, with at least so many signs.
GLANCE, _LEAST = 1 << 9, 64


def agree(sample: Array) -> bool:
    """Return whether ``int8`` levels often have the sign of the level before, zeros left out."""
    negative = sample[sample != 0] < 0
    if negative.size < _LEAST:
        return False
    saved = _bits(np.mean(negative)) - _bits(np.mean(negative[1:] != negative[:-1]))
    if saved < _MUST_SAVE:
        return False
    counts = np.bincount(sample.view(np.uint8))
    used = counts[counts > 0]
    return bool(saved * negative.size > _OF_ALL * float(used @ np.log2(sample.size / used)))


def turned(levels: Array, escapes: Array) -> tuple[Array, Array]:
    """Return levels and escapes, as the narrow coders take them, with relative signs, in other memory."""
    levels, escapes = levels.copy(), escapes.copy()
    to_relative(levels, escapes, 1 << f.SEGMENT)
    return levels, escapes


def _bits(share: np.floating) -> float:
    """Return what it takes to say which of two something is, given the share of one of them."""
    shares = np.clip([share, 1 - share], 1e-9, 1)
    return float(-(shares @ np.log2(shares)))
