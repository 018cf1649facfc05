"""Frames to levels, span by span, so that whoever uses them works in cache; or onto a track at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.frame import Frame
from lcstore.coders import format as f
from lcstore.coders.tables import CodeTable
from lcstore.errors import CorruptionError
from lcstore.kernels import bits, pack, runs, wide
from lcstore.kernels.adding import add_coded
from lcstore.kernels.escapes import decode_escapes
from lcstore.kernels.grid import add_levels

_NONE: Final = np.empty(0, np.int64)
#: What takes the place of the tables of the other coder.
_NO_JOINED, _NO_MOVES, _NO_TABLE = np.empty((0, 2), np.uint64), np.empty(0, np.uint16), np.empty(0, np.uint8)
#: Elements of a span: levels of this many stay in the second-level cache.
SPAN: Final = 1 << 18


class Room:
    """Memory that decoders use one after another: what one has left there, the next writes over."""

    def __init__(self) -> None:
        self._values = np.empty(0, np.uint8)
        self.waiting: TrackBlock | None = None

    @cached_property
    def levels(self) -> Array:
        """Narrow levels."""
        return np.empty(SPAN, np.int8)

    @cached_property
    def sums(self) -> Array:
        """Narrow levels of several frames, added up."""
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


class TrackBlock:
    """A block of a track that deltas are added to.

    Levels of equal step sizes wait, added to each other, until somebody looks at the track: to add bytes to
    bytes takes a fraction of the time.

    Parameters
    ----------
    track
        ``int32[n]`` or ``int64[n]``, n at most `SPAN`; changed in place.
    room
        Where levels wait. Of several blocks one at a time has levels that do.
    """

    def __init__(self, track: Array, room: Room) -> None:
        self.size = track.size
        self._track, self._room = track, room
        self._scales, self._how, self._left = np.empty(0, np.int16), (0, 0, 0), 0

    @property
    def track(self) -> Array:
        """The track, with all that was added."""
        self.settle()
        return self._track

    def settle(self) -> None:
        """Add what waits to the track."""
        (size, block, sign), self._how = self._how, (0, 0, 0)
        if size:
            self._room.waiting = None  # neither keeps the other from going
            part = self._track[:size]
            add_levels(self._room.sums[:size], _NONE, _NONE, self._scales, block, sign, part)

    def take(self, size: int, scales: Array, block: int, sign: int, most: int) -> tuple[Array, bool, Array]:
        """Give room for `size` levels up to `most`, whether they are the first, and the part of the track."""
        how = size, block, sign
        first = most > self._left or how != self._how or not np.array_equal(scales, self._scales)
        if first:
            if self._room.waiting is not None:
                self._room.waiting.settle()
            self._room.waiting = self
            self._scales, self._how, self._left = scales, how, 127
        self._left -= most
        return self._room.sums[:size], first, self._track[:size]


class Span(NamedTuple):
    """Levels of a run of elements. They are valid until the next span is asked for."""

    start: int
    levels: Array
    places: Array
    values: Array


#: Decodes segments; is given their first element, how many they have, their rows of the directory, and the
#: place of their first byte.
_Decoder: TypeAlias = Callable[[int, int, Array, int], Span]
#: Adds segments: rows and first byte as above, and the rest as for `add_coded`.
_Adder: TypeAlias = Callable[[Array, int, Array, int, int, Array, bool, Array], int]


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
        self._add: _Adder | None = None
        self._most = 0
        if frame.table is None:  # without codes every level is zero
            return
        self._directory = frame.directory.reshape(self._segments, -1).copy()  # the frame may go
        self._offsets = [0, *np.cumsum(self._directory.sum(axis=1, dtype=np.int64)).tolist()]
        if frame.coder == f.WIDE:
            self._decode = _wide_decoder(frame, frame.table, room or Room())
        else:
            self._decode, self._add, self._most = _narrow_decoder(frame, frame.table, room or Room())

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

    def add(self, low: int, scales: Array, block: int, sign: int, onto: TrackBlock) -> None:
        """Add the span that begins with element `low` to a block: see `kernels.grid.add_levels`.

        Errors as for `spans`; the block may then be changed already.
        """
        size = min(SPAN, self._count - low)
        if self._add is not None and size > 0:
            first, end = low // self._segment, -(-(low + size) // self._segment)
            here = scales[low // block : -(-(low + size) // block)]
            sums = onto.take(size, here, block, sign, self._most)
            _check(self._add(self._directory[first:end], self._offsets[first], here, block, sign, *sums), low)
            return
        for at, levels, places, values in self.spans(low, low + size):
            part = onto.track[at - low : at - low + levels.size]
            add_levels(levels, places, values, scales[at // block :], block, sign, part)


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


def _narrow_decoder(frame: Frame, codes: CodeTable, memory: Room) -> tuple[_Decoder, _Adder, int]:
    """Return what decodes, what adds, and the largest level that is not escaped."""
    segment = 1 << frame.segment
    into: Any = pack.decode_pack
    onto: Any = add_coded
    dense, tokens = (_NO_JOINED, _NO_MOVES, 0), (_NO_TABLE, _NO_TABLE)
    tables: tuple[Any, ...]
    if frame.coder == f.RUNS:
        into, least = runs.decode_runs, runs.LEAST
        tables = tokens = codes.lookup(np.arange(256, dtype=np.uint8))
    else:
        per, least = max(frame.per, 1), 1 << (frame.bits - 1)
        tables = dense = codes.joined(_pack_values(frame.bits, per), per)
    narrow, (places, values), words = memory.levels, memory.escapes, _words(frame.payload)

    def decode(start: int, count: int, directory: Array, at: int) -> Span:
        levels = narrow[:count]
        _check(into(words, at, directory, *tables, levels, segment), start)
        found = decode_escapes(words, at, directory, levels, segment, least, places, values)
        _check(found, start)
        return Span(start, levels, places[:found], values[:found])

    def add(directory: Array, at: int, *track: Any) -> int:
        room = narrow, segment, least, places, values
        return int(onto(words, at, directory, *dense, *tokens, *room, *track))

    return decode, add, least - 1


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
