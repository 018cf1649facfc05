"""Position-weighted 64-bit sums: a digest that is linear in the integers it covers.

``digest(n) = sum_j w(j) n_j  mod 2**64`` with ``w(j)`` a fixed odd-looking mix of the position `j` inside
the tensor. Linear, so ``digest(n + d) = digest(n) + digest(d)``: a delta carries the change of its target's
digest. It guards against accidents; stored objects carry a hash against substitution.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_ONE = np.uint64(1)


@kernel(inline=True)
def weight(j: np.uint64) -> np.uint64:
    """Return the weight of position `j`."""
    w = (j + _ONE) * _MIX
    return w ^ (w >> _FOLD)


@kernel(inline=True)
def digest_from(values: Array, low: Any, high: Any, start: np.uint64) -> np.uint64:
    """Return the digest of ``values[low:high]``, of which the first has position `start`."""
    total, mixed = np.uint64(0), (start + _ONE) * _MIX
    for i in range(np.uint64(low), np.uint64(high)):  # a place that may be negative is looked at one by one
        total += (mixed ^ (mixed >> _FOLD)) * np.uint64(np.int64(values[i]))
        mixed += _MIX  # a product for each position takes longer
    return total


@kernel
def digest_pieces(values: Array, at: Array, size: Array, start: Array, out: Array) -> int:
    """Add the digest of each of several pieces of `values` to its place in `out`.

    Parameters
    ----------
    values
        Integers of any width. Signed ones are extended by their sign.
    at, size, start
        ``int64[pieces]``: where each begins in `values`, how many it has, and the position of the first of
        them inside its tensor.
    out
        ``uint64[pieces]``, added to.
    """
    for p in range(at.size):
        out[p] += digest_from(values, at[p], at[p] + size[p], np.uint64(start[p]))
    return 0


@kernel
def digest_runs(
    values: Array, first: int, words: int, extents: Array, whole: Array, start: Array, out: Array
) -> int:
    """Add the digest of a part of a rectangle of a tensor, at the positions of the tensor, to ``out[0]``.

    Parameters
    ----------
    values
        Integers of any width, `words` for each element, from element `first` of the rectangle on.
    first, words
        Number of the first element, and integers for each.
    extents, whole, start
        ``int64[d]``: shape of the rectangle, shape of the tensor, and where in that the rectangle begins.
    out
        ``uint64[1]``, added to.
    """
    total = np.uint64(0)
    run, count = extents[extents.size - 1], values.size // words
    done = 0
    while done < count:
        left, position, stride = first + done, 0, 1
        for d in range(extents.size - 1, -1, -1):
            position += (left % extents[d] + start[d]) * stride
            left //= extents[d]
            stride *= whole[d]
        size = min(run - (first + done) % run, count - done) * words
        total += digest_from(values, done * words, done * words + size, np.uint64(position * words))
        done += size // words
    out[0] += total
    return 0
