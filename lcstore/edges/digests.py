"""Digests of what is stored of tensors: of a shard, at the positions that it has in the whole."""

from __future__ import annotations

from threading import Lock

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.digest import digest_pieces, digest_runs
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import PieceColumns
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
    values, words = _words(values, weights=spec.role == "weights")
    total = np.zeros(1, np.uint64)
    begins = first_position(spec)
    if begins is not None:
        place, size, start = np.array([[0], [values.size], [words * (begins + first)]])
        digest_pieces(values, place, size, start, total)
    else:
        assert spec.shard is not None
        extents, whole, start = (np.array(found, np.int64) for found in spec.shard.runs(spec.shape))
        digest_runs(values, first, words, extents, whole, start, total)
    out: np.uint64 = total[0]
    return out


def _words(values: Array, *, weights: bool) -> tuple[Array, int]:
    """Return what a digest is taken of: integers, and how many of them for each element."""
    if weights:
        return values, 1
    words = max(1, values.dtype.itemsize // 8)
    return np.ascontiguousarray(values).view(f"u{values.dtype.itemsize // words}"), words


def first_position(spec: TensorSpec) -> int | None:
    """Return the position of a tensor's first element if all go on from it without a gap, else None."""
    if spec.shard is None:
        return 0
    _, _, start = spec.shard.runs(spec.shape)
    return start[0] if len(start) == 1 else None


class Digests:
    """Digests of the tensors of a layout, which grow with every piece. Thread-safe.

    Parameters
    ----------
    layout
        The tensors.
    found
        What they grow from, which is left as it is; zero if None.

    Attributes
    ----------
    found
        ``uint64``, per tensor.
    """

    def __init__(self, layout: Layout, found: Array | None = None) -> None:
        self.found = np.zeros(len(layout.tensors), np.uint64) if found is None else found.copy()
        self._layout = layout
        #: Of shards, where the first element is; -1 where gaps lie between others.
        self._starts = np.zeros(len(layout.tensors), np.int64)
        for tensor, spec in enumerate(layout.tensors):
            if spec.shard is not None:
                start = first_position(spec)
                self._starts[tensor] = -1 if start is None else start
        self._lock = Lock()

    def add(self, pieces: PieceColumns, values: Array) -> None:
        """Take in pieces of tensors of one pool, of which each tensor has one: they lie in `values`."""
        if not len(pieces):
            return
        starts, found = self._starts[pieces.tensor], np.zeros(len(pieces), np.uint64)
        words, per = _words(values, weights=bool(self._layout.weights[pieces.tensor[0]]))
        digest_pieces(words, per * pieces.at, per * pieces.size, per * (starts + pieces.first), found)
        for row in np.flatnonzero(starts < 0).tolist():
            ((tensor, first, at, size),) = pieces.where(slice(row, row + 1))
            found[row] = digest_of(self._layout.tensors[tensor], values[at : at + size], first)
        self.more(pieces.tensor, found)

    def more(self, tensors: Array, amounts: Array) -> None:
        """Add to the digests of tensors, each of them once."""
        with self._lock:
            self.found[tensors] += amounts
