"""Waiting of which an interrupt leaves no lock taken, wherever it comes.

The ``with`` of `threading.Condition` calls a function of Python. A Ctrl-C that comes in there, once the lock
is taken, leaves it taken for ever, and whoever wants it next waits for ever: so do the threads of a pool that
are done with a job. The ``with`` of a lock itself is one instruction, and is interrupted before or after it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sized
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:

    class _Lock:
        def acquire(self) -> bool: ...
        def release(self) -> None: ...
        def _is_owned(self) -> bool: ...
        def _acquire_restore(self, state: tuple[int, int]) -> None: ...
        def __enter__(self) -> bool: ...
        def __exit__(self, *what: object) -> None: ...
else:
    _Lock = type(threading.RLock())

T = TypeVar("T")

_log: Final = logging.getLogger("lcstore")
#: Seconds between looks whether anything is at work yet, and until it is told that something is.
_LOOK: Final = 0.001
_PATIENCE: Final = 2.0


def to_the_end(act: Callable[[], None]) -> None:
    """Do something until it is through, however often this thread is interrupted; raise the last of these."""
    interrupted: BaseException | None = None
    while True:
        try:
            act()
            break
        except BaseException as again:
            interrupted = again
    if interrupted is not None:
        raise interrupted


def wait_while(at_work: Sized) -> None:
    """Wait until nothing is at work any more; a line of the log tells whoever waits for long what for."""
    tell_at = time.monotonic() + _PATIENCE
    while at_work:
        time.sleep(_LOOK)
        if time.monotonic() >= tell_at:
            tell_at = math.inf
            _log.warning(
                "stopped; what was begun is waited for (jobs at work: %d), so that nothing moves afterwards. "
                "Where kernels are compiled, that takes a minute or more, and is kept for later processes",
                len(at_work),
            )


class Condition(_Lock):
    """A `threading.Condition` that is a lock itself."""

    def __init__(self) -> None:
        self._waiting: deque[threading.Lock] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        """Let go of the lock, and take it again once somebody notifies; return whether anybody did."""
        mine = threading.Lock()
        mine.acquire()
        self._waiting.append(mine)
        told = False
        try:
            self.release()
            told = mine.acquire(True, -1 if timeout is None else max(0.0, timeout))
        finally:
            try:
                self._take_again()
            finally:
                self._take_again()  # where an interrupt came in the first try before it was taken
            if not told and mine in self._waiting:
                self._waiting.remove(mine)
        return told

    def _take_again(self) -> None:
        if not self._is_owned():
            # No interrupt gets in between, as one does while `acquire` waits.
            self._acquire_restore((1, threading.get_ident()))

    def wait_for(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        while not is_so():
            self.wait()

    def notify_all(self) -> None:
        """Wake all who wait."""
        while self._waiting:
            self._waiting.popleft().release()


class SafeFuture(Future[T]):
    """A future on such a condition."""

    def __init__(self) -> None:
        super().__init__()
        self._condition = Condition()  # type: ignore[assignment]


class Idle:
    """How many threads of a pool have nothing to do: what it asks of a semaphore, in single calls."""

    def __init__(self) -> None:
        self._idle: SimpleQueue[None] = SimpleQueue()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Take one that is idle; return whether there was one. Nobody waits."""
        try:
            self._idle.get_nowait()
        except Empty:
            return False
        return True

    def release(self, n: int = 1) -> None:
        """Have one more be idle."""
        self._idle.put(None)
