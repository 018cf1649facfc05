"""Stored chunks as steps that go over one block after another, so that all of a path meet in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.codec import decode
from lcstore.codec.frame import parse_frame
from lcstore.codec.lossless import LosslessReader
from lcstore.codec.values import decode_values
from lcstore.coders import format as f
from lcstore.edges.frames import delta_frame, delta_scales
from lcstore.errors import CorruptionError

#: Elements of a block, but for the last one of a chunk.
BLOCK: Final = decode.SPAN

#: Takes the place of the first element of a block, and room for it, which it fills.
Read: TypeAlias = Callable[[int, Array], None]
#: Takes the place of the first element of a block, and the block: fills it, or adds to it.
OnBlock: TypeAlias = Callable[[int, decode.TrackBlock], None]


class Step(NamedTuple):
    """What is done with each block, and the bytes that are held for it."""

    run: OnBlock
    nbytes: int


def blocks(low: int, high: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where the blocks of a chunk of `size` elements that hold ``low:high`` begin and end."""
    for at in range(low // BLOCK * BLOCK, min(high, size), BLOCK):
        yield at, min(at + BLOCK, size)


def reader(data: Buffer, count: int, dtype: np.dtype[Any], room: decode.Room) -> Read:
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


class Delta:
    """Adds a stored frame of grid deltas, proved by the hash of its object, to one block after another.

    Parameters
    ----------
    data, count, dtype
        The frame, and the elements and integers that it must hold.
    sign
        1 to add, -1 to take back.
    room
        Where levels are decoded to.

    Raises
    ------
    CorruptionError
        It is no such frame.
    """

    def __init__(self, data: Buffer, count: int, dtype: np.dtype[Any], sign: int, room: decode.Room) -> None:
        frame = delta_frame(data, count, dtype, proved=True)
        self._scales, self._block = delta_scales(frame), 1 << frame.block
        self._levels = decode.Levels(frame, room)
        self._sign = sign
        self._count = count

    def add(self, low: int, block: decode.TrackBlock) -> None:
        """Add the levels from element `low` on to a block; `CorruptionError` where they do not decode.

        A block is shorter than `BLOCK` only where its chunk ends: a frame that goes on is not of that chunk.
        """
        if block.size < BLOCK and low + block.size < self._count:
            raise CorruptionError(f"the frame holds {self._count} elements instead of {low + block.size}")
        self._levels.add(low, self._scales, self._block, self._sign, block)


def sums(data: Buffer, count: int, dtype: np.dtype[Any], room: decode.Room) -> Read:
    """Return what fills blocks with the integers of a stored frame of a grid; errors as for `Delta`."""
    delta = Delta(data, count, dtype, 1, room)

    def read(low: int, out: Array) -> None:
        out[:] = 0
        block = decode.TrackBlock(out, room)
        delta.add(low, block)
        block.settle()

    return read
