"""Error-bounded compressors of scientific data on the delta: SZ3 (`pysz`) and zfp (`zfpy`).

The bound of a tensor is `factor` times the RMS of its last move, so that it follows the training as
lcstore's step does. Neither library's own container for many arrays is used: each tensor is one stream, of
one dimension, and eight bytes for its shape and bound.
"""

from __future__ import annotations

import numpy as np

from benchmarks.peers.base import DeltaPeer, Tensors, optional, rms_steps


class Bounded(DeltaPeer):
    """A closed loop with an absolute bound on each element's error."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor
        self.scales: dict[str, float] = {}
        self._before: Tensors = {}

    def begin(self, state: Tensors) -> int:
        self._before = {path: array.copy() for path, array in state.items()}
        return super().begin(state)

    def code(self, state: Tensors) -> int:
        self.scales = rms_steps(self._before, state)
        self._before = state
        return super().code(state) + 8 * len(state)


class SZ3(Bounded):
    """SZ3 with its default predictor (interpolation and Lorenzo)."""

    def __init__(self, factor: float) -> None:
        super().__init__(factor)
        self.sz = optional("pysz")

    def encode(self, path: str, delta: np.ndarray) -> bytes:
        config = self.sz.szConfig((delta.size,))
        config.errorBoundMode = self.sz.szErrorBoundMode.ABS
        config.absErrorBound = self.factor * self.scales[path]
        data, _ = self.sz.sz.compress(np.ascontiguousarray(delta.reshape(-1)), config)
        return bytes(data)

    def decode(self, path: str, data: bytes, shape: tuple[int, ...]) -> np.ndarray:
        size = int(np.prod(shape))
        values, _ = self.sz.sz.decompress(np.frombuffer(data, np.uint8), np.float32, (size,))
        return np.asarray(values).reshape(shape)


class Zfp(Bounded):
    """zfp in fixed-accuracy mode; its tolerance goes by powers of two."""

    def __init__(self, factor: float) -> None:
        super().__init__(factor)
        self.zfp = optional("zfpy")

    def encode(self, path: str, delta: np.ndarray) -> bytes:
        return bytes(self.zfp.compress_numpy(delta.reshape(-1), tolerance=self.factor * self.scales[path]))

    def decode(self, path: str, data: bytes, shape: tuple[int, ...]) -> np.ndarray:
        return np.asarray(self.zfp.decompress_numpy(data)).reshape(shape)
