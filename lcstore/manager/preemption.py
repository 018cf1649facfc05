"""Notices that the machine is about to be taken away: a signal, or whatever a function asks."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from lcstore.write.saveinfo import SaveInfo

_log: Final = logging.getLogger("lcstore")
#: Steps saved at once since notice was given: a trainer may take one more where it comes between two.
_MOST_SAVES: Final = 3
#: A loop that goes on, as to the end of its epoch, is saved once so many times what a save takes have passed,
#: and such a part of the time since notice: so much of it is lost at the most.
_PAUSE: Final = 10
_LOST: Final = 1 / 10


class Notice:
    """Whether notice was given, and when.

    The handler of the signal only takes note: what was under way goes on, and the loop ends at a step.

    Parameters
    ----------
    asks
        Returns whether notice was given; asked at each step. None: SIGTERM is what gives it, which takes the
        main thread; elsewhere nothing does.
    """

    def __init__(self, asks: Callable[[], bool] | None = None) -> None:
        self._asks = asks
        self._since: float | None = None
        self._signalled = False
        self._saves = 0
        self._last, self._takes = 0.0, 0.0
        self._before: Any = None
        self._process = os.getpid()
        #: What is being handled around the loop, by its id: the error itself would keep all that it holds.
        self._around = id(sys.exception())
        self._watches = asks is None and threading.current_thread() is threading.main_thread()
        if self._watches:
            self._before = signal.signal(signal.SIGTERM, self._note)
        elif asks is None:
            _log.info("not in the main thread: SIGTERM is not waited for")

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a fork that inherited the handler ends as it would have
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if not self._watches:
            self._pass_on(number, frame)
            return
        self._signalled = True
        self._since = self._since or time.monotonic()
        before = _still_there(self._before)
        if _waits(before) is not None:  # several managers are open: all of them hear it
            before(number, frame)

    def give(self) -> None:
        """Take it that notice was given; by SIGTERM, where that is waited for, so all who do hear it."""
        self._since = self._since or time.monotonic()
        if not self._watches:
            return
        self._signalled = True
        handler: Any = signal.getsignal(signal.SIGTERM)
        if _waits(handler) is not None:
            handler(signal.SIGTERM, None)

    @property
    def is_given(self) -> bool:
        """Whether notice was given."""
        if self._since is None and self._asks is not None and self._asks():
            self._since = time.monotonic()
        return self._since is not None

    @property
    def wants_a_save(self) -> bool:
        """Whether the next step is to be saved for it: now and then of a loop that goes on and on."""
        if not self.is_given or self._saves < _MOST_SAVES:
            return self.is_given
        return time.monotonic() - self._last >= max(_PAUSE * self._takes, _LOST * self.seconds)

    @property
    def seconds(self) -> float:
        """Seconds since notice was given; 0 before."""
        return 0.0 if self._since is None else time.monotonic() - self._since

    def saved(self, info: SaveInfo) -> None:
        """Log that a step was saved since notice was given; warn once of a loop that goes on and on."""
        self._saves += 1
        self._last, self._takes = time.monotonic(), info.seconds["total"]
        _log.info("saved before the machine goes, %.1f s after notice: %s", self.seconds, info)
        if self._saves == _MOST_SAVES:
            _log.warning(
                "the loop was told to end, and goes on: from here on a step is saved now and then, so that a "
                "tenth of the time since is lost at most. `if manager.reached_preemption(): break` behind "
                "save() ends it"
            )

    def stop(self) -> None:
        """Wait for no signal any more, and have the one that came do what it would have done.

        Nothing is what it does by default to the first process of a container: that ends here, with the
        status that a shell gives to others. A run that was told to end would be taken for one that is done.
        In a thread that may set no handlers this one stays, and gives the next signal back.
        """
        if not self._watches or os.getpid() != self._process:
            return
        self._watches = False
        if threading.current_thread() is threading.main_thread():
            self._give_back()
        if self._signalled:
            error = sys.exception()
            _tell_of(error if id(error) != self._around else None)
            _raise(signal.SIGTERM)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Do what was done before with a signal that comes after `stop`, in another thread or to a handler
        that somebody has set over this one, and which calls this one."""
        before, on_main = _still_there(self._before), threading.current_thread() is threading.main_thread()
        if on_main and self._give_back():
            _raise(number)
        elif callable(before):
            if on_main or _waits(before) is not None:  # another thread only tells notices
                before(number, frame)
        elif on_main and before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            _raise(number)

    def _give_back(self) -> bool:
        """Have what was there before handle the signal; return whether this one did. In the main thread."""
        if signal.getsignal(signal.SIGTERM) != self._note:
            return False
        before = _still_there(self._before)
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        return True


def _raise(number: int) -> None:
    """Have a signal do what it does by now; the first process of a container, which it does not end, ends."""
    signal.raise_signal(number)
    if signal.getsignal(number) == signal.SIG_DFL:
        sys.exit(128 + number)


def _tell_of(error: BaseException | None) -> None:
    """Log an error that ends the loop where the signal ends the process before anybody hears of it."""
    if isinstance(error, Exception) and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        _log.error("the loop ended by an error after notice, and now by SIGTERM", exc_info=error)


def _waits(handler: Any) -> Notice | None:
    """Return whose handler of the signal it is; None if it is no notice's."""
    whose = getattr(handler, "__self__", None)
    return whose if isinstance(whose, Notice) else None


def _still_there(handler: Any) -> Any:
    """Return a handler that was there before, without those of notices that have stopped meanwhile."""
    while (notice := _waits(handler)) is not None and not notice._watches:
        handler = notice._before
    return handler
