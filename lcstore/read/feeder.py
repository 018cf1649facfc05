"""Chunks that are on their way before they are needed: side by side, in order, and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Final, NamedTuple

from lcstore.edges.algebra import ArrayName
from lcstore.edges.edge import Edge, Fetch
from lcstore.read.fetch import ChunkFetch

#: Bytes that are fetched and not yet needed; more only where one chunk is larger.
ROOM: Final = 64 << 20


class Ask(NamedTuple):
    """A chunk, and what gets it."""

    fetch: Fetch
    pool: str
    array: ArrayName
    chunk: int


class Feeder:
    """Fetches chunks ahead, in the order in which they will be asked for. Thread-safe.

    Parameters
    ----------
    requests
        Threads that wait for the target.
    room
        Bytes that may be fetched and not yet asked for.
    """

    def __init__(self, requests: Executor, room: int = ROOM) -> None:
        self._requests = requests
        self._room = room
        self._nbytes = 0
        self._wanted: Iterator[Ask] = iter(())
        self._coming: dict[Ask, tuple[Future[bytes | None], int]] = {}
        self._taken: set[Ask] = set()
        self._lock = Lock()

    def edge(self, edge: Edge) -> Edge:
        """Return an edge of which chunks may be on their way already."""
        own = None if edge.own is None else self.edge(edge.own)
        return replace(edge, fetch=self.fed(edge.fetch), own=own)

    def fed(self, fetch: Fetch) -> Fed:
        """Return what gets chunks from here."""
        assert isinstance(fetch, ChunkFetch)
        return Fed(self, fetch)

    @contextmanager
    def feeding(self, wanted: Iterable[Ask]) -> Iterator[None]:
        """Fetch chunks ahead for the time of a ``with`` block, in which they are asked for."""
        self._wanted = iter(wanted)
        try:
            self._feed()
            yield
        finally:
            self._stop()

    def take(self, wanted: Ask, fetch: ChunkFetch) -> bytes | None:
        """Return a chunk: it is on its way, or is fetched now."""
        with self._lock:
            coming = self._coming.pop(wanted, None)
            if coming is None:
                self._taken.add(wanted)
        if coming is None:
            return fetch(*wanted[1:])
        future, nbytes = coming
        try:
            data = future.result()
        finally:
            with self._lock:
                self._nbytes -= nbytes
        self._feed()
        return data

    def _feed(self) -> None:
        with self._lock:
            while self._nbytes < self._room and (wanted := next(self._wanted, None)) is not None:
                assert isinstance(wanted.fetch, Fed)
                fetch = wanted.fetch.inner
                ref = fetch.ref(*wanted[1:])
                if ref is not None and wanted not in self._taken and wanted not in self._coming:
                    self._coming[wanted] = self._requests.submit(fetch, *wanted[1:]), ref.nbytes
                    self._nbytes += ref.nbytes

    def _stop(self) -> None:
        """Begin no more; what is on its way is left to come, and nobody looks at it."""
        with self._lock:
            self._wanted = iter(())
            left = [future for future, _ in self._coming.values()]
            self._coming.clear()
        for future in left:
            future.cancel()


class Fed:
    """Gets chunks of an edge from a feeder."""

    def __init__(self, feeder: Feeder, inner: ChunkFetch) -> None:
        self.inner = inner
        self._feeder = feeder

    def __call__(self, pool: str, array: ArrayName, chunk: int) -> bytes | None:
        """Return the bytes of a chunk; None where the record lists none."""
        return self._feeder.take(Ask(self, pool, array, chunk), self.inner)
