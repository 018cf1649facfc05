"""Objects that go into a store side by side, and a moment from which all of them are there."""

from __future__ import annotations

from concurrent.futures import Executor, Future
from functools import partial
from typing import Final

from lcstore.arrays import Buffer
from lcstore.futures import Condition
from lcstore.jobs.jobs import drop_all
from lcstore.storage.backend import Backend, mapped
from lcstore.storage.latesync import LateSync, putting_off
from lcstore.storage.put import put_object

#: Bytes that may be on their way: enough to keep 32 requests of 8 MiB busy.
ROOM: Final = 256 << 20


class Wave:
    """Objects on their way. `put` begins, `end` waits: from then on all of them are there, and durable.

    Thread-safe. What is put is no record: a lost reply is a `StorageError`.

    Parameters
    ----------
    backend
        Where to.
    executor
        Threads that wait for the target, side by side.
    room
        Bytes that may be on their way; `put` waits for room. A single object may be larger.
    """

    def __init__(self, backend: Backend, executor: Executor, room: int = ROOM) -> None:
        self._backend = backend
        self._executor = executor
        self._room = room
        self._late_sync = LateSync()
        self._change = Condition()
        self._nbytes = 0
        self._futures: list[Future[None]] = []
        self._failure: BaseException | None = None

    def put(self, key: str, data: Buffer) -> None:
        """Begin to store an object.

        Raises
        ------
        StorageError
            One that was begun earlier could not be stored.
        """
        with self._change:
            while self._nbytes and self._nbytes + len(data) > self._room and self._failure is None:
                self._change.wait()
            if self._failure is not None:
                raise self._failure
            self._nbytes += len(data)
        with putting_off(self._late_sync):
            future = self._executor.submit(self._send, key, data)
        with self._change:
            self._futures.append(future)
        future.add_done_callback(partial(self._done, len(data)))

    def _send(self, key: str, data: Buffer) -> None:
        # What waits for a thread is not begun after a failure: each would be waited for as long as that was.
        if self._failure is None:
            put_object(self._backend, key, data)

    def _done(self, nbytes: int, future: Future[None]) -> None:
        with self._change:
            self._nbytes -= nbytes
            if not future.cancelled() and self._failure is None:
                self._failure = future.exception()
            self._change.notify_all()

    def end(self) -> None:
        """Return when everything that was put is there, and durable where the target can be.

        Raises
        ------
        StorageError
            Something could not be stored. Nothing is on its way any more.
        """
        try:
            for future in self._futures:
                future.result()
            if self._failure is not None:
                raise self._failure
        except BaseException:
            self.stop()
            raise
        self._futures.clear()
        with mapped("make durable", ""):
            self._late_sync.run()

    def stop(self) -> None:
        """Drop what has not begun, and return when nothing is on its way any more."""
        drop_all(self._futures)
        self._futures.clear()
