"""Buffers that jobs take in turn: to map and clear fresh memory would cost a good part of the work."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.grid import RUN


class Scratch:
    """Buffers for the levels of one chunk; as many pairs as jobs have run side by side. Thread-safe."""

    def __init__(self) -> None:
        self._free: list[tuple[Array, Array]] = []

    def take(self, count: int) -> tuple[Array, Array]:
        """Lend levels of `count` elements, all zero, and room for their escapes, not cleared."""
        try:
            levels, escapes = self._free.pop()  # one step: no lock is needed
        except IndexError:
            levels, escapes = np.empty(0, np.int8), np.empty(0, np.int64)
        if levels.size < count:
            levels, escapes = np.empty(count, np.int8), np.empty(count + RUN, np.int64)
        lent = levels[:count]
        lent[:] = 0
        return lent, escapes

    def give_back(self, levels: Array, escapes: Array) -> None:
        """Take back what was lent; what is never given back is forgotten."""
        whole = levels if levels.base is None else levels.base
        self._free.append((whole, escapes))
