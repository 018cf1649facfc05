"""An open store: its threads, what it has listed, and when it may be used."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from threading import RLock
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from lcstore.errors import ClosedError, CorruptionError, FallbackWarning, InvalidInputError, NotFoundError
from lcstore.format.labels import At, check_at
from lcstore.graph.graph import Graph
from lcstore.index.catalog import Catalog
from lcstore.read.reader import Node, Reader
from lcstore.storage.backend import Backend
from lcstore.storage.jobs import Workers

T = TypeVar("T")

#: How often a state is looked for anew when a collector took something away meanwhile.
_TRIES: Final = 4


class Handle:
    """What looking, saving and maintaining share."""

    def __init__(self, backend: Backend, *, writable: bool, threads: int | None) -> None:
        self._backend = backend
        self._writable = writable
        self._executor = Workers(threads or default_threads(), thread_name_prefix="lcstore")
        self._catalog = Catalog(backend, self._executor)
        self._reader = Reader(backend, self._catalog, self._executor)
        self._lock = RLock()
        self._closed = False
        self._process = os.getpid()

    @property
    def url(self) -> str:
        """Where the store is."""
        return self._backend.url

    @property
    def backend(self) -> Backend:
        """What keeps its bytes."""
        return self._backend

    def _listed(self, *, full: bool = False) -> Graph:
        self._check_open()
        return self._catalog.refresh(full=full)

    def _node(self, at: At) -> Node:
        self._listed(full=True)
        return self._reader.node(self._catalog.resolve(check_at(at)))

    def _reading(self, at: At, use: Callable[[Node], T]) -> T:
        """Return what `use` makes of a state.

        It is tried again where maintenance changed its path meanwhile, and where another path leads around
        what is damaged (`FallbackWarning`).
        """
        left = _TRIES
        damage: CorruptionError | None = None
        while True:
            left -= 1
            before: tuple[str, object] | None = None
            try:
                self._listed(full=True)
                name = self._catalog.resolve(check_at(at))
                before = (name.node, self._catalog.situation(name.node))
                found = use(self._reader.node(name))
            except CorruptionError as error:
                if before is None:
                    raise
                node, situation = before
                changed = self._catalog.news(partial(self._catalog.situation, node), situation)
                if changed and left > 0:
                    continue
                self._check_not_going(node, error)
                if not self._catalog.avoid_damage(node, error.key):
                    raise
                damage = damage or error
                continue
            if damage is not None:
                message = f"the state was read over another path: {damage}; run `lcstore repair {self.url}`"
                warnings.warn(message, FallbackWarning, stacklevel=3)
            return found

    def _check_not_going(self, node: str, error: CorruptionError) -> None:
        """Refuse a retired state that a collector has begun to take away: that is no damage."""
        if node in self._catalog.graph.hidden and self._catalog.is_going(node):
            raise NotFoundError(
                f"node {node} was retired, and what it needs is being collected: it is too late to read it"
            ) from error

    def close(self) -> None:
        """End the handle, once a save under way is done; closing twice is fine."""
        if os.getpid() != self._process:  # neither the lock nor the threads came along
            return
        with self._lock:
            self._closed = True
        self._executor.shutdown(wait=True)

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
        return f"<lcstore.Store {self.url!r}{' closed' if self._closed else ''}>"

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"this handle of {self.url} is closed: open the store again")
        if os.getpid() != self._process:
            raise ClosedError(f"this handle of {self.url} is another process's: open the store in this one")

    def _check_writable(self) -> None:
        self._check_open()
        if not self._writable:
            raise InvalidInputError(f"{self.url} was opened for reading: open it with mode 'a' or 'r+'")


def default_threads() -> int:
    """Return how many threads a handle codes with: one per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
