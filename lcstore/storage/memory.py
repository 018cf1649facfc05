"""Objects in this process's memory: for tests, and as the fast tier of a store."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Self

from lcstore.errors import InvalidInputError
from lcstore.storage.backend import BaseBackend, Names


class _Space:
    """The objects behind one name: each with its bytes and the time when it was stored. Not thread-safe."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.objects: dict[str, tuple[bytes, float]] = {}
        #: Their keys by the folders that they lie in: each save lists some, and few of a store's keys.
        self._below: dict[str, dict[str, None]] = {}

    def put(self, key: str, kept: tuple[bytes, float]) -> None:
        """Store an object."""
        if key not in self.objects:
            for folder in _folders(key):
                self._below.setdefault(folder, {})[key] = None
        self.objects[key] = kept

    def delete(self, key: str) -> None:
        """Delete an object, if it is there."""
        if self.objects.pop(key, None) is not None:
            for folder in _folders(key):
                self._below[folder].pop(key)
                if not self._below[folder]:
                    del self._below[folder]

    def below(self, folder: str) -> list[str]:
        """Return the keys below a folder, "" being that of all."""
        return list(self._below.get(folder, ()) if folder else self.objects)


def _folders(key: str) -> Iterator[str]:
    """Yield all folders that a key lies in."""
    end = key.find("/")
    while end >= 0:
        yield key[:end]
        end = key.find("/", end + 1)


_spaces: dict[str, _Space] = {}


def memory_names(form: re.Pattern[str]) -> list[str]:
    """Return the names of this process's memory in which there is an object whose key has some form."""
    return [name for name, space in list(_spaces.items()) if any(map(form.fullmatch, list(space.objects)))]


class MemoryBackend(BaseBackend):
    """A dictionary of objects behind a lock.

    ``MemoryBackend(name)`` is the same store everywhere in this process, as ``memory://name`` is. Nothing
    outlives the process, and a child process starts with a copy.
    """

    def __init__(self, name: str) -> None:
        self.name = name.strip("/")
        super().__init__(f"memory://{self.name}", durable=False)
        # One step, so that two threads that open a new name at once share it.
        self._space = _spaces.setdefault(self.name, _Space())

    @classmethod
    def fresh(cls, objects: Mapping[str, bytes] | None = None) -> Self:
        """Return an unnamed backend, holding `objects`, that nobody else can open."""
        made = cls.__new__(cls)
        made.name = f"fresh-{secrets.token_hex(8)}"
        BaseBackend.__init__(made, f"memory://{made.name}", durable=False)
        made._space = _Space()
        for key, data in (objects or {}).items():
            made.put(key, data)
        return made

    def snapshot(self) -> dict[str, bytes]:
        """Return every object, as a plain dict that later writes do not change."""
        with self._space.lock:
            return {key: data for key, (data, _) in self._space.objects.items()}

    def __reduce__(self) -> tuple[object, ...]:
        if _spaces.get(self.name) is not self._space:
            raise InvalidInputError("an unnamed memory store cannot be sent to another process")
        return (_sent, (type(self), self.name))

    def _put(self, key: str, data: memoryview) -> None:
        # Copied (unless it cannot change) before the lock is taken: others need not wait for it.
        whole = data.obj
        own = whole if isinstance(whole, bytes) and len(whole) == len(data) else bytes(data)
        kept = (own, time.time())
        with self._space.lock:
            self._space.put(key, kept)

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        return self._find(key)[0][start:end]

    def _list(self, prefix: str) -> Names:
        with self._space.lock:
            return self._space.below(prefix)

    def _delete(self, key: str) -> None:
        with self._space.lock:
            self._space.delete(key)

    def _size(self, key: str) -> int:
        return len(self._find(key)[0])

    def _created(self, key: str) -> float:
        return self._find(key)[1]

    def _find(self, key: str) -> tuple[bytes, float]:
        with self._space.lock:
            found = self._space.objects.get(key)
        if found is None:
            raise FileNotFoundError(key)
        return found


def _sent(kind: type[MemoryBackend], name: str) -> MemoryBackend:
    """Return a backend that was sent: in its own process alone what it held is there."""
    if name not in _spaces:
        raise InvalidInputError(
            f"memory://{name} was sent from another process, whose memory this one does not see: use a store "
            "in a directory or a bucket"
        )
    return kind(name)
