"""A fixed sample of each tensor: its update scale and its tracking error, at a cost that does not grow.

The exact previous state is not kept; what these few elements were is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from lcstore.arrays import Array

#: Elements of a sample.
SIZE: Final = 16_384
_STRIDE_MIX: Final = 0x9E3779B97F4A7C15


@lru_cache(maxsize=256)  # 128 KiB each; most models have a few sizes of tensors
def positions(count: int) -> Array:
    """Return where a tensor of `count` elements is sampled: everywhere if it is small, else spread over all.

    One element of each of `SIZE` equal parts, at a place inside the part that a fixed mix gives, so that no
    row length beats with it.
    """
    if count <= SIZE:
        return np.arange(count)
    parts = np.arange(SIZE, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = ((parts + np.uint64(1)) * np.uint64(_STRIDE_MIX)) >> np.uint64(33)
    starts = parts.astype(np.int64) * count // SIZE
    lengths = (parts.astype(np.int64) + 1) * count // SIZE - starts
    return starts + (mixed.astype(np.int64) % lengths)


def take(flat: Array) -> Array:
    """Return the sample of a flat tensor, as float64."""
    return flat[positions(flat.size)].astype(np.float64)


def inner(a: Array, b: Array) -> float:
    """Return the sum of the products. Without BLAS, whose threads cost more than these few elements."""
    return float(np.einsum("i,i->", a, b))


def rms(values: Array) -> float:
    """Return the root mean square; 0 for nothing. Squares neither overflow nor vanish."""
    top = float(np.max(np.abs(values), initial=0.0))
    scaled = values / top if top > 0 else values
    return top * float(np.sqrt(inner(scaled, scaled) / values.size)) if top > 0 else 0.0
