"""The scales section of a frame: one 16-bit integer per block, as briefly as it can be said."""

from __future__ import annotations

import struct

import numpy as np

from lcstore.arrays import Array
from lcstore.codec import format as f
from lcstore.errors import CorruptionError


def steps_of(scales: Array) -> Array:
    """Return the steps, ``int64``, that scales of integers stand for: an odd number times a power of two."""
    wide = scales.astype(np.int64)
    return (1 + (wide >> 6 << 1)) << (wide & 63)


def pack_scales(scales: Array) -> bytes:
    """Write ``int16[blocks]``: one value for all, runs, bytes above a base, or plainly; the shortest."""
    if scales.size == 0:
        return b""
    changes = np.flatnonzero(np.diff(scales)) + 1
    if changes.size == 0:
        return struct.pack("<Bh", f.SCALES_ONE, scales[0])
    starts = np.concatenate(([0], changes))
    lengths = np.diff(np.append(starts, scales.size)).astype("<u4")
    values = scales[starts].astype("<i2")
    choices = [
        struct.pack("<BI", f.SCALES_RUNS, starts.size) + values.tobytes() + lengths.tobytes(),
        struct.pack("<B", f.SCALES_PLAIN) + scales.astype("<i2").tobytes(),
    ]
    base, top = int(scales.min()), int(scales.max())
    if top - base < 256:
        dense = (scales.astype(np.int32) - base).astype(np.uint8)
        choices.append(struct.pack("<Bh", f.SCALES_DENSE, base) + dense.tobytes())
    return min(choices, key=len)


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
