"""The digest of what is stored of a tensor: of a shard, at the positions that it has in the whole."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.digest import digest, digest_runs
from lcstore.state.specs import TensorSpec


def digest_integers(spec: TensorSpec, values: Array, first: int, out: Array) -> None:
    """Add the digest of integers of a tensor.

    Parameters
    ----------
    spec
        The tensor, or shard.
    values
        Some of its elements, one after another.
    first
        Place of the first of them in what is stored.
    out
        ``uint64[1]``, added to.
    """
    _digest(spec, values, first, 1, out)


def digest_values(spec: TensorSpec, values: Array, first: int, out: Array) -> None:
    """Add the digest of the bit patterns of values; parameters as for `digest_integers`."""
    size = values.dtype.itemsize
    words = max(1, size // 8)
    _digest(spec, np.ascontiguousarray(values).view(f"u{size // words}"), first, words, out)


def first_position(spec: TensorSpec) -> int | None:
    """Return the position of a tensor's first element if all go on from it without a gap, else None."""
    if spec.shard is None:
        return 0
    _, _, start = spec.shard.runs(spec.shape)
    return start[0] if len(start) == 1 else None


def _digest(spec: TensorSpec, values: Array, first: int, words: int, out: Array) -> None:
    begins = first_position(spec)
    if begins is not None:
        digest(values, words * (begins + first), out)
        return
    assert spec.shard is not None
    extents, whole, start = (np.array(found, np.int64) for found in spec.shard.runs(spec.shape))
    digest_runs(values, first, words, extents, whole, start, out)
