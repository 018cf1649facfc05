"""Position-weighted 64-bit sums: a digest that is linear in the integers it covers.

``digest(n) = sum_j w(j) n_j  mod 2**64`` with ``w(j)`` a fixed odd-looking mix of the position `j` inside
the tensor. Linear, so ``digest(n + d) = digest(n) + digest(d)``: a delta carries the change of its target's
digest. It guards against accidents; stored objects carry sha256 against substitution.
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.jit import kernel

_MIX = np.uint64(0x9E3779B97F4A7C15)
_FOLD = np.uint64(29)
_ONE = np.uint64(1)


@kernel(inline=True)
def weight(j: np.uint64) -> np.uint64:
    """Return the weight of position `j`."""
    w = (j + _ONE) * _MIX
    return w ^ (w >> _FOLD)


@kernel
def digest(values: Array, start: int, out: Array) -> int:
    """Add the digest of `values`, whose first element has position `start`, to ``out[0]``.

    Parameters
    ----------
    values
        Integers of any width. Signed ones are extended by their sign.
    start
        Position of ``values[0]`` inside its tensor.
    out
        ``uint64[1]``, added to.
    """
    total = np.uint64(0)
    first = np.uint64(start)
    for i in range(values.size):
        total += weight(first + np.uint64(i)) * np.uint64(np.int64(values[i]))
    out[0] += total
    return 0
