"""Sums of deltas: the coarsest step sizes that they are whole multiples of, and levels on these.

They are no kernels: a report, or the first night's compaction, would wait for these to be compiled.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lcstore.arrays import Array

#: The step size of a block that holds nothing but zeros.
NO_STEP: Final = -1
#: Odd numbers that may divide levels, by their places among those that step sizes have.
_ODD: Final = ((3, 7), (2, 5), (1, 3))
#: Integers that are looked at in one go, before one that is no multiple ends the search.
_SPAN: Final = 1 << 15


def common_steps(sums: Array, block: int) -> Array:
    """Return log2 of the largest power of two that divides every integer of each block.

    Parameters
    ----------
    sums
        ``int32[n]`` or ``int64[n]``.
    block
        Elements per block.

    Returns
    -------
    int16[blocks]
        One for each block, the last of which may be short; `NO_STEP` where all are zero.
    """
    every = np.bitwise_or.reduceat(sums, np.arange(0, sums.size, block)).astype(np.int64)
    _, octaves = np.frexp((every & -every).astype(np.float64))  # of the lowest bit that any has
    steps: Array = np.where(every == 0, NO_STEP, octaves - 1).astype(np.int16)
    return steps


def to_levels(sums: Array, block: int, steps: Array) -> None:
    """Divide the integers of each block by ``2**step``, in place; they must be multiples of it.

    Parameters
    ----------
    sums, block
        As for `common_steps`.
    steps
        ``int16``, one per block: 0 or more, and less than the integers have bits.
    """
    _shift(np.right_shift, sums, block, steps)


def from_levels(levels: Array, block: int, steps: Array) -> None:
    """Take back what `to_levels` did with the same step sizes."""
    _shift(np.left_shift, levels, block, steps)


def _shift(shift: np.ufunc, values: Array, block: int, steps: Array) -> None:
    if not steps.any():
        return
    whole, by = values.size // block, steps.astype(values.dtype)
    blocks, rest = values[: whole * block].reshape(whole, block), values[whole * block :]
    shift(blocks, by[:whole, None], out=blocks)
    shift(rest, by[whole:], out=rest)


def odd_divisor(levels: Array) -> int:
    """Return the largest of 7, 5, 3 and 1 that divides all integers: its place in 1, 3, 5, 7."""
    return next((place for place, odd in _ODD if _divides(odd, levels)), 0)


def _divides(odd: int, levels: Array) -> bool:
    spans = (levels[low : low + _SPAN] for low in range(0, levels.size, _SPAN))
    return all(np.array_equal(some // odd * odd, some) for some in spans)
