"""A target that knows what was read of it."""

from __future__ import annotations

from typing import Any

from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend


class Weighing(MemoryBackend):
    """Counts the bytes of data that are read."""

    nbytes = 0

    def get(self, key: str, *window: Any) -> bytes:
        data = super().get(key, *window)
        self.nbytes += len(data) if key.startswith(keys.DATA) else 0
        return data
