"""A target that is far away: every request takes a while, and who waited for whom is known."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from lcstore.arrays import Buffer
from lcstore.storage.backend import Backend, Leftovers, Names

R = TypeVar("R")


@dataclass(frozen=True)
class Request:
    """One request: what it was, and the length of the longest chain of requests, one after another, to it."""

    name: str
    key: str
    depth: int


class FarBackend:
    """A backend around another, that answers once nothing was asked for some seconds. Thread-safe.

    Attributes
    ----------
    log
        The requests that were answered.
    """

    def __init__(self, inner: Backend, seconds: float) -> None:
        self.inner = inner
        self.seconds = seconds
        self.log: list[Request] = []
        self._deepest = 0
        self._latest = 0.0
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Of an object store: so nothing is stored that such a store keeps by itself."""
        return "s3://far/away"

    @property
    def durable(self) -> bool:
        """Whether an object that `put` returned for outlives a power cut."""
        return True

    @property
    def writable(self) -> bool:
        """Whether `put` and `delete` can work at all."""
        return True

    def put(self, key: str, data: Buffer) -> None:
        """Store an object."""
        self._ask("put", key, lambda: self.inner.put(key, data))

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes of an object."""
        return self._ask("get", key, lambda: self.inner.get(key, start, end))

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        """Return the keys below a prefix."""
        return self._ask("list", prefix, lambda: self.inner.list(prefix, foreign))

    def lengths(self, prefix: str) -> dict[str, int]:
        """Return how long objects below a prefix are, as a listing of a bucket tells."""

        def listed() -> dict[str, int]:
            return {key: self.inner.size(key) for key in self.inner.list(prefix)}

        return self._ask("list", prefix, listed)

    def delete(self, key: str) -> None:
        """Delete an object."""
        self._ask("delete", key, lambda: self.inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, in one request."""
        wanted = [*keys]
        self._ask("delete", f"{len(wanted)} objects", lambda: self.inner.delete_many(wanted))

    def size(self, key: str) -> int:
        """Return the length of an object."""
        return self._ask("size", key, lambda: self.inner.size(key))

    def created(self, key: str) -> float | None:
        """Return when an object was stored."""
        return self._ask("created", key, lambda: self.inner.created(key))

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return what writes that have not ended left."""
        return self.inner.leftovers(folders, before)

    @contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """Log anew, for the time of a ``with`` block."""
        with self._lock:
            self.log = []
            self._deepest = 0
        yield self.log

    def _ask(self, name: str, key: str, effect: Callable[[], R]) -> R:
        with self._lock:
            depth = self._deepest + 1
            self._latest = time.monotonic()
        # What goes out at once comes a little apart: nothing is answered before all of it is there.
        while (left := self._latest + self.seconds - time.monotonic()) > 0:
            time.sleep(left)
        try:
            return effect()
        finally:
            with self._lock:
                self._deepest = max(self._deepest, depth)
                self.log.append(Request(name, key, depth))


def in_series(log: Iterable[Request]) -> int:
    """Return how many requests were made one after another, at the most."""
    return max((request.depth for request in log), default=0)
