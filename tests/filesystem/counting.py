"""A store in memory that counts what is asked of it."""

from __future__ import annotations

from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend


class Counting(MemoryBackend):
    """Counts listings, and chunks that are read, by edge."""

    def list(self, prefix, foreign=None):
        self.__dict__.setdefault("listed", []).append(prefix)
        return super().list(prefix, foreign)

    def get(self, key, start=None, end=None):
        if keys.is_data_key(key) and "/c." in key:
            self.__dict__.setdefault("read", []).append(key)
        return super().get(key, start, end)

    def counted(self, name: str) -> list[str]:
        found, self.__dict__[name] = self.__dict__.get(name, []), []
        return found
