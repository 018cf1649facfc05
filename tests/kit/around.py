"""Backends around another one, which change little of it."""

from __future__ import annotations

import threading
from typing import Any

from lcstore.errors import StorageError


class Around:
    """A backend that does what another does; that may be exchanged while a handle uses it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Gate(Around):
    """A backend that holds puts back until it is opened, or fails them."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.open, self.fails = threading.Event(), False
        self.open.set()

    def put(self, key: str, data: Any) -> None:
        assert self.open.wait(30)
        if self.fails:
            raise StorageError("no space is left", key=key)
        self.inner.put(key, data)
