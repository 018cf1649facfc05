"""Digests of tensors, summed up chunk by chunk while an edge is made or looked at."""

from __future__ import annotations

from threading import Lock

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.digest import digest
from lcstore.state.layout import Layout
from lcstore.state.poolmap import Piece
from lcstore.track.frames import digest_bits


def digest_of(values: Array, first: int = 0, *, weights: bool) -> np.uint64:
    """Return the digest of elements from `first` on of a tensor.

    Parameters
    ----------
    values
        Integers of the grid of a tensor of `weights`; of others its values, of which the bits count.
    """
    total = np.zeros(1, np.uint64)
    if weights:
        digest(values, first, total)
    else:
        digest_bits(values, first, total)
    out: np.uint64 = total[0]
    return out


class Digests:
    """Digests of the tensors of a layout, which grow with every piece. Thread-safe.

    Attributes
    ----------
    found
        ``uint64``, per tensor.
    """

    def __init__(self, layout: Layout) -> None:
        self.found = np.zeros(len(layout.tensors), np.uint64)
        self._weights = layout.weights
        self._lock = Lock()

    def add(self, piece: Piece, values: Array) -> None:
        """Take in a piece of a tensor."""
        digest = digest_of(values, piece.first, weights=bool(self._weights[piece.tensor]))
        with self._lock:
            self.found[piece.tensor : piece.tensor + 1] += digest
