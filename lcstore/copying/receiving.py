"""The place that a store is copied to: what is there already, and what is put there."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from threading import Lock

from lcstore.errors import (
    InvalidInputError,
    LcstoreError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from lcstore.format import keys
from lcstore.index.aside import set_aside
from lcstore.storage.backend import Backend, read_twice, told_lengths
from lcstore.storage.finding import files_alone
from lcstore.storage.local import LocalBackend
from lcstore.storage.patient import PatientBackend, no_room
from lcstore.storage.put import put_record


class Receiver:
    """The target of a copy. Thread-safe.

    Parameters
    ----------
    backend
        Where it is.
    check
        Whether what is there already is read as well, and not only as long as it should be.

    Attributes
    ----------
    objects, nbytes, replaced, passed_over
        What was put there, how many of it in the place of what was damaged; and what was there already.
    there
        What was there when it was looked at last.
    """

    def __init__(self, backend: Backend, *, check: bool) -> None:
        self.backend = backend
        self.check = check
        self.objects = self.nbytes = self.replaced = self.passed_over = 0
        self.there: frozenset[str] = frozenset()
        self._lengths: dict[str, int] = {}
        self._lock = Lock()

    @property
    def was_store(self) -> bool:
        """Whether the place was a store already, which readers and maintenance may have open."""
        return not self.there.isdisjoint((keys.STORE_KEY, keys.copy_key(keys.STORE_KEY)))

    def look(self) -> None:
        """List what is there."""
        self._lengths = told_lengths(self.backend, "")
        self.there = frozenset(self.backend.list(""))  # of some of which it tells no length, maybe

    def has(self, key: str, nbytes: int, read: Callable[[bytes], object]) -> bool:
        """Return whether an object is there, as long as it should be; with `check` also whether it is whole.

        `read` is given its bytes then, and raises an error where they are damaged.
        """
        if key not in self.there or not self._is_whole(key, nbytes, read):
            return False
        with self._lock:
            self.passed_over += 1
        return True

    def _is_whole(self, key: str, nbytes: int, read: Callable[[bytes], object]) -> bool:
        if self._lengths.get(key) != nbytes and self.backend.size(key) != nbytes:
            return False
        if not self.check:
            return True
        try:
            read_twice(lambda: read(self.backend.get(key, 0, nbytes + 1)))
        except (NotFoundError, StorageError):
            raise
        except LcstoreError:
            return False
        return True

    def put(self, key: str, data: bytes) -> None:
        """Store what is not there whole; what has its name is set aside, as nothing is ever overwritten."""
        replaced = key in self.there and set_aside(self.backend, key) is not None
        try:
            put_record(self.backend, key, data)
        except UnknownOutcomeError as error:  # what is usually said then, and below, is of a store
            url = self.backend.url
            error.message = (
                f"{url} does not say whether it has what was sent: the same copy goes on once it does"
            )
            raise
        except StorageError as error:
            if no_room(error) and keys.STORE_KEY not in self.there:
                url = self.backend.url
                error.message = (
                    f"there is no room left on {url}: what was copied so far is no store yet. With more room "
                    f"the same copy goes on; `lcstore rm {shlex.quote(url)} --apply` deletes what is there"
                )
            raise
        with self._lock:
            self.objects += 1
            self.nbytes += len(data)
            self.replaced += replaced


def check_apart(source: Backend, target: Backend) -> None:
    """Refuse a copy of a store to itself, or of one into another."""
    urls = [f"{backend.url.rstrip('/')}/" for backend in (source, target)]
    if urls[0].startswith(urls[1]) or urls[1].startswith(urls[0]):
        raise InvalidInputError(
            f"{target.url} and {source.url} lie in each other: copy to a place of its own"
        )


def check_new(source: Backend, target: Backend) -> None:
    """Refuse a folder that holds other files, and neither a store nor the beginning of a copy.

    A store that is spread among them, as at the top of a disk, has every other store refused there. Folders
    may be those of stores that lie in this one, which are copied first.
    """
    inner = target.inner if isinstance(target, PatientBackend) else target
    others = files_alone(inner.root) if isinstance(inner, LocalBackend) else []
    if others:
        place = f"{target.url.rstrip('/')}/{source.url.rstrip('/').rpartition('/')[2]}"
        raise InvalidInputError(
            f"{target.url} holds other files, such as {others[0]!r}, and no store: copy to a place that is "
            f"new or empty, such as {place}"
        )
