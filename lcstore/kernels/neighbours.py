"""Levels told by their neighbours on a grid: differences along axes, and cubic interpolation between points.

All arithmetic is of integers, and wraps around: every machine restores the same, whatever the levels are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK

#: Interpolation counts in so many parts of a level, log2.
PARTS = 4
_PART = 2.0**-PARTS


@kernel
def grid_levels(values: Array, inverse: float, rounding: float, limit: float, levels: Array) -> int:
    """Round values to multiples of one step size.

    Parameters
    ----------
    values
        ``float32[n]`` or ``float64[n]``.
    inverse
        1 / step size.
    rounding
        Part of a step size added to the magnitude before it is cut: 0.5 rounds to nearest.
    limit
        Magnitude that a level must stay below.
    levels
        ``int32[n]`` or ``int64[n]``, filled; 0 where there is no such level.

    Returns
    -------
    int
        How many values have none: they are not finite, or too large.
    """
    kind = levels.dtype.type
    bad = np.int64(0)
    for i in range(values.size):
        size = abs(np.float64(values[i])) * inverse + rounding
        fits = size < limit
        bad += not fits
        level = kind(size if fits else 0.0)
        levels[i] = -level if values[i] < 0 else level
    return int(bad)


@kernel
def difference(levels: Array, length: int, inner: int) -> int:
    """Subtract from each element the one before it along an axis, in place; from the first nothing.

    Parameters
    ----------
    levels
        ``uint32[n]`` or ``uint64[n]``.
    length, inner
        Elements along the axis, and from one of them to the next: a multiple of their product is `n`.
    """
    run = length * inner
    for start in range(0, levels.size, run):
        if inner == 1:
            before = levels[start]
            for i in range(start + 1, start + run):
                now = levels[i]
                levels[i] = now - before
                before = now
            continue
        for at in range(start + run - inner, start, -inner):
            row, above = levels[at : at + inner], levels[at - inner : at]
            for j in range(inner):
                row[j] -= above[j]
    return OK


@kernel
def integrate(levels: Array, length: int, inner: int) -> int:
    """Take back what `difference` did: add to each element the one before it."""
    run = length * inner
    for start in range(0, levels.size, run):
        if inner == 1:
            total = levels[start]
            for i in range(start + 1, start + run):
                total += levels[i]
                levels[i] = total
            continue
        for at in range(start + inner, start + run, inner):
            row, above = levels[at : at + inner], levels[at - inner : at]
            for j in range(inner):
                row[j] += above[j]
    return OK


@kernel
def integrate_around(levels: Array, gone: Array, length: int, inner: int) -> int:
    """Add to each element the one before it, as `integrate`; those of ``bool[n]`` `gone` stay or become 0."""
    run, zero = length * inner, levels.dtype.type(0)
    for start in range(0, levels.size, run):
        for i in range(start + inner, start + run):
            levels[i] = zero if gone[i] else levels[i] + levels[i - inner]
    return OK


@kernel(inline=True)
def _between(known: Array, p: Any, far: Any, place: Any, stride: Any, length: Any) -> np.int64:
    """Predict the point at `p` from those `stride` and three times `stride` away along an axis.

    `far` is how far away the nearer ones are in memory, `place` where the point lies along the axis.
    """
    before = np.int64(known[p - far])
    if place + stride >= length:
        return before
    after = np.int64(known[p + far])
    if place < 3 * stride or place + 3 * stride >= length:
        return (before + after) >> 1
    outer = np.int64(known[p - 3 * far]) + np.int64(known[p + 3 * far])
    return (9 * (before + after) - outer + 8) >> 4


@kernel(inline=True)
def _along(axis: Any, passed: Any, stride: Any) -> tuple[Any, Any]:
    """Return the first place along `axis` that a pass along `passed` visits, and how far the next is."""
    if axis == passed:
        return stride, 2 * stride
    return 0, (stride if axis < passed else 2 * stride)


@kernel(inline=True)
def _level(value: np.float64, guess: np.int64, limit: float) -> tuple[np.int64, np.int64]:
    """Return the level from a prediction to a value, both in parts, and 0; or 0 and 1: there is none."""
    if not abs(value) < limit:
        return np.int64(0), np.int64(1)
    return np.int64(np.floor((value - guess) * _PART + 0.5)), np.int64(0)


@kernel
def interpolate(
    values: Array, coding: bool, fine: float, limit: float, shape: Array, known: Array, levels: Array
) -> int:
    """Go over a grid from far points to near ones, each predicted from those that are known already.

    Parameters
    ----------
    values
        ``float32[n]`` or ``float64[n]``; read where `coding`.
    coding
        Whether levels are made of values, or are there.
    fine, limit
        ``2**PARTS`` / step size, and the magnitude that a value times `fine` must stay below.
    shape
        ``int64[3]``, whose product is `n`, and not 0.
    known
        ``int32[n]`` or ``int64[n]``, filled: what is restored, in ``2**-PARTS`` of a level.
    levels
        Of the same dtype, filled where `coding`: what is to be added to the prediction. May be `known`.

    Returns
    -------
    int
        How many values have no level, as of `grid_levels`; theirs is 0, and predicted is what they become.
    """
    n0, n1, n2 = shape[0], shape[1], shape[2]
    bad = np.int64(0)
    if coding:
        levels[0], bad = _level(np.float64(values[0]) * fine, np.int64(0), limit)
    known[0] = np.int64(levels[0]) << PARTS
    stride = np.int64(1)
    while stride < max(n0, n1, n2):
        stride <<= 1
    while stride >= 1:
        for axis in range(3):
            length, far = shape[axis], stride
            for later in range(axis + 1, 3):
                far *= shape[later]
            (b0, s0), (b1, s1) = _along(0, axis, stride), _along(1, axis, stride)
            b2, s2 = _along(2, axis, stride)
            for i in range(b0, n0, s0):
                for j in range(b1, n1, s1):
                    for k in range(b2, n2, s2):
                        p = (i * n1 + j) * n2 + k
                        place = i if axis == 0 else (j if axis == 1 else k)
                        guess = _between(known, p, far, place, stride, length)
                        if coding:
                            levels[p], more = _level(np.float64(values[p]) * fine, guess, limit)
                            bad += more
                        known[p] = guess + (np.int64(levels[p]) << PARTS)
        stride >>= 1
    return int(bad)
