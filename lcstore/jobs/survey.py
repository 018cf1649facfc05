"""Doing the same to many objects, several at a time and never many ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Final, TypeAlias, TypeVar

from lcstore.jobs.jobs import Workers

T = TypeVar("T")
R = TypeVar("R")

#: Called with what is being done, how much of it is done, and how much there is.
OnProgress: TypeAlias = Callable[[str, int, int], None]

#: Requests in flight: small objects cost latency, not bandwidth.
WORKERS: Final = 16
_AHEAD: Final = 8


def spread(
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    workers: int = WORKERS,
    phase: str = "",
    on_progress: OnProgress | None = None,
    until: Callable[[], bool] = lambda: False,
) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order, several at a time and never many ahead.

    Once `until` says so no more are begun, and the rest is not yielded.
    """
    wanted = list(items)
    pending: deque[Future[R]] = deque()

    def results() -> Iterator[R]:
        for item in wanted:
            if until():
                break
            pending.append(pool.submit(function, item))
            if len(pending) >= workers * _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    with Workers(workers, "lcstore-read") as pool:
        try:
            for done, result in enumerate(results(), 1):
                yield result
                if on_progress is not None:
                    on_progress(phase, done, len(wanted))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
