"""An open store: its threads, what it has listed, and when it may be used."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from lcstore.durability import Durability
from lcstore.errors import InvalidInputError, ReadOnlyError
from lcstore.format.labels import At, Run
from lcstore.graph.refs import NodeName
from lcstore.index.index import Index
from lcstore.jobs.jobs import REQUESTS, Workers, default_threads
from lcstore.read.find import named
from lcstore.read.reader import Reader
from lcstore.storage.backend import Backend

if TYPE_CHECKING:
    from lcstore.compaction.compact import Compactor

_log: Final = logging.getLogger("lcstore")


class Handle:
    """What looking, saving and maintaining share."""

    def __init__(
        self, backend: Backend, durability: Durability, *, writable: bool, threads: int | None
    ) -> None:
        self._backend = backend
        self._durability = durability
        self._writable = writable
        self._executor = Workers(threads or default_threads())
        #: Threads that wait for the target, apart from those that code.
        self._requests = Workers(REQUESTS, "lcstore-requests")
        self._index = Index(backend, self._requests)
        self._reader = Reader(self._index, self._executor, self._requests)
        self._lock = RLock()

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._backend.url

    @property
    def durability(self) -> Durability:
        """What this handle stores besides, so that damage costs little."""
        return self._durability

    @property
    def backend(self) -> Backend:
        """What keeps its bytes."""
        return self._backend

    def close(self) -> None:
        """End the handle, once a save under way is done; closing twice is fine."""
        if os.getpid() != self._reader.process:  # neither the lock nor the threads came along
            return
        with self._lock:
            self._reader.closed = True
        self._executor.shutdown(wait=True)
        self._requests.shutdown(wait=True)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Have nothing else change what the next save goes on from."""
        with self._lock:
            self._check_open()
            yield

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise InvalidInputError(
            f"a handle of {self.url} cannot be copied or sent: send the URL, and open that"
        )

    def __repr__(self) -> str:
        return f"<lcstore.Store {self.url!r}{' closed' if self._reader.closed else ''}>"

    def _compactor(self, **bounds: Any) -> Compactor:
        """Return what plans and carries out a compaction."""
        from lcstore.compaction.compact import Compactor

        return Compactor(self._reader, self._durability, **bounds)

    def _found(self, at: At, run: Run = None) -> str:
        """Return the node of the state that `at` and `run` mean together, as of a new listing."""
        self._reader.listed()
        return named(self._reader, at, run).node

    def _log_read(self, what: str, name: NodeName, started: float) -> None:
        """Note in the log that a state was read, begun at a moment of `time.perf_counter`."""
        seconds = time.perf_counter() - started
        _log.info("%s: %s step %d, node %s, in %.2f s", self.url, what, name.step, name.node, seconds)

    def _log_done(self, report: object, *, dry_run: bool) -> None:
        """Note in the log what maintenance did, if it did anything."""
        if not dry_run:
            _log.info("%s: %s", self.url, report)

    def _check_open(self) -> None:
        self._reader.check_open()

    def _check_writable(self, instead: str = "") -> None:
        self._check_open()
        if not self._writable:
            raise ReadOnlyError(f"{self.url} was opened for reading: open it with mode 'a' or 'r+'{instead}")
