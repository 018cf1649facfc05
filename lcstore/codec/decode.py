"""Frames to levels, span by span, so that whoever uses them works in cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

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
_SPAN = 1 << 18

_VALUE_DTYPE: Final[dict[int, str]] = {1: "u1", 2: "u2", 4: "u4"}


@dataclass(frozen=True)
class Span:
    """Levels of a run of elements. They are valid until the next span is asked for."""

    start: int
    levels: Array
    places: Array
    values: Array


#: Decodes segments; is given their first element, how many they have, their rows of the directory and where
#: their bytes begin.
_Decoder: TypeAlias = Callable[[int, int, Array, int], Span]


def spans(frame: Frame, low: int = 0, high: int | None = None) -> Iterator[Span]:
    """Decode the levels of a frame.

    Parameters
    ----------
    frame
        A frame of levels (not one of planes or raw bytes).
    low, high
        Elements that are wanted; whole segments are given, so spans may begin before and end behind.

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
    high = frame.count if high is None else high
    if frame.table is None or high <= low:  # without codes every level is zero
        return
    segment = 1 << frame.segment
    segments = -(-frame.count // segment)
    directory = frame.directory.reshape(segments, -1)
    offsets = np.concatenate(([0], np.cumsum(directory.sum(axis=1, dtype=np.int64))))
    decode = (_wide_decoder if frame.coder == f.WIDE else _narrow_decoder)(frame, frame.table)
    step = _SPAN // segment // (4 if frame.coder == f.WIDE else 1)
    last = min(segments, -(-high // segment))
    for first in range(low // segment, last, step):
        end = min(first + step, last)
        start = first * segment
        count = min(end * segment, frame.count) - start
        yield decode(start, count, directory[first:end], int(offsets[first]))


def _words(payload: memoryview) -> Array:
    words = np.zeros((len(payload) + bits.PADDING + 7) // 8, np.uint64)
    words.view(np.uint8)[: len(payload)] = np.frombuffer(payload, np.uint8)
    return words


def _wide_decoder(frame: Frame, codes: CodeTable) -> _Decoder:
    segment, words = 1 << frame.segment, _words(frame.payload)
    table, sizes = codes.lookup(np.arange(256, dtype=np.uint8))
    room = np.empty(_SPAN // 4, np.int64)

    def decode(start: int, count: int, directory: Array, at: int) -> Span:
        levels = room[:count]
        _check(wide.decode_wide(words, at, directory, table, sizes, levels, segment), start)
        return Span(start, levels, _NONE, _NONE)

    return decode


def _narrow_decoder(frame: Frame, codes: CodeTable) -> _Decoder:
    segment, words = 1 << frame.segment, _words(frame.payload)
    tokens, per = frame.coder == f.RUNS, max(frame.per, 1)
    values_of_symbols = np.arange(256, dtype=np.uint8) if tokens else _pack_values(frame.bits, per)
    table, sizes = codes.lookup(values_of_symbols)
    least = runs.LEAST if tokens else 1 << (frame.bits - 1)
    narrow = np.empty(_SPAN, np.int8)
    places, values = np.empty(_SPAN, np.int64), np.empty(_SPAN, np.int64)

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
