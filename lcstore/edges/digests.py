"""Digests of what is stored of tensors: of a shard, at the positions that it has in the whole."""

from __future__ import annotations

from threading import Lock

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.digest import digest, digest_runs
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import Piece
from lcstore.layout.specs import TensorSpec


def digest_of(spec: TensorSpec, values: Array, first: int = 0) -> np.uint64:
    """Return the digest of elements of a tensor, or of a shard.

    Parameters
    ----------
    spec
        The tensor.
    values
        Some of its elements, one after another: of weights integers of the grid; of others their values, of
        which the bits count.
    first
        Place of the first of them in what is stored.
    """
    words = 1
    if spec.role != "weights":
        words = max(1, values.dtype.itemsize // 8)
        values = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize // words}")
    total = np.zeros(1, np.uint64)
    begins = first_position(spec)
    if begins is not None:
        digest(values, words * (begins + first), total)
    else:
        assert spec.shard is not None
        extents, whole, start = (np.array(found, np.int64) for found in spec.shard.runs(spec.shape))
        digest_runs(values, first, words, extents, whole, start, total)
    out: np.uint64 = total[0]
    return out


def first_position(spec: TensorSpec) -> int | None:
    """Return the position of a tensor's first element if all go on from it without a gap, else None."""
    if spec.shard is None:
        return 0
    _, _, start = spec.shard.runs(spec.shape)
    return start[0] if len(start) == 1 else None


class Digests:
    """Digests of the tensors of a layout, which grow with every piece. Thread-safe.

    Attributes
    ----------
    found
        ``uint64``, per tensor.
    """

    def __init__(self, layout: Layout) -> None:
        self.found = np.zeros(len(layout.tensors), np.uint64)
        self._tensors = layout.tensors
        self._lock = Lock()

    def add(self, piece: Piece, values: Array) -> None:
        """Take in a piece of a tensor."""
        digest = digest_of(self._tensors[piece.tensor], values, piece.first)
        with self._lock:
            self.found[piece.tensor : piece.tensor + 1] += digest
