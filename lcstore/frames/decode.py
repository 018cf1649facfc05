"""Frames to levels, span by span, so that whoever uses them works in cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from lcstore.arrays import Array
from lcstore.bitkernels import bits, pack, runs, wide
from lcstore.bitkernels.escapes import decode_escapes
from lcstore.bitkernels.relative import from_relative
from lcstore.coders import format as f
from lcstore.coders.tables import CodeTable
from lcstore.errors import CorruptionError
from lcstore.frames.frame import Frame
from lcstore.once import once

_NONE: Final = np.empty(0, np.int64)
_SYMBOLS: Final = np.arange(256, dtype=np.uint8)
#: Elements of a span: levels of this many stay in the second-level cache.
SPAN: Final = 1 << 18


class Room:
    """Memory that decoders use one after another: what one has left there, the next writes over."""

    def __init__(self) -> None:
        self._values = np.empty(0, np.uint8)
        self._borrowed: list[Array] = []
        self._next = 0

    def begin(self) -> None:
        """Have all back that was borrowed."""
        self._next = 0

    def borrow(self, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
        """Return memory that no other borrows before `begin`. What was there before is left in it."""
        nbytes = math.prod(shape) * np.dtype(dtype).itemsize
        at, self._next = self._next, self._next + 1
        if at == len(self._borrowed):
            self._borrowed.append(np.empty(0, np.uint8))
        if self._borrowed[at].size < nbytes:
            self._borrowed[at] = np.empty(nbytes + nbytes // 8, np.uint8)  # the next may need a bit more
        return self._borrowed[at][:nbytes].view(dtype).reshape(shape)

    @once
    def levels(self) -> Array:
        """Narrow levels."""
        return np.empty(SPAN, np.int8)

    @once
    def wide(self) -> Array:
        """Levels of the wide coder, of which a span has fewer."""
        return np.empty(SPAN // 4, np.int64)

    @once
    def escapes(self) -> tuple[Array, Array]:
        """Places and levels of what is escaped."""
        return np.empty(SPAN, np.int64), np.empty(SPAN, np.int64)

    def values(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return memory for some values."""
        nbytes = count * dtype.itemsize
        if self._values.size < nbytes:
            self._values = np.empty(nbytes, np.uint8)
        return self._values[:nbytes].view(dtype)


class Span(NamedTuple):
    """Levels of a run of elements. They are valid until the next span is asked for."""

    start: int
    levels: Array
    places: Array
    values: Array


#: Decodes segments; is given their first element, how many they have, their rows of the directory, and the
#: place of their first byte.
_Decoder: TypeAlias = Callable[[int, int, Array, int], Span]


class Levels:
    """Decodes the levels of one frame, any part of it at a time.

    Parameters
    ----------
    frame
        A frame of levels (not one of planes or raw bytes). Its payload is copied.
    room
        Where levels are decoded to; its own if None.
    """

    def __init__(self, frame: Frame, room: Room | None = None) -> None:
        self._count = frame.count
        self._segment = 1 << frame.segment
        self._segments = -(-frame.count // self._segment)
        self._step = SPAN // self._segment // (4 if frame.coder == f.WIDE else 1)
        self._decode: _Decoder | None = None
        if frame.table is None:  # without codes every level is zero
            return
        shape = self._segments, frame.streams + 1
        self._directory = frame.directory.reshape(shape).copy()  # the frame may go
        self._offsets = [0, *np.cumsum(self._directory.sum(axis=1, dtype=np.int64)).tolist()]
        if frame.coder == f.WIDE:
            self._decode = _wide_decoder(frame, frame.table, room or Room())
        else:
            self._decode = _narrow_decoder(frame, frame.table, room or Room())

    def spans(self, low: int, high: int) -> Iterator[Span]:
        """Decode elements ``low:high``; whole segments are given, so spans may begin before and end behind.

        Yields
        ------
        Span
            `levels` as int8 (int64 of the wide coder), with zero at `places`, whose levels are `values`.

        Raises
        ------
        CorruptionError
            A stream does not decode.
        """
        if self._decode is None or high <= low:
            return
        segment, last = self._segment, min(self._segments, -(-high // self._segment))
        for first in range(low // segment, last, self._step):
            end = min(first + self._step, last)
            start = first * segment
            count = min(end * segment, self._count) - start
            yield self._decode(start, count, self._directory[first:end], self._offsets[first])


def lay(payload: memoryview, words: Array) -> None:
    """Lay a payload into the words that it takes, with the padding that decoders look at."""
    into = words.view(np.uint8)
    into[: len(payload)] = np.frombuffer(payload, np.uint8)
    into[len(payload) :] = 0


def words_of(payload: memoryview) -> int:
    """Return how many words a payload takes, with its padding."""
    return (len(payload) + bits.PADDING + 7) // 8


def _words(payload: memoryview) -> Array:
    words = np.empty(words_of(payload), np.uint64)
    lay(payload, words)
    return words


def _wide_decoder(frame: Frame, codes: CodeTable, memory: Room) -> _Decoder:
    segment = 1 << frame.segment
    table, sizes = codes.lookup(_SYMBOLS)
    room, words = memory.wide, _words(frame.payload)

    def decode(start: int, count: int, directory: Array, at: int) -> Span:
        levels = room[:count]
        _check(wide.decode_wide(words, at, directory, table, sizes, levels, segment), start)
        return Span(start, levels, _NONE, _NONE)

    return decode


def _narrow_decoder(frame: Frame, codes: CodeTable, memory: Room) -> _Decoder:
    segment, least = 1 << frame.segment, least_escaped(frame)
    into: Any = runs.decode_runs if frame.coder == f.RUNS else pack.decode_pack
    tables = *tables_of(frame, codes), *([frame.per] if frame.coder == f.PACK else [])
    narrow, (places, values), words = memory.levels, memory.escapes, _words(frame.payload)

    def decode(start: int, count: int, directory: Array, at: int) -> Span:
        levels = narrow[:count]
        _check(into(words, at, directory, *tables, levels, segment), start)
        found = decode_escapes(words, at, directory, levels, segment, least, places, values)
        _check(found, start)
        if frame.features & f.RELATIVE:
            from_relative(levels, places[:found], values[:found], segment)
        return Span(start, levels, places[:found], values[:found])

    return decode


def least_escaped(frame: Frame) -> int:
    """Return the smallest magnitude of a level that a narrow frame escapes."""
    return runs.LEAST if frame.coder == f.RUNS else 1 << (frame.bits - 1)


def tables_of(frame: Frame, codes: CodeTable, out: tuple[Array, Array] | None = None) -> tuple[Array, ...]:
    """Return the two tables that the kernels of a narrow frame's coder look at, in `out`."""
    if frame.coder == f.RUNS:
        return codes.lookup(_SYMBOLS, out)
    return codes.joined(_pack_values(frame.bits, frame.per), frame.per, out)


@lru_cache(maxsize=8)
def _pack_values(width: int, per: int) -> Array:
    """Return the levels that each symbol stands for, as the bytes of a word, the first one lowest.

    A level is -128 where it is escaped.
    """
    half = 1 << (width - 1)
    fields = (np.arange(256)[:, None] >> width * np.arange(per)) & (2 * half - 1)
    levels = np.where(fields == half, -128, (fields ^ half) - half).astype(np.int8)
    values: Array = levels.view(f"u{per}").reshape(-1).astype(np.uint64)
    return values


def _check(status: int, start: int) -> None:
    if status < 0:
        raise CorruptionError(f"the frame's streams do not decode near element {start}")
