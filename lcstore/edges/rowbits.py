"""About how many bits each of many short arrays takes: counted for all of them together.

A call of a kernel for each takes longer than the counting. A row is sorted, so that the runs in it are the
counts of what it holds.
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.frames.frame import word_size


def count_planes_by_row(rows: Array) -> Array:
    """Return what `lcstore.frames.lossless.count_planes` does of each row: ``float64``."""
    words = rows.view(f"u{word_size(rows.dtype)}")
    if rows.dtype.kind not in "iub":  # a float's exponent fills one plane
        words = words << 1 | words >> (8 * words.itemsize - 1)
    (count, size), width = words.shape, words.itemsize
    planes = words.astype(f"<u{width}", copy=False).view(np.uint8).reshape(count, size, width)
    bits = _entropies(planes.transpose(0, 2, 1).reshape(count * width, size))
    found: Array = bits.reshape(count, width).sum(axis=1)
    return found


def count_kinds_by_row(rows: Array) -> Array:
    """Return what `lcstore.frames.bykind.count_kinds` does of each row of integers: ``float64``."""
    every = np.bitwise_or.reduce(rows, axis=1).astype(np.int64)
    shifts = np.maximum(_bit_lengths((every & -every).view(np.uint64)) - 1, 0)
    levels = rows.astype(np.int64) >> shifts[:, None]
    folded = (levels << 1 ^ levels >> 63).view(np.uint64)
    extra = np.where(folded < 16, 0, _bit_lengths(folded) - 3)
    octave = 16 + (extra - 2) * 4 + (folded >> extra.astype(np.uint64) & np.uint64(3)).astype(np.int64)
    symbols = np.where(folded < 16, folded.view(np.int64), octave)
    found: Array = _entropies(symbols.astype(np.uint8)) + extra.sum(axis=1)
    return found


def _bit_lengths(values: Array) -> Array:
    """Return the bits in use of each of ``uint64``, as ``int64``."""
    high = values >> np.uint64(32)  # in halves: a float64 holds no more than 53 bits
    above = high > 0
    lengths = np.frexp(np.where(above, high, values & np.uint64(0xFFFFFFFF)).astype(np.float64))[1]
    found: Array = lengths.astype(np.int64) + 32 * above
    return found


def _entropies(rows: Array) -> Array:
    """Return the bits that the bytes of each row take, by how often each of them occurs in it."""
    size = rows.shape[1]
    ordered = np.sort(rows, axis=1)
    begins = np.ones(rows.shape, bool)
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    at = np.flatnonzero(begins)
    counts = np.append(at[1:], rows.size) - at
    lengths = np.arange(1, size + 1)
    bits = np.concatenate(([0.0], lengths * np.log2(size / lengths)))
    found: Array = np.add.reduceat(bits[counts], np.cumsum([0, *begins.sum(axis=1)[:-1]]))
    return found
