"""What is under way in threads when the program ends: it is waited for, and its failure is told."""

from __future__ import annotations

import atexit
import logging
import os
import threading

# Thread pools register what they do at the end when they are imported: that is to be before this does.
from concurrent.futures import thread as _pools  # noqa: F401
from typing import Final
from weakref import WeakValueDictionary

_log: Final = logging.getLogger("lcstore")


class Awaited:
    """Something that a thread of this process may be busy for. What was made last is waited for first."""

    def __init__(self) -> None:
        self._process = os.getpid()
        _awaited[id(self)] = self

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that made it: the thread did not come along."""
        return os.getpid() != self._process

    def wait(self) -> object:
        """Wait for what is under way; raise what it failed with, if nobody has heard of that yet."""
        raise NotImplementedError


_awaited: Final[WeakValueDictionary[int, Awaited]] = WeakValueDictionary()


def _finish() -> None:
    """Wait for what is under way, and tell of a failure: nobody else will."""
    for one in reversed(list(_awaited.values())):
        if one.is_foreign:
            continue
        try:
            one.wait()
        except BaseException:
            _log.exception("a save in the background failed, and the program ends")


# Thread pools refuse work once they hear that the interpreter ends. So this is to hear of it first: what is
# registered last is called first. (`atexit` comes after the pools.)
getattr(threading, "_register_atexit", atexit.register)(_finish)
