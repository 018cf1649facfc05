"""Frames to levels, span by span, so that whoever uses them works in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.frame import Frame
from lcstore.coders import format as f
from lcstore.coders.tables import CodeTable
from lcstore.errors import CorruptionError
from lcstore.kernels import bits, pack, runs, wide
from lcstore.kernels.escapes import decode_escapes

_NONE: Final = np.empty(0, np.int64)
#: Elements of a span: levels of this many stay in the second-level cache.
SPAN: Final = 1 << 18

_VALUE_DTYPE: Final[dict[int, str]] = {1: "u1", 2: "u2", 4: "u4"}


class Room:
    """Memory that decoders use one after another: what one has left there, the next writes over."""

    def __init__(self) -> None:
        self._values = np.empty(0, np.uint8)

    @cached_property
    def levels(self) -> Array:
        """Narrow levels."""
        return np.empty(SPAN, np.int8)

    @cached_property
    def wide(self) -> Array:
        """Levels of the wide coder, of which a span has fewer."""
        return np.empty(SPAN // 4, np.int64)

    @cached_property
    def escapes(self) -> tuple[Array, Array]:
        """Places and levels of what is escaped."""
        return np.empty(SPAN, np.int64), np.empty(SPAN, np.int64)

    def values(self, count: int, dtype: np.dtype[Any]) -> Array:
        """Return memory for some values."""
        nbytes = count * dtype.itemsize
        if self._values.size < nbytes:
            self._values = np.empty(nbytes, np.uint8)
        return self._values[:nbytes].view(dtype)


@dataclass(frozen=True)
class Span:
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
        self._directory = frame.directory.reshape(self._segments, -1).copy()  # the frame may go
        self._offsets = [0, *np.cumsum(self._directory.sum(axis=1, dtype=np.int64)).tolist()]
        make = _wide_decoder if frame.coder == f.WIDE else _narrow_decoder
        self._decode = make(frame, frame.table, room or Room())

    def spans(self, low: int, high: int) -> Iterator[Span]:
        """Decode elements ``low:high``; whole segments are given, so spans may begin before and end behind.

        Yields
        ------
        Span
            `levels` as int8 (int64 of the wide coder), with zero at `places`, whose levels are
            `values`.

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


def spans(frame: Frame, low: int = 0, high: int | None = None) -> Iterator[Span]:
    """Decode the levels of a frame, or those of elements ``low:high``: see `Levels`."""
    return Levels(frame).spans(low, frame.count if high is None else high)


def _words(data: memoryview) -> Array:
    """Return bytes as words, with the padding that decoders look at."""
    words = np.empty((len(data) + bits.PADDING + 7) // 8, np.uint64)
    into = words.view(np.uint8)
    into[: len(data)] = np.frombuffer(data, np.uint8)
    into[len(data) :] = 0
    return words


def _wide_decoder(frame: Frame, codes: CodeTable, memory: Room) -> _Decoder:
    segment = 1 << frame.segment
    table, sizes = codes.lookup(np.arange(256, dtype=np.uint8))
    room, words = memory.wide, _words(frame.payload)

    def decode(start: int, count: int, directory: Array, at: int) -> Span:
        levels = room[:count]
        _check(wide.decode_wide(words, at, directory, table, sizes, levels, segment), start)
        return Span(start, levels, _NONE, _NONE)

    return decode


def _narrow_decoder(frame: Frame, codes: CodeTable, memory: Room) -> _Decoder:
    segment = 1 << frame.segment
    tokens, per = frame.coder == f.RUNS, max(frame.per, 1)
    values_of_symbols = np.arange(256, dtype=np.uint8) if tokens else _pack_values(frame.bits, per)
    table, sizes = codes.lookup(values_of_symbols)
    least = runs.LEAST if tokens else 1 << (frame.bits - 1)
    narrow, (places, values), words = memory.levels, memory.escapes, _words(frame.payload)

    def decode(start: int, count: int, directory: Array, at: int) -> Span:
        levels = narrow[:count]
        if tokens:
            _check(runs.decode_runs(words, at, directory, table, sizes, levels, segment), start)
        else:
            packed = narrow[: -(-count // per) * per].view(table.dtype)
            _check(pack.decode_pack(words, at, directory, table, sizes, packed, segment // per), start)
        found = decode_escapes(words, at, directory, levels, segment, least, places, values)
        _check(found, start)
        return Span(start, levels, places[:found], values[:found])

    return decode


def _pack_values(width: int, per: int) -> Array:
    """Return the levels that each symbol stands for, as one value per symbol; -128 where one is escaped."""
    symbols = np.arange(256)
    out = np.zeros((256, per), np.int8)
    for j in range(per):
        level = (symbols >> (width * j)) & ((1 << width) - 1)
        level = np.where(level >= 1 << (width - 1), level - (1 << width), level)
        out[:, j] = np.where(level == -(1 << (width - 1)), -128, level)
    values: Array = out.view(_VALUE_DTYPE[per]).reshape(-1)
    return values


def _check(status: int, start: int) -> None:
    if status < 0:
        raise CorruptionError(f"the frame's streams do not decode near element {start}")
