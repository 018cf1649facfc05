"""Stored chunks as steps that go over one block after another, so that all of a path meet in cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.codec.values import decode_values
from lcstore.coders import format as f
from lcstore.edges.deltas import BLOCK, Delta, OnBlock, together
from lcstore.errors import CorruptionError
from lcstore.frames.decode import Room
from lcstore.frames.frame import parse_frame
from lcstore.frames.lossless import LosslessReader


def blocks(low: int, high: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where the blocks of a chunk of `size` elements that hold ``low:high`` begin and end."""
    for at in range(low // BLOCK * BLOCK, min(high, size), BLOCK):
        yield at, min(at + BLOCK, size)


def reader(data: Buffer, count: int, dtype: np.dtype[Any], room: Room) -> OnBlock:
    """Return what fills blocks with the values of a stored frame, proved by the hash of its object.

    Raises
    ------
    CorruptionError
        It is no frame of `count` values of `dtype`.
    """
    frame = parse_frame(data, expected=count, proved=True)
    if frame.dtype != dtype:
        raise CorruptionError(f"the frame holds {frame.dtype}, not {dtype}")
    if frame.quantizer == f.LOSSLESS:
        return LosslessReader(frame, room).read
    values = decode_values(frame)

    def read(low: int, out: Array) -> None:
        out[:] = values[low : low + out.size]

    return read


def sums(data: Buffer, count: int, dtype: np.dtype[Any], room: Room) -> OnBlock:
    """Return what fills blocks with the integers of a stored frame of a grid; errors as for `Delta`."""
    (run,) = together([Delta(data, count, dtype, 1)], room)

    def read(low: int, out: Array) -> None:
        out[:] = 0
        run(low, out)

    return read
