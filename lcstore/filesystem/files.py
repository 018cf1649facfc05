"""Files that are made when they are read, and the folders that they lie in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol, TypeAlias

import numpy as np

from lcstore.filesystem.decoded import Decoded, Span
from lcstore.once import once


class Segment(Protocol):
    """Bytes of a file that come from one place."""

    @property
    def nbytes(self) -> int:
        """How many."""

    def read(self, start: int, end: int) -> Iterable[memoryview]:
        """Return some of them, in pieces."""

    def span(self, start: int, end: int) -> Span | None:
        """Return what of a tensor these bytes are; None where they are of none."""


@dataclass(frozen=True)
class Literal:
    """Bytes that are there: a header."""

    data: bytes

    @property
    def nbytes(self) -> int:
        """How many."""
        return len(self.data)

    def read(self, start: int, end: int) -> Iterable[memoryview]:
        """Return some of them."""
        return [memoryview(self.data)[start:end]]

    def span(self, start: int, end: int) -> None:
        """Return that they are of no tensor."""


@dataclass(frozen=True)
class Zeros:
    """What fills a chunk of Zarr that goes past the end of its array."""

    nbytes: int

    def read(self, start: int, end: int) -> Iterable[memoryview]:
        """Return some of them."""
        return [memoryview(bytes(end - start))]

    def span(self, start: int, end: int) -> None:
        """Return that they are of no tensor."""


@dataclass(frozen=True)
class Elements:
    """Elements of a tensor, as little-endian values of a dtype."""

    source: Decoded
    whole: int
    first: int
    count: int
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """How many bytes they are."""
        return self.count * self.dtype.itemsize

    def span(self, start: int, end: int) -> Span:
        """Return the elements that these bytes are of."""
        size = self.dtype.itemsize
        return Span(self.whole, self.first + start // size, self.first - (-end // size))

    def read(self, start: int, end: int) -> Iterable[memoryview]:
        """Return some of the bytes."""
        wanted = self.span(start, end)
        at = start - (wanted.low - self.first) * self.dtype.itemsize
        left = end - start
        for values in self.source.values(wanted):
            raw = np.ascontiguousarray(values, self.dtype.newbyteorder("<")).view(np.uint8)[at : at + left]
            at = 0
            left -= raw.size
            yield raw.data


class File:
    """A file of segments, none of which is there before it is read. Thread-safe."""

    def __init__(self, segments: Iterable[Segment], source: Decoded | None = None) -> None:
        self._segments: Sequence[Segment] = [segment for segment in segments if segment.nbytes]
        self._begins = [0, *accumulate(segment.nbytes for segment in self._segments)]
        self._source = source

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._begins[-1]

    def read(self, start: int, end: int, *, on: bool = False) -> bytes:
        """Return the bytes ``start:end``, which lie within it.

        Parameters
        ----------
        start, end
            Which of them.
        on
            Whether the reader goes on behind them, as likely as not: then more is decoded at once.
        """
        if self._source is None:
            return b"".join(piece for part in self._parts(start, end) for piece in part[0].read(*part[1:]))
        most = self._source.most_at_once
        found: list[memoryview] = []
        for low in range(start, end, most):
            high = min(low + most, end)
            self._source.fetch(self._spans(low, high), self._spans(high, self.size if on else end))
            for segment, first, behind in self._parts(low, high):
                found += segment.read(first, behind)
        return b"".join(found)

    def _parts(self, start: int, end: int) -> Iterator[tuple[Segment, int, int]]:
        """Yield the segments that some bytes lie in, with which of their own bytes these are."""
        place = bisect_right(self._begins, start) - 1
        while start < end:
            begin, behind = self._begins[place : place + 2]
            yield self._segments[place], start - begin, min(end, behind) - begin
            start, place = behind, place + 1

    def _spans(self, start: int, end: int) -> Iterator[Span]:
        for segment, first, behind in self._parts(start, end):
            span = segment.span(first, behind)
            if span is not None:
                yield span


#: What lies in a folder, by name.
Folder: TypeAlias = "Mapping[str, Entry]"
Entry: TypeAlias = "File | Folder"


class LazyFolder(Mapping[str, Entry]):
    """A folder that is filled when it is first looked into."""

    def __init__(self, fill: Callable[[], Folder]) -> None:
        self._fill = fill

    @once
    def _entries(self) -> Folder:
        return self._fill()

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def entry_at(folder: Folder, parts: Iterable[str]) -> Entry | None:
    """Return what lies at a path in a folder; None where nothing does."""
    found: Entry | None = folder
    for part in parts:
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
