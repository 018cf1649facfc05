"""ExCP (ICML 2024), Inshrinkerator (SoCC 2024) and QD-Compressor (ICCD 2021), from their published recipes.

None is its authors' code (ExCP's is bound to one model, the others' is not public). What each leaves out is
said below. Their entropy coder is LZMA, which is what ExCP's 7-zip is; the others name none that is better.
"""

from __future__ import annotations

import lzma

import numpy as np

from benchmarks.peers.base import DeltaPeer, Peer, Tensors

SAMPLE = 1 << 14


def centroids(values: np.ndarray, count: int, rounds: int = 12) -> np.ndarray:
    """One-dimensional k-means from quantiles, on a sample: sorted centres."""
    sample = np.sort(values[:: max(values.size // SAMPLE, 1)].astype(np.float64))
    centres = np.quantile(sample, (np.arange(count) + 0.5) / count)
    sums = np.concatenate([[0.0], np.cumsum(sample)])
    for _ in range(rounds):
        cuts = np.searchsorted(sample, (centres[1:] + centres[:-1]) / 2)
        edges = np.concatenate([[0], cuts, [sample.size]])
        sizes = np.diff(edges)
        means = np.diff(sums[edges]) / np.maximum(sizes, 1)
        centres = np.sort(np.where(sizes > 0, means, centres))
    return centres.astype(np.float16).astype(np.float32)


def nearest(values: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Number of the centre nearest to each value."""
    return np.searchsorted((centres[1:] + centres[:-1]) / 2, values).astype(np.uint8)


def packed(indices: np.ndarray) -> bytes:
    """Two 4-bit indices to a byte, then LZMA."""
    even = np.concatenate([indices, np.zeros(indices.size % 2, np.uint8)])
    return lzma.compress((even[::2] << 4 | even[1::2]).tobytes(), preset=1)


class ExCP(DeltaPeer):
    """Residuals below a multiple of their median are pruned, the others are one of 15 centroids of their
    tensor.

    The multiple is ExCP's cap, 2.5: its formula has the second moment of Adam in it and reaches the cap
    where that is small; SGD has none. Moments are left out here.
    """

    def encode(self, path: str, delta: np.ndarray) -> bytes:
        flat = delta.reshape(-1)
        kept = np.abs(flat) > 2.5 * np.median(np.abs(flat))
        indices = np.zeros(flat.size, np.uint8)
        centres = np.zeros(15, np.float32)
        if kept.any():
            centres = centroids(flat[kept], 15)
            indices[kept] = nearest(flat[kept], centres) + 1
        return centres.astype(np.float16).tobytes() + packed(indices)

    def decode(self, path: str, data: bytes, shape: tuple[int, ...]) -> np.ndarray:
        book = np.concatenate([[0], np.frombuffer(data[:30], np.float16)]).astype(np.float32)
        both = np.frombuffer(lzma.decompress(data[30:]), np.uint8)
        indices = np.stack([both >> 4, both & 15], axis=1).reshape(-1)[: int(np.prod(shape))]
        return np.asarray(book[indices]).reshape(shape)


class Inshrinkerator(Peer):
    """Weights by magnitude: the top 0.5 % in bfloat16, the lowest 10 % zero, the rest one of 14 centroids;
    then indices against the last.

    The search for a configuration during training is left out: this is one configuration. Centroids are
    fixed at the first save of each tensor (a later set would change every index), and an index that did not
    change codes as zero.
    """

    def __init__(self) -> None:
        super().__init__()
        self.books: dict[str, np.ndarray] = {}
        self.last: dict[str, np.ndarray] = {}

    def code(self, state: Tensors) -> int:
        assert self.held is not None
        size = 0
        for path, array in state.items():
            flat = array.reshape(-1).astype(np.float32)
            magnitude = np.abs(flat)
            low, high = np.quantile(magnitude[:: max(flat.size // SAMPLE, 1)], [0.1, 0.995])
            if path not in self.books:
                self.books[path] = centroids(flat[(magnitude >= low) & (magnitude <= high)], 14)
                self.last[path] = np.zeros(flat.size, np.uint8)
                size += 28
            book = self.books[path]
            indices = np.where(magnitude < low, 0, nearest(flat, book) + 1).astype(np.uint8)
            top = magnitude > high
            indices[top] = 15
            exact = (flat[top].view(np.uint32) & 0xFFFF0000).view(np.float32)
            values = np.concatenate([[0], book, [0]]).astype(np.float32)[indices]
            values[top] = exact
            size += len(packed((indices - self.last[path]) & 15)) + len(
                lzma.compress((exact.view(np.uint32) >> 16).astype(np.uint16).tobytes(), preset=1)
            )
            self.last[path] = indices
            self.held[path] = values.reshape(array.shape)
        return size


class QD(Peer):
    """Each tensor to `bits` bits of its own range, then the difference of the integers to the last ones.

    The range is that of the first save, a tenth wider; a tensor that leaves it begins a new one. The error
    of rounding is carried over by itself: what is quantized is the weight.
    """

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits
        self.ranges: dict[str, tuple[float, float]] = {}
        self.last: dict[str, np.ndarray] = {}

    def code(self, state: Tensors) -> int:
        assert self.held is not None
        size = 0
        for path, array in state.items():
            least, most = float(array.min()), float(array.max())
            bottom, step = self.ranges.get(path, (0.0, 0.0))
            levels = (1 << self.bits) - 1
            if path not in self.ranges or least < bottom or most > bottom + step * levels:
                margin = max(0.05 * (most - least), 1e-12)
                bottom, step = least - margin, (most - least + 2 * margin) / levels
                self.ranges[path] = (bottom, step)
                self.last[path] = np.zeros(array.size, np.int16)
                size += 8
            numbers = np.rint((array.reshape(-1) - bottom) / step).astype(np.int16)
            moves = (numbers - self.last[path]).view(np.uint8).reshape(-1, 2)
            size += len(lzma.compress(np.ascontiguousarray(moves.T).tobytes(), preset=1))
            self.last[path] = numbers
            self.held[path] = (bottom + step * numbers).astype(np.float32).reshape(array.shape)
        return size
