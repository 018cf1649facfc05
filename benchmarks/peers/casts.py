"""Casts of the state itself, without a chain: bfloat16, and blocks of small integers with a scale each."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from benchmarks.peers.base import Peer, Tensors


class BFloat16(Peer):
    """Two bytes an element."""

    def code(self, state: Tensors) -> int:
        self.held = {p: a.astype(ml_dtypes.bfloat16).astype(np.float32) for p, a in state.items()}
        return sum(2 * array.size for array in state.values())


class Blocks(Peer):
    """Integers of `bits` bits, and a scale of 2 bytes (float16, rounded up) per `block` elements."""

    def __init__(self, bits: int, block: int) -> None:
        super().__init__()
        self.bits, self.block = bits, block

    def code(self, state: Tensors) -> int:
        size = 0
        self.held = {}
        for path, array in state.items():
            flat = array.reshape(-1)
            padded = np.zeros((-(-flat.size // self.block), self.block), np.float32)
            padded.reshape(-1)[: flat.size] = flat
            most = (1 << (self.bits - 1)) - 1
            unit = np.nextafter((np.abs(padded).max(axis=1) / most).astype(np.float16), np.float16(np.inf))
            steps = unit.astype(np.float32)[:, None]
            self.held[path] = (np.rint(padded / steps) * steps).reshape(-1)[: flat.size].reshape(array.shape)
            size += -(-flat.size * self.bits // 8) + 2 * unit.size
        return size
