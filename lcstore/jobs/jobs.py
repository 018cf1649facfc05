"""Running jobs side by side, such that when one fails none is still at work."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from itertools import chain, count
from queue import Empty, SimpleQueue
from typing import Any, Final, ParamSpec, TypeVar

from lcstore.errors import ClosedError
from lcstore.futures import Idle, SafeFuture, to_the_end, wait_while
from lcstore.jobs.deadline import setting
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
        self._idle_semaphore = Idle()  # type: ignore[assignment]
        self._todo: SimpleQueue[tuple[SafeFuture[Any], Callable[[], Any]]] = SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Begin a job, bound by the deadline of whoever begins it.

        The pool makes a future of its own, which nobody asks for anything.
        """
        future = SafeFuture[T]()
        call = partial(asked_by, caller(), partial(fn, *args, **kwargs))
        self._todo.put((future, partial(copy_context().run, call)))
        try:
            super().submit(self._work)
        except RuntimeError as error:
            if not future.cancel():  # a thread took it, or what shuts down has dropped it
                return future
            if "shutdown" not in str(error):
                raise
            if "interpreter shutdown" in str(error):
                raise ClosedError(
                    "Python is ending, and begins no work any more: save before that"
                ) from error
            raise ClosedError("the handle was closed meanwhile: open the store again") from error
        return future

    def _work(self) -> None:
        """Do all jobs that wait by now, those too whose `submit` was interrupted before it told a thread."""
        with suppress(Empty):
            while True:
                _do(*self._todo.get_nowait())

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Begin nothing any more; with `cancel_futures` not even what was asked for."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        with suppress(Empty):  # now that no more can come
            while cancel_futures:
                self._todo.get_nowait()[0].cancel()
        super().shutdown(wait)


def _do(future: SafeFuture[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        found = call()
    except BaseException as error:
        future.set_exception(error)
        del future, call  # or the failure would hold them, and the one the failure
    else:
        future.set_result(found)


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
_shared: dict[tuple[int, str], Workers] = {}


def shared_workers() -> Workers:
    """Return threads of this process for whatever belongs to no handle. They are never told to stop."""
    return _shared_as("lcstore-shared", default_threads())


def shared_requests() -> Workers:
    """Return threads that wait for targets, as `shared_workers`: whatever computes may wait for these."""
    return _shared_as("lcstore-requests", REQUESTS)


def _shared_as(name: str, count: int) -> Workers:
    which = os.getpid(), name
    return _shared.get(which) or _shared.setdefault(which, Workers(count, name))


#: Who is told of jobs that are done: how many, and of how many.
_told: Final[ContextVar[Callable[[int, int], object] | None]] = ContextVar("lcstore-told", default=None)


def telling(
    on_progress: Callable[[str, int, int], object] | None, phase: str
) -> AbstractContextManager[None]:
    """Have jobs that this thread runs in a ``with`` block (`run_all`) told of, under one phase."""
    return setting(_told, None if on_progress is None else partial(on_progress, phase))


#: The threads that do the jobs of a save in the background; None for those of whoever has jobs done.
_behind: Final[ContextVar[Workers | None]] = ContextVar("lcstore-behind", default=None)


def done_by(workers: Workers | None) -> AbstractContextManager[None]:
    """Have jobs that this thread runs in a ``with`` block (`run_all`) done by threads of their own.

    Each of those takes one job after another: to be given the next it would wait for Python's lock, which a
    loop may hold, and have the loop wait for it.
    """
    return setting(_behind, workers)


def run_all(executor: Executor, jobs: Iterable[Callable[[], object]]) -> None:
    """Run jobs, and return when all are done.

    If one fails (or this thread is interrupted), those that have not begun are dropped, those at work are
    waited for, and then the first failure is raised: whoever handles it finds nothing moving any more.
    """
    told, behind, batch = _told.get(), _behind.get(), _Batch(jobs)
    total, passed, failure = len(batch.todo), count(1), None

    def tell() -> None:
        if told is not None:
            told(next(passed), total)

    each = total if behind is None else min(behind.count, total)
    try:
        with done_by(None):  # what a job runs is not to wait for the threads that it holds
            for _ in range(each):
                if behind is None:
                    executor.submit(batch.do)
                else:
                    behind.submit(batch.do, tell)
        for _ in range(each):
            if (failure := batch.ended.get()) is not None:
                break
            if behind is None:
                tell()
    finally:
        batch.drop()
    if failure is not None:
        try:
            raise failure
        finally:
            failure = None  # or it would hold this frame, and this frame it


def map_all(executor: Executor, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order: in few jobs, as one takes longer than many items."""
    share = max(1, -(-len(items) // _JOBS))
    shares = (items[at : at + share] for at in range(0, len(items), share))
    return chain.from_iterable(executor.map(lambda some: [function(one) for one in some], shares))


class _Batch:
    """Jobs that several threads take, one after another.

    Whoever waits may be interrupted at any place. So what is at work is known by the threads that are: a
    future is lost where an interrupt comes between its job and its name, and where one comes within
    `concurrent.futures.wait`, whatever has not begun waits for ever.

    Attributes
    ----------
    todo
        The jobs that nobody has taken.
    ended
        Of each call of `do` that ended, why: None, or what a job failed with.
    """

    def __init__(self, jobs: Iterable[Callable[[], object]]) -> None:
        self.todo = deque(jobs)
        self.ended: SimpleQueue[BaseException | None] = SimpleQueue()
        self._at_work: deque[None] = deque()

    def do(self, tell: Callable[[], None] | None = None) -> None:
        """Do the next job; with `tell`, one after another, each told of, until one fails."""
        try:
            while self._one() and tell is not None:
                tell()
        except BaseException as error:
            self.todo.clear()
            self.ended.put(error)
        else:
            self.ended.put(None)

    def _one(self) -> bool:
        """Do the next job; return whether there was one."""
        self._at_work.append(None)  # before it is taken: whoever drops the rest sees all that may have one
        try:
            job = self.todo.popleft()
        except IndexError:  # all are done, or dropped
            return False
        else:
            job()
            return True
        finally:
            self._at_work.pop()

    def drop(self) -> None:
        """Drop what has not begun, and wait for what is at work, however often this thread is interrupted."""

        def drop() -> None:
            self.todo.clear()
            wait_while(self._at_work)

        to_the_end(drop)


def wait_for(futures: Iterable[Future[Any]]) -> None:
    """Wait until all are done, as `concurrent.futures.wait` does: that one, interrupted, has them hang."""
    for future in futures:
        with suppress(CancelledError):
            Future.exception(future)  # as the base class has it: nobody heard of a failure by this


def drop_all(futures: Sequence[Future[Any]]) -> None:
    """Drop what has not begun, and wait for what is at work, however often this thread is interrupted."""

    def drop() -> None:
        for future in futures:
            future.cancel()
        wait_for(futures)

    to_the_end(drop)
