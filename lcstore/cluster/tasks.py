"""What is to be done, in pieces that may wait for each other, and who does it: this process, or a cluster.

A cluster is one of Dask. Where a worker is lost, another does its task again, so tasks are such that doing
one twice does no harm. What a task gives is held here: a worker that is lost later takes nothing along that
others wait for.
"""

from __future__ import annotations

import math
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import uuid4

from lcstore.errors import FallbackWarning, InvalidInputError, LcstoreError, StorageError
from lcstore.version import __version__
from lcstore.warned import noted, warn

R = TypeVar("R")

#: A `distributed.Client`: the library is there only where someone uses it.
Client: TypeAlias = Any

#: Tasks that the scheduler knows of at a time, besides one for each thread: it hands out at once whatever it
#: knows of, and a longer row that is ready a moment later would wait behind that.
_AHEAD: Final = 1
#: How often a task is tried again after an error: one worker may see less than the others.
_RETRIES: Final = 2
_FILE: Final = "file://"
#: Seconds to the first look whether a task is done, where there is not all the time in the world.
_POLL: Final = 0.001


@dataclass(frozen=True)
class Task(Generic[R]):
    """Something to do.

    Attributes
    ----------
    what
        Its name on the dashboard of a cluster.
    url
        The store that it is about.
    run
        Does it. It takes what the tasks gave that it waits for, in their order. On a cluster it is sent to a
        worker, and may run twice.
    after
        The tasks that it waits for: places in the list of all, before its own.
    otherwise
        Returns what it gives where it failed; None: the others are not begun then, and the error is raised.
    """

    what: str
    url: str
    run: Callable[[Sequence[R]], R]
    after: tuple[int, ...] = ()
    otherwise: Callable[[LcstoreError], R] | None = None


def carried_out(
    tasks: Sequence[Task[R]], client: Client | None = None, *, seconds: float = math.inf
) -> Iterator[tuple[int, R]]:
    """Do tasks; yield the place of each that is done, and what it gave.

    Parameters
    ----------
    tasks
        The tasks. Here they are done in order, each once its caller has taken what the one before gave.
    client
        Of the cluster that is to do them; None: they are done here.
    seconds
        Begin nothing after this time (on a cluster by the clocks of its workers). What is not begun, and what
        waits for that, is not yielded.

    Raises
    ------
    InvalidInputError
        The workers do not see the store, or have another lcstore, or none.
    StorageError
        The cluster was lost, or a task took several workers with it.
    LcstoreError
        A task failed. Those under way on a cluster end by themselves; no other is begun.
    """
    return _here(tasks, seconds) if client is None else _on(client, tasks, seconds)


def _here(tasks: Sequence[Task[R]], seconds: float) -> Iterator[tuple[int, R]]:
    until, given = time.monotonic() + seconds, dict[int, R]()
    for place, task in enumerate(tasks):
        if time.monotonic() >= until:
            return
        try:
            given[place] = task.run([given[one] for one in task.after])
        except LcstoreError as error:
            given[place] = _failed(task, error)
        yield place, given[place]


def _on(client: Client, tasks: Sequence[Task[R]], seconds: float) -> Iterator[tuple[int, R]]:
    from distributed import CancelledError
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError

    lost = CancelledError, ClosedClientError, CommClosedError
    check_seen_by_others([task.url for task in tasks])
    run = _Run(client, tasks, time.time() + seconds)
    try:
        yield from run.results()
    except lost as error:
        message = f"the cluster was lost ({error}): what is done stays of use; run it again"
        raise StorageError(message) from error
    finally:
        with suppress(*lost):
            run.stop()


