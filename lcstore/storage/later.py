"""The step that makes names durable, put off so that it is taken once for many objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Final, TypeAlias

#: Makes what was stored in some folders durable.
Settle: TypeAlias = Callable[[set[str]], None]


class Later:
    """What is to be settled, by whom. Thread-safe."""

    def __init__(self) -> None:
        self._folders: dict[Settle, set[str]] = {}
        self._lock = Lock()

    def add(self, settle: Settle, folder: str) -> None:
        """Have a folder settled."""
        with self._lock:
            self._folders.setdefault(settle, set()).add(folder)

    def settle(self) -> None:
        """Settle what was put off until now."""
        with self._lock:
            due, self._folders = self._folders, {}
        for settle, folders in due.items():
            settle(folders)


_later: Final[ContextVar[Later | None]] = ContextVar("lcstore-later", default=None)


@contextmanager
def putting_off(later: Later) -> Iterator[None]:
    """Have backends put off what they can, in a ``with`` block and in threads that begin work for it."""
    token = _later.set(later)
    try:
        yield
    finally:
        _later.reset(token)


def put_off(settle: Settle, folder: str) -> bool:
    """Return whether settling a folder is put off; if not, it is to be settled now."""
    later = _later.get()
    if later is not None:
        later.add(settle, folder)
    return later is not None
