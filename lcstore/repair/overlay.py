"""A backend on top of another: it shows what a change would come to, and remembers it in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from itertools import pairwise
from typing import TypeAlias

from lcstore.arrays import Buffer
from lcstore.errors import NotFoundError
from lcstore.storage.backend import Backend, Leftovers, Names
from lcstore.storage.put import put_record

#: Returns the bytes of an object: each is made only when it is asked for, so that no two are held.
_Made: TypeAlias = Callable[[], bytes]


class Overlay:
    """Changes that are not made yet. What is below is never written to until `apply`."""

    def __init__(self, below: Backend) -> None:
        self.below = below
        self.steps: list[tuple[str, _Made | None]] = []
        self._there: dict[str, _Made] = {}
        self._gone: set[str] = set()
        self._moved: set[str] = set()

    def apply(self) -> Iterator[str]:
        """Make the changes, one after another; yield each key once it is done.

        Raises
        ------
        CorruptionError, StorageError
            An object cannot be made any more, or the target failed: the changes before were made, and to
            begin anew is right.
        """
        ready: bytes | None = None
        for (key, made), (next_key, then) in pairwise([*self.steps, ("", None)]):
            if made is None:
                # What takes its place is made first: where that fails, what is there stays.
                ready = then() if then is not None and next_key == key else None
                self.below.delete(key)
            else:
                # What was to be moved may have been collected meanwhile.
                with suppress(NotFoundError) if key in self._moved else nullcontext():
                    put_record(self.below, key, made() if ready is None else ready)
                ready = None
            yield key

    @property
    def url(self) -> str:
        """Where the store is."""
        return self.below.url

    @property
    def durable(self) -> bool:
        """Whether what the backend below stores outlives a power cut."""
        return self.below.durable

    @property
    def writable(self) -> bool:
        """Everything can be written here."""
        return True

    def put(self, key: str, data: Buffer) -> None:
        """Remember an object."""
        kept = bytes(data)
        self.put_made(key, lambda: kept)

    def put_made(self, key: str, made: _Made) -> None:
        """Remember an object that is made whenever it is asked for."""
        self._there[key] = made
        self._gone.discard(key)
        self.steps.append((key, made))

    def move(self, key: str, to: str) -> None:
        """Remember that an object is to have another key."""
        self._moved.add(to)
        self.put_made(to, self._there.get(key) or partial(self.below.get, key))
        self.delete(key)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes of an object."""
        if key in self._there:
            return self._there[key]()[start:end]
        if key in self._gone:
            raise NotFoundError("no such object", key=key)
        return self.below.get(key, start, end)

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        """Return every key below a prefix."""
        found = [key for key in self.below.list(prefix, foreign) if key not in self._gone]
        inside = f"{prefix}/" if prefix else ""
        return [k for k in found if k not in self._there] + [k for k in self._there if k.startswith(inside)]

    def delete(self, key: str) -> None:
        """Remember that an object is to go."""
        self._there.pop(key, None)
        self._gone.add(key)
        self.steps.append((key, None))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Remember that objects are to go."""
        for key in keys:
            self.delete(key)

    def size(self, key: str) -> int:
        """Return the length of an object."""
        return len(self.get(key)) if key in self._there or key in self._gone else self.below.size(key)

    def created(self, key: str) -> float | None:
        """Return when an object was stored; of one that is not stored yet that is not known."""
        if key in self._there:
            return None
        if key in self._gone:
            raise NotFoundError("no such object", key=key)
        return self.below.created(key)

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return what writes that have not ended left below; none of it is taken away."""
        return self.below.leftovers(folders)
