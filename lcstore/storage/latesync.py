"""The sync of folders that makes new names durable, put off so that it is done once for many objects."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from threading import Lock
from typing import Final, TypeAlias

from lcstore.jobs.deadline import setting

#: Makes durable which names are in some folders.
Sync: TypeAlias = Callable[[set[str]], None]


class LateSync:
    """The folders that are still to be synced, and what syncs each of them. Thread-safe."""

    def __init__(self) -> None:
        self._folders: dict[Sync, set[str]] = {}
        self._lock = Lock()

    def add(self, sync: Sync, folder: str) -> None:
        """Have a folder synced later."""
        with self._lock:
            self._folders.setdefault(sync, set()).add(folder)

    def run(self) -> None:
        """Sync the folders that were put off until now."""
        with self._lock:
            due, self._folders = self._folders, {}
        for sync, folders in due.items():
            sync(folders)


_late_sync: Final[ContextVar[LateSync | None]] = ContextVar("lcstore-late-sync", default=None)


def putting_off(late_sync: LateSync) -> AbstractContextManager[None]:
    """Have backends put off what they can, in a ``with`` block and in threads that begin work for it."""
    return setting(_late_sync, late_sync)


def put_off(sync: Sync, folder: str) -> bool:
    """Return whether the sync of a folder is put off; if not, it is to be done now."""
    late_sync = _late_sync.get()
    if late_sync is not None:
        late_sync.add(sync, folder)
    return late_sync is not None