class _Run(Generic[R]):
    """Tasks on their way through a cluster."""

    def __init__(self, client: Client, tasks: Sequence[Task[R]], until: float) -> None:
        self.client = client
        self.tasks = tasks
        self.until = until
        self.mark = uuid4().hex
        self.waits = {place: set(task.after) for place, task in enumerate(tasks)}
        self.behind = defaultdict[int, list[int]](list)
        for place, task in enumerate(tasks):
            for one in task.after:
                self.behind[one].append(place)
        #: The most tasks, one behind the other, that each has to be done for: the longest row goes first.
        self.rows = dict.fromkeys(self.waits, 0)
        for place in reversed(self.rows):
            self.rows[place] = 1 + max((self.rows[one] for one in self.behind[place]), default=0)
        self.ready = deque(place for place, after in self.waits.items() if not after)
        self.under_way: dict[Any, int] = {}
        self.given: dict[int, R] = {}

    def results(self) -> Iterator[tuple[int, R]]:
        """Yield the place of each task, and what it gave."""
        from distributed import as_completed

        done = as_completed(loop=self.client.loop)
        while self.ready or self.under_way:
            threads = self._threads()
            while self.ready and len(self.under_way) < threads + _AHEAD:
                longest = max(self.ready, key=self.rows.__getitem__)
                if len(self.under_way) >= threads and self._is_preceded(longest):
                    break
                self.ready.remove(longest)
                done.add(self._begin(longest))
            future = self._next_of(done)
            if future is None:
                return
            place = self.under_way.pop(future)
            try:
                result = _result_of(future, self.tasks[place])
            except LcstoreError as error:
                result = _failed(self.tasks[place], error), []
            if result is None:  # it was too late to begin
                continue
            gave, met = result
            for said in met:  # what a worker warns of, it says to itself
                warn(said, FallbackWarning)
            if self.behind[place]:
                self.given[place] = gave
                self._let_go_on(place)
            yield place, gave

    def _next_of(self, done: Any) -> Any:
        """Return the next task that is done; None where the time is over, and no worker there to end one."""
        pause = _POLL
        while math.isfinite(self.until) and not done.has_ready():
            if time.time() >= self.until and not self._threads():
                return None
            time.sleep(pause)
            pause = min(2 * pause, 50 * _POLL)
        return next(done)

    def _threads(self) -> int:
        """Return how many threads the workers have now: they come and go."""
        return sum(self.client.nthreads().values()) if self.client.status == "running" else 0

    def _is_preceded(self, place: int) -> bool:
        """Return whether what is under way lets a longer row go on, which would wait behind this task."""
        coming = (one for done in self.under_way.values() for one in self.behind[done])
        return any(self.rows[one] > self.rows[place] for one in coming)

    def _begin(self, place: int) -> Any:
        task = self.tasks[place]
        inputs = [self.given[one] for one in task.after]
        future = self.client.submit(
            _do,
            __version__,
            task.url,
            task.run,
            inputs,
            self.until,
            key=f"lcstore {task.what}-{self.mark}-{place}",
            pure=False,
            retries=_RETRIES,
            priority=self.rows[place],
        )
        self.under_way[future] = place
        return future

    def _let_go_on(self, done: int) -> None:
        """Have the tasks begin that have waited for this one last."""
        for place in self.behind[done]:
            self.waits[place].discard(done)
            if not self.waits[place]:
                self.ready.append(place)

    def stop(self) -> None:
        """Have the cluster drop what it has not begun."""
        if self.under_way:
            self.client.cancel([*self.under_way])


def _failed(task: Task[R], error: LcstoreError) -> R:
    if task.otherwise is None:
        raise error
    return task.otherwise(error)


def _do(
    version: str, url: str, run: Callable[[Sequence[R]], R], inputs: Sequence[R], until: float
) -> tuple[R, list[str]] | LcstoreError | None:
    """Do a task on a worker; return what it gave and what it warned of, None where it is too late to begin.

    What is worth another try is raised, and any other error returned.
    """
    if version != __version__:
        message = f"a worker has lcstore {__version__}, and here is {version}: install one version on all"
        raise InvalidInputError(message)
    if time.time() >= until:
        return None
    if url.startswith(_FILE) and not os.path.isdir(url.removeprefix(_FILE)):
        raise InvalidInputError(f"a worker sees nothing at {url}: the folder has to be there for all of them")
    try:
        with noted(FallbackWarning) as met:
            return run(inputs), met
    except StorageError:
        raise
    except LcstoreError as error:
        return error


def check_seen_by_others(urls: Sequence[str]) -> None:
    """Refuse stores in the memory of this process: no worker sees them."""
    for url in urls:
        if url.startswith("memory:"):
            raise InvalidInputError(
                f"{url} is in the memory of this process, and no worker sees it: do it here, or use a store "
                "in a directory or a bucket"
            )


def _result_of(future: Any, task: Task[R]) -> tuple[R, list[str]] | None:
    """Return what a task gave and warned of; raise what it failed with, in words of lcstore if possible."""
    from distributed import KilledWorker

    try:
        result: tuple[R, list[str]] | LcstoreError | None = future.result()
    except KilledWorker as error:
        message = (
            f"several workers were lost during {task.what} in {task.url}, for want of memory as a rule: give "
            "each more of it, or fewer threads. What is done stays of use; run it again"
        )
        raise StorageError(message) from error
    except ModuleNotFoundError as error:
        message = f"a worker lacks a module ({error}): install on all what is installed here"
        raise InvalidInputError(message) from error
    if isinstance(result, LcstoreError):
        raise result
    return result
