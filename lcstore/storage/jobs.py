"""Running jobs side by side, such that when one fails none is still at work."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import chain, count
from typing import Any, Final, ParamSpec, TypeVar

from lcstore.errors import ClosedError
from lcstore.warned import asked_by, caller

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

#: Jobs that many small items are put together to, at most.
_JOBS: Final = 256


#: How far threads that work behind a loop step back: one of 10 gets a tenth of what one of 0 gets beside it.
_NICE: Final = 10


class Workers(ThreadPoolExecutor):
    """The threads of one handle. Once they are told to stop, work is refused with `ClosedError`.

    Parameters
    ----------
    count
        How many threads.
    name
        What their names begin with.
    behind
        Have them take the processor's time that the rest of the process leaves (on Linux, where a thread may
        step back by itself). They never return to the front, so nobody should be waiting for them.
    """

    def __init__(self, count: int, name: str = "lcstore", *, behind: bool = False) -> None:
        self.count = count
        super().__init__(count, thread_name_prefix=name, initializer=_step_back if behind else None)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin a job, bound by the deadline of whoever begins it."""
        try:
            call = partial(asked_by, caller(), partial(fn, *args, **kwargs))
            return super().submit(copy_context().run, call)
        except RuntimeError as error:
            if "shutdown" not in str(error):
                raise
            raise ClosedError("the handle was closed meanwhile: open the store again") from error


def _step_back() -> None:
    if sys.platform == "linux":  # elsewhere such a number is that of a process
        with suppress(OSError):  # a sandbox may refuse
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


#: Threads that code behind a loop, at most. More would wait for Python's lock, and have the loop wait for it.
_BEHIND: Final = 4


def threads_behind(threads: int | None) -> int:
    """Return how many threads code behind a loop: as many as a caller says, or some of the cores."""
    return threads or min(_BEHIND, default_threads())


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
    return _shared.get(which) or _shared.setdefault(which, Workers(which[1], "lcstore-shared"))


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


#: The threads that do the jobs of a save in the background; None for those of whoever has jobs done.
_behind: Final[ContextVar[Workers | None]] = ContextVar("lcstore-behind", default=None)


@contextmanager
def done_by(workers: Workers | None) -> Iterator[None]:
    """Have jobs that this thread runs in a ``with`` block (`run_all`) done by threads of their own.

    Each of those takes one job after another: to be given the next it would wait for Python's lock, which a
    loop may hold, and have the loop wait for it.
    """
    token = _behind.set(workers)
    try:
        yield
    finally:
        _behind.reset(token)


def run_all(executor: Executor, jobs: Iterable[Callable[[], object]]) -> None:
    """Run jobs, and return when all are done.

    If one fails (or this thread is interrupted), those that have not begun are dropped, those at work are
    waited for, and then the first failure is raised: whoever handles it finds nothing moving any more.
    """
    told, behind, todo = _told.get(), _behind.get(), deque(jobs)
    total, passed = len(todo), count(1)

    def tell() -> None:
        if told is not None:
            told(next(passed), total)

    futures: list[Future[Any]] = []
    try:
        if behind is None:
            futures += (executor.submit(_one, todo) for _ in range(total))
        else:
            with done_by(None):  # what a job runs is not to wait for the threads that it holds
                futures += (behind.submit(_row, todo, tell) for _ in range(min(behind.count, total)))
        for future in as_completed(futures):
            if future.exception() is not None:
                break
            if behind is None:
                tell()
    finally:
        todo.clear()
        settle(futures)
    for future in futures:
        if not future.cancelled():
            future.result()


def map_all(executor: Executor, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order: in few jobs, as one takes longer than many items."""
    share = max(1, -(-len(items) // _JOBS))
    shares = (items[at : at + share] for at in range(0, len(items), share))
    return chain.from_iterable(executor.map(lambda some: [function(one) for one in some], shares))


def _one(todo: deque[Callable[[], object]]) -> bool:
    """Run the next job; return whether there was one."""
    try:
        job = todo.popleft()
    except IndexError:  # all are done, or dropped
        return False
    job()
    return True


def _row(todo: deque[Callable[[], object]], tell: Callable[[], None]) -> None:
    """Run one job after another; where one fails, the rest is dropped."""
    try:
        while _one(todo):
            tell()
    except BaseException:
        todo.clear()
        raise


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
