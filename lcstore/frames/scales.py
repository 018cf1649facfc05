"""The scales section of a frame: one 16-bit integer per block, as briefly as it can be said.

This file has its bytes; `lcstore.kernels.scales` has the loops over scales.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import TypeVar

import numpy as np

from lcstore.arrays import Array
from lcstore.coders import format as f
from lcstore.errors import CorruptionError
from lcstore.kernels.scales import equal_runs

_Integers = TypeVar("_Integers", int, Array)


def step_size_of(scale: _Integers) -> _Integers:
    """Return the step size that a scale of integers stands for: 1, 3, 5 or 7 times a power of two."""
    return (1 + (scale >> 6 << 1)) << shift_of(scale)


def shift_of(scale: _Integers) -> _Integers:
    """Return log2 of the power of two in the step size of a scale."""
    return scale & 63


def scale_of(odd: int, shift: int) -> int:
    """Return the scale of the step size ``odd * 2**shift``, for an odd number up to 7."""
    return (odd >> 1 << 6) + shift


@cache
def log2_of(scale: int) -> float:
    """Return log2 of the step size that a scale stands for."""
    shift = shift_of(scale)
    return math.log2(step_size_of(scale - shift)) + shift


def pack_scales(scales: Array) -> bytes:
    """Write ``int16[blocks]``: one value for all, runs, bytes above a base, or plainly; the shortest."""
    if scales.size == 0:
        return b""
    values, lengths = np.empty(scales.size, np.int16), np.empty(scales.size, np.uint32)
    count = equal_runs(scales, values, lengths)
    if count == 1:
        return struct.pack("<Bh", f.SCALES_ONE, scales[0])
    runs, plain, dense = 5 + 6 * count, 1 + 2 * scales.size, 3 + scales.size
    if runs > min(plain, dense):
        base, top = int(scales.min()), int(scales.max())
        if top - base < 256 and dense < min(runs, plain):
            offsets = (scales.astype(np.int32) - base).astype(np.uint8)
            return struct.pack("<Bh", f.SCALES_DENSE, base) + offsets.tobytes()
        if plain < runs:
            return struct.pack("<B", f.SCALES_PLAIN) + scales.astype("<i2").tobytes()
    return struct.pack("<BI", f.SCALES_RUNS, count) + values[:count].tobytes() + lengths[:count].tobytes()


def unpack_scales(data: memoryview, blocks: int) -> Array:
    """Read ``int16[blocks]``.

    Raises
    ------
    CorruptionError
        Where the section does not say one value for each of `blocks` blocks.
    """
    if blocks == 0 and len(data) == 0:
        return np.empty(0, np.int16)
    mode = data[0] if len(data) else -1
    body = data[1:]
    if mode == f.SCALES_ONE and len(body) == 2:
        return np.full(blocks, struct.unpack("<h", body)[0], np.int16)
    if mode == f.SCALES_PLAIN and len(body) == 2 * blocks:
        return np.frombuffer(body, "<i2").astype(np.int16)
    if mode == f.SCALES_DENSE and len(body) == 2 + blocks:
        values = np.frombuffer(body[2:], np.uint8) + np.int32(struct.unpack("<h", body[:2])[0])
        if values.size and values.max() <= 32767:
            return values.astype(np.int16)
    if mode == f.SCALES_RUNS and len(body) >= 4:
        count = struct.unpack("<I", body[:4])[0]
        if len(body) == 4 + 6 * count:
            values = np.frombuffer(body[4 : 4 + 2 * count], "<i2")
            lengths = np.frombuffer(body[4 + 2 * count :], "<u4").astype(np.int64)
            if int(lengths.sum()) == blocks:
                return np.repeat(values, lengths).astype(np.int16)
    raise CorruptionError(f"the scales section does not fit {blocks} blocks")
