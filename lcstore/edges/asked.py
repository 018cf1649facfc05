"""Chunks of edges that are asked for before they are needed: a target may be far away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Final

from lcstore.edges.algebra import ArrayName
from lcstore.edges.edge import Edge

#: Chunks that are on their way at a time for one that is put together, and their bytes, if more than one.
_MOST: Final = 16
_BYTES: Final = 4 << 20


@dataclass(frozen=True)
class _Taken:
    """Gets chunks of an edge from where they are on their way, if they were asked for."""

    edge: Edge
    asked: Asked

    def __call__(self, pool: str, array: ArrayName, chunk: int) -> bytes | None:
        found = self.asked.take(self.edge, pool, array, chunk)
        return self.edge.fetch(pool, array, chunk) if found is None else found.result()


@dataclass(frozen=True)
class _Line:
    """What one chunk is put together of: what is still to be asked for, and the bytes of what was."""

    needs: Iterator[tuple[Edge, ArrayName]]
    coming: dict[str, int]


class Asked:
    """Chunks on their way. Threads may use it side by side, each for chunks of its own.

    Parameters
    ----------
    requests
        Threads that wait for the target.
    """

    def __init__(self, requests: Executor) -> None:
        self._requests = requests
        self._coming: dict[str, Future[bytes | None]] = {}
        self._lines: dict[tuple[str, int], _Line] = {}

    def edge(self, edge: Edge) -> Edge:
        """Return an edge that takes what was asked for from here."""
        own = None if edge.own is None else replace(edge.own, fetch=_Taken(edge.own, self))
        return replace(edge, fetch=_Taken(edge, self), own=own)

    def ask(self, edge: Edge, pool: str, array: ArrayName, chunk: int) -> str | None:
        """Begin to get a chunk; return its key, or None where it is on its way already."""
        key = edge.locate(pool, array, chunk)
        if key in self._coming:
            return None
        fetch = edge.fetch.edge.fetch if isinstance(edge.fetch, _Taken) else edge.fetch
        self._coming[key] = self._requests.submit(fetch, pool, array, chunk)
        return key

    def ask_for(self, pool: str, chunk: int, needs: Iterable[tuple[Edge, ArrayName]]) -> None:
        """Begin to get what one chunk is put together of, some at a time: as they are taken, more."""
        line = self._lines[pool, chunk] = _Line(iter(needs), {})
        self._go_on(line, pool, chunk)

    def _go_on(self, line: _Line, pool: str, chunk: int) -> None:
        while len(line.coming) < _MOST and sum(line.coming.values()) < _BYTES:
            edge, array = next(line.needs, (None, None))
            if edge is None or array is None:
                break
            key = self.ask(edge, pool, array, chunk)
            if key is not None:
                line.coming[key] = edge.nbytes(pool, array, chunk)

    def take(self, edge: Edge, pool: str, array: ArrayName, chunk: int) -> Future[bytes | None] | None:
        """Return a chunk that was asked for, and hold it no more; None where it was not."""
        key = edge.locate(pool, array, chunk)
        line, found = self._lines.get((pool, chunk)), self._coming.pop(key, None)
        if line is not None and line.coming.pop(key, None) is not None:
            self._go_on(line, pool, chunk)
        return found

    def drop(self, keys: Iterable[str]) -> None:
        """Hold some chunks no more."""
        for key in keys:
            self._coming.pop(key, None)
