"""Running jobs side by side, such that when one fails none is still at work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from lcstore.errors import ClosedError
from lcstore.warned import asked_by, caller

P = ParamSpec("P")
T = TypeVar("T")


class Workers(ThreadPoolExecutor):
    """The threads of one handle. Once they are told to stop, work is refused with `ClosedError`."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin a job, bound by the deadline of whoever begins it."""
        try:
            call = partial(asked_by, caller(), partial(fn, *args, **kwargs))
            return super().submit(copy_context().run, call)
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise ClosedError("the handle was closed meanwhile: open the store again") from error


def default_threads() -> int:
    """Return how many threads a handle codes with: one per core that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


#: Threads of a handle that wait for its target: they take no processor.
REQUESTS: Final = 32

#: The threads of each process for what belongs to no handle. A fork has none of those of its parent.
_shared: dict[tuple[int, int], Workers] = {}


def shared_workers(count: int | None = None) -> Workers:
    """Return threads of this process for whatever belongs to no handle. They are never told to stop."""
    which = os.getpid(), count or default_threads()
    return _shared.get(which) or _shared.setdefault(
        which, Workers(which[1], thread_name_prefix="lcstore-shared")
    )


#: Who is told of jobs that are done: how many, and of how many.
_told: Final[ContextVar[Callable[[int, int], object] | None]] = ContextVar("lcstore-told", default=None)


@contextmanager
def telling(on_progress: Callable[[str, int, int], object] | None, phase: str) -> Iterator[None]:
    """Have jobs that this thread runs in a ``with`` block (`run_all`) told of, under one phase."""
    token = _told.set(None if on_progress is None else partial(on_progress, phase))
    try:
        yield
    finally:
        _told.reset(token)


def run_all(executor: Executor, jobs: Iterable[Callable[[], object]]) -> None:
    """Run jobs, and return when all are done.

    If one fails (or this thread is interrupted), those that have not begun are dropped, those at work are
    waited for, and then the first failure is raised: whoever handles it finds nothing moving any more.
    """
    told = _told.get()
    futures: list[Future[object]] = []
    try:
        for job in jobs:
            futures.append(executor.submit(job))
        for done, future in enumerate(as_completed(futures), 1):
            if future.exception() is not None:
                break
            if told is not None:
                told(done, len(futures))
    finally:
        settle(futures)
    for future in futures:
        if not future.cancelled():
            future.result()


def settle(futures: Sequence[Future[Any]]) -> None:
    """Drop what has not begun, and wait for what is at work, however often this thread is interrupted."""
    interrupted: KeyboardInterrupt | None = None
    while True:
        try:
            for future in futures:
                future.cancel()
            wait(futures)
            break
        except KeyboardInterrupt as again:
            interrupted = again
    if interrupted is not None:
        raise interrupted
