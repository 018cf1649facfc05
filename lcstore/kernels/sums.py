"""Sums of deltas: the coarsest step sizes that they are whole multiples of, and levels on these."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.ints import shift_right
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK

#: The step size of a block that holds nothing but zeros.
NO_STEP = -1
#: Integers that are looked at before one that is no multiple ends the search.
_LOOK = 1024


@kernel(inline=True)
def _every_bit(values: Array) -> np.int64:
    """Return the bits that are set in any of `values`."""
    kind = values.dtype.type
    every = kind(0)
    for i in range(values.size):
        every = kind(every | values[i])
    return np.int64(every)


@kernel
def common_steps(sums: Array, block: int, steps: Array) -> int:
    """Find log2 of the largest power of two that divides every integer of a block.

    Parameters
    ----------
    sums
        ``int32[n]`` or ``int64[n]``.
    block
        Elements per block.
    steps
        ``int16``, one per block, the last of which may be short; filled, with `NO_STEP` where all are zero.

    Returns
    -------
    int
        Blocks that hold anything but zeros.
    """
    used = 0
    for b in range(steps.size):
        every = _every_bit(sums[b * block : (b + 1) * block])
        step = NO_STEP
        if every != 0:
            used += 1
            step = 0
            while every & 1 == 0:
                every >>= 1
                step += 1
        steps[b] = step
    return used


@kernel(inline=True)
def _divide(values: Array, step: np.int64) -> None:
    kind = values.dtype.type
    for i in range(values.size):
        values[i] = shift_right(values[i], kind(step))


@kernel(inline=True)
def _multiply(values: Array, step: np.int64) -> None:
    kind = values.dtype.type
    for i in range(values.size):
        values[i] = kind(values[i] << step)


@kernel
def to_levels(sums: Array, block: int, steps: Array) -> int:
    """Divide the integers of each block by ``2**step``, in place; they must be multiples of it.

    Parameters
    ----------
    sums, block
        As for `common_steps`.
    steps
        ``int16``, one per block: 0 or more, and less than the integers have bits.
    """
    for b in range(steps.size):
        if steps[b] != 0:
            _divide(sums[b * block : (b + 1) * block], np.int64(steps[b]))
    return OK


@kernel
def from_levels(levels: Array, block: int, steps: Array) -> int:
    """Take back what `to_levels` did with the same step sizes."""
    for b in range(steps.size):
        if steps[b] != 0:
            _multiply(levels[b * block : (b + 1) * block], np.int64(steps[b]))
    return OK


@kernel
def odd_divisor(levels: Array) -> int:
    """Find the largest of 7, 5, 3 and 1 that divides all integers; give its place in 1, 3, 5, 7."""
    for place in range(3, 0, -1):
        odd = levels.dtype.type(2 * place + 1)
        whole = True
        for low in range(0, levels.size, _LOOK):
            rest = levels.dtype.type(0)
            for i in range(low, min(low + _LOOK, levels.size)):
                rest = levels.dtype.type(rest | (levels[i] % odd))
            if rest != 0:
                whole = False
                break
        if whole:
            return place
    return 0


@kernel
def divide(levels: Array, divisor: int) -> int:
    """Divide integers by one that divides them all, in place."""
    by = levels.dtype.type(divisor)
    for i in range(levels.size):
        levels[i] = levels.dtype.type(levels[i] // by)
    return OK
