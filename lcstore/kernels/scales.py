"""Loops over scales of blocks: the step sizes that they stand for, and runs of equal ones.

`lcstore.frames.scales` has their bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.jit import kernel


@kernel(inline=True)
def step_size_of(scale: Any) -> np.int64:
    """Return the step size of an integer frame's scale: an odd number up to 7 times a power of two."""
    code = np.int64(scale)
    return np.int64((np.int64(1) + ((code >> 6) << 1)) << (code & 63))


@kernel
def equal_runs(values: Array, found: Array, lengths: Array) -> int:
    """Cut `values` in runs of equal ones; fill what each run is of, and its length; give their number."""
    runs = 0
    for i in range(values.size):
        if i > 0 and values[i] == values[i - 1]:
            lengths[runs - 1] += np.uint32(1)
        else:
            found[runs], lengths[runs] = values[i], np.uint32(1)
            runs += 1
    return runs
