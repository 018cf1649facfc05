"""What follows saves, one thing after another: done at once, or in a thread that nobody waits for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from lcstore.jobs.awaited import Awaited
from lcstore.jobs.jobs import Workers

_log: Final = logging.getLogger("lcstore")


class Jobs(Awaited):
    """Does jobs in their order, in a thread if `background`; keeps a first failure until it is told."""

    def __init__(self, *, background: bool) -> None:
        self._pool = Workers(1, "lcstore-lightning") if background else None
        self._failure: BaseException | None = None
        super().__init__()

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

    def wait(self) -> None:
        """Wait until all is done; raise what a job failed with, if nobody has heard of that yet."""
        if self._pool is not None:
            self._pool.submit(int).result()
        self.check()
