"""Saving in the background: a thread for each handle, one save at a time, no failure that nobody hears."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from lcstore.errors import StorageError
from lcstore.futures import SafeFuture
from lcstore.jobs.awaited import Awaited
from lcstore.jobs.jobs import Workers, done_by, wait_for
from lcstore.staging.stage import Buffers
from lcstore.write.saveinfo import SaveInfo


class SaveFuture(SafeFuture[SaveInfo]):
    """A save on its way; `result` waits for it, and raises what it failed with.

    Whoever asks has heard of a failure. What nobody heard of is raised by the handle: at its next save or
    resume, by `Store.wait`, or when it is closed.
    """

    heard = False

    def result(self, timeout: float | None = None) -> SaveInfo:
        """Return what was saved, once it is there."""
        self.exception(timeout)
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the save failed with, once it ended; None where it went well."""
        failure = super().exception(timeout)
        self.heard = True  # not where the time ran out: it may have failed since
        return failure


class Saver(Awaited):
    """Runs the saves of one handle in a thread, one after another.

    Parameters
    ----------
    executor
        Threads that copy states.
    threads
        How many threads code, behind the loop.
    gpu_memory
        As `Buffers` has it.

    Attributes
    ----------
    buffers
        What the save under way reads. Nobody copies to it before that save ended.
    """

    def __init__(self, executor: Executor | None = None, threads: int = 1, gpu_memory: int = 0) -> None:
        self.buffers = Buffers(executor, gpu_memory)
        self._thread = Workers(1, "lcstore-save", behind=True)
        self._coding = Workers(threads, "lcstore-code", behind=True)
        self._turn = threading.RLock()
        self._last: SaveFuture | None = None
        super().__init__()

    @property
    def is_busy(self) -> bool:
        """Whether a save is under way."""
        return self._last is not None and not self._last.done()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the save under way; nobody else begins one in the ``with`` block. Raises as `wait`."""
        with self._turn:
            self.wait()
            yield

    def begin(self, save: Callable[[], SaveInfo]) -> SaveFuture:
        """Begin a save, in the turn of whoever calls."""
        future = SaveFuture()
        future.set_running_or_notify_cancel()
        claim = threading.Lock()

        def run() -> None:
            if not claim.acquire(blocking=False):
                return
            try:
                with done_by(self._coding):
                    info = save()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(info)

        try:
            self._last = future
            self._thread.submit(run)
        except BaseException as error:
            # An interrupt may come when the thread has the save: then it is under way, and is waited for.
            if claim.acquire(blocking=False):
                future.heard = True
                future.set_exception(error)
            raise
        return future

    def wait(self) -> SaveInfo | None:
        """Wait for the save under way; return what was saved last, or raise its failure if nobody heard."""
        last = self._last
        if last is None:
            return None
        wait_for([last])
        if last.heard and last.exception() is not None:
            return None
        try:
            return last.result()
        except StorageError as error:  # where in the thread it was says nothing
            raise error.with_traceback(None) from error.__cause__

    def stop(self) -> None:
        """End the threads, and give the memory back."""
        self._thread.shutdown(wait=True)
        self._coding.shutdown(wait=True)
        self.buffers = Buffers()
