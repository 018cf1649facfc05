"""What follows saves, one thing after another: done at once, or in a thread that nobody waits for."""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from weakref import WeakSet

# Its saves are to be finished after what waits for them: what is registered last is called first.
import lcstore.store.saver  # noqa: F401

_log: Final = logging.getLogger("lcstore")


class Jobs:
    """Does jobs in the order in which they come, and keeps the first failure until somebody hears of it.

    Parameters
    ----------
    background
        Whether they are done in a thread.
    """

    def __init__(self, *, background: bool) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="lcstore-lightning") if background else None
        self._failure: BaseException | None = None
        self._process = os.getpid()
        _all.add(self)

    @property
    def is_foreign(self) -> bool:
        """Whether this process is a fork of the one that does the jobs: the thread did not come along."""
        return os.getpid() != self._process

    def do(self, job: Callable[..., None], *given: Any) -> None:
        """Do a job, or have it done after those before it."""
        if self._pool is None:
            job(*given)
        else:
            self._pool.submit(self._try, job, *given)

    def _try(self, job: Callable[..., None], *given: Any) -> None:
        try:
            job(*given)
        except BaseException as error:
            if self._failure is None:
                self._failure = error
            else:
                _log.warning("besides, this failed: %s", error)

    def check(self) -> None:
        """Raise what a job failed with, if nobody has heard of that yet."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def flush(self) -> None:
        """Wait until all is done; raise what a job failed with, if nobody has heard of that yet."""
        if self._pool is not None:
            self._pool.submit(int).result()
        self.check()


#: Those whose jobs are to end before the interpreter does.
_all: Final[WeakSet[Jobs]] = WeakSet()


def _finish() -> None:
    """Wait for what is under way, and tell of a failure: nobody else will."""
    for jobs in list(_all):
        if jobs.is_foreign:
            continue
        try:
            jobs.flush()
        except BaseException:
            _log.exception("a checkpoint that was saved in the background failed, and the program ends")


getattr(threading, "_register_atexit", atexit.register)(_finish)
