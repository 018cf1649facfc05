"""Until when answers are waited for: known in every thread that works for the same caller."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

T = TypeVar("T")

_ends: Final[ContextVar[float | None]] = ContextVar("lcstore-deadline", default=None)
#: Whether the length that is asked for is only a bound of that of an object.
unsized: Final[ContextVar[bool]] = ContextVar("lcstore-unsized", default=False)
#: When all threads of this process are to have their answers, once it was told to end.
_process_ends = math.inf


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Have a context variable be a value in a ``with`` block, and in threads that begin work for it."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def deadline(seconds: float) -> AbstractContextManager[None]:
    """Have whatever is asked of a target in a ``with`` block end within some seconds, or earlier if told so.

    Threads that begin work for the block (`Workers`) are bound by it too. Only targets that are waited for
    with patience (`PatientBackend`) can be left waiting.
    """
    ends = time.monotonic() + seconds
    before = _ends.get()
    return setting(_ends, ends if before is None else min(before, ends))


def end_soon(seconds: float) -> None:
    """Have whatever this process asks of targets end within some seconds: it was told to end."""
    global _process_ends
    _process_ends = min(_process_ends, time.monotonic() + seconds)


def remaining() -> float | None:
    """Return how many seconds are left, 0 or more; None where there is no end."""
    ends = min(math.inf if (told := _ends.get()) is None else told, _process_ends)
    return None if ends == math.inf else max(0.0, ends - time.monotonic())
