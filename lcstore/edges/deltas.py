"""Deltas of one chunk that are added to it together: one call for each block adds what all have there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.bitkernels.huffman import TABLE_SIZE
from lcstore.coders import format as f
from lcstore.edges.frames import delta_frame, delta_scales
from lcstore.errors import CorruptionError
from lcstore.frames import decode
from lcstore.kernels import adding
from lcstore.kernels.grid import add_levels
from lcstore.once import once

#: Elements of a block, but for the last one of a chunk.
BLOCK: Final = decode.SPAN
#: Bytes of the tables of a frame.
_TABLES: Final = TABLE_SIZE * (16 + 2)
#: Takes the place of the first element of a block, and the block: fills it, or adds to it.
OnBlock: TypeAlias = Callable[[int, Array], None]
#: Names a chunk in errors about its content.
Named: TypeAlias = Callable[[], AbstractContextManager[None]]


class Step(NamedTuple):
    """What is done with each block, and the bytes that are held for it."""

    run: OnBlock
    nbytes: int


class Delta:
    """A stored frame of grid deltas, which is added to a chunk block by block.

    Parameters
    ----------
    data, count, dtype
        The frame, and the elements and integers that it must hold.
    sign
        1 to add, -1 to take back.
    named
        Names it in errors.
    proved
        As for `parse_frame`.

    Raises
    ------
    CorruptionError
        It is no such frame.
    """

    def __init__(
        self,
        data: Buffer,
        count: int,
        dtype: np.dtype,
        sign: int,
        named: Named = nullcontext,
        *,
        proved: bool = True,
    ) -> None:
        with named():
            self.frame = delta_frame(data, count, dtype, proved=proved)
            self.scales = delta_scales(self.frame)
        self.sign = sign
        self.named = named
        self.nbytes = len(data) + _TABLES

    @once
    def _levels(self) -> decode.Levels:
        return decode.Levels(self.frame)

    def run(self, low: int, track: Array) -> None:
        """Add the levels from element `low` on to a block, by themselves; errors as for `Deltas.run`."""
        block = 1 << self.frame.block
        with self.named():
            _check_end(self.frame.count, low, track)
            for at, levels, places, values in self._levels.spans(low, low + track.size):
                part = track[at - low : at - low + levels.size]
                add_levels(levels, places, values, self.scales[at // block :], block, self.sign, part)


class Deltas:
    """Deltas of the narrow coders, laid side by side in memory of a room: what they were read to may go.

    Parameters
    ----------
    deltas
        In order.
    room
        Memory is borrowed of it, and used by it while they are added.
    """

    def __init__(self, deltas: Sequence[Delta], room: decode.Room) -> None:
        frames = [delta.frame for delta in deltas]
        self._named = [(delta.named, delta.frame.count) for delta in deltas]
        self._room, self._sums = room, room.borrow((BLOCK,), np.int8)
        self._told = np.zeros((len(frames), len(adding.COLUMNS)), np.int64)
        ends = np.cumsum([0, *(decode.words_of(frame.payload) for frame in frames)]).tolist()
        self._words = room.borrow((ends[-1],), np.uint64)
        self._directories = np.concatenate([frame.directory for frame in frames])
        self._scales = np.concatenate([delta.scales for delta in deltas])
        several = len(frames), TABLE_SIZE
        self._joined = room.borrow((*several, 2), np.uint64), room.borrow(several, np.uint16)
        self._tokens = room.borrow(several, np.uint8), room.borrow(several, np.uint8)
        directory = scale = 0
        for k, (delta, frame) in enumerate(zip(deltas, frames, strict=True)):
            decode.lay(frame.payload, self._words[ends[k] : ends[k + 1]])
            tokens = frame.coder == f.RUNS
            table, sizes = self._tokens if tokens else self._joined
            assert frame.table is not None
            decode.tables_of(frame, frame.table, (table[k], sizes[k]))
            per, least = 0 if tokens else frame.per, decode.least_escaped(frame)
            here = frame.count, 8 * ends[k], directory, frame.streams + 1
            self._told[k] = (
                *here,
                per,
                least,
                scale,
                1 << frame.block,
                delta.sign,
                frame.features & f.RELATIVE,
            )
            directory, scale = directory + frame.directory.size, scale + delta.scales.size

    def run(self, low: int, track: Array) -> None:
        """Add the levels from element `low` on to a block; `CorruptionError` where some do not decode.

        The block may then be changed already.
        """
        for named, count in self._named if track.size < BLOCK else ():
            with named():
                _check_end(count, low, track)
        places, values = self._room.escapes
        tables = *self._joined, *self._tokens
        into = self._room.levels, places, values, self._sums
        coded = low, self._words, self._told, self._directories, *tables, self._scales
        done = adding.add_frames(*coded, 1 << f.SEGMENT, *into, track)
        if done < len(self._named):
            with self._named[done][0]():
                raise CorruptionError(f"the frame's streams do not decode near element {low}")


def _check_end(count: int, low: int, track: Array) -> None:
    """Check that a frame ends where its chunk does, whose block from element `low` on this is.

    A block is shorter than `BLOCK` only where its chunk ends: a frame that goes on is not of that chunk.
    """
    if track.size < BLOCK and low + track.size < count:
        raise CorruptionError(f"the frame holds {count} elements instead of {low + track.size}")


def together(steps: Iterable[Step | Delta], room: decode.Room) -> list[OnBlock]:
    """Return what goes over each block: what each step does, and neighbouring deltas as one."""
    runs: list[OnBlock] = []
    narrow: list[Delta] = []
    for step in (*steps, None):
        if isinstance(step, Delta) and step.frame.coder in (f.PACK, f.RUNS):
            narrow.append(step)
            continue
        if narrow:
            runs.append(Deltas(narrow, room).run)
            narrow = []
        if step is not None:
            runs.append(step.run)
    return runs


def apply_delta(data: Buffer, track: Array, sign: int = 1) -> None:
    """Add a frame of grid deltas to the piece of a pool that it covers, or take it back with `sign` -1.

    Raises
    ------
    CorruptionError
        It is not such a frame, or does not decode; the track may then be changed in part.
    """
    delta = Delta(data, track.size, track.dtype, sign, proved=False)
    for run in together([delta], decode.Room()):
        for low in range(0, track.size, BLOCK):
            run(low, track[low : low + BLOCK])
