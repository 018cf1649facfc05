"""Reading every record of a store, many at a time, with what could not be read kept beside what could."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Generic, TypeAlias, TypeVar

from lcstore.errors import CorruptionError, LcstoreError
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.storage.backend import Backend, read_capped

T = TypeVar("T")
R = TypeVar("R")

#: Called with what is being done, how much of it is done, and how much there is.
OnProgress: TypeAlias = Callable[[str, int, int], None]

#: Requests in flight: small objects cost latency, not bandwidth.
WORKERS: Final = 16
_AHEAD: Final = 8


@dataclass(frozen=True, slots=True)
class ReadRecord(Generic[T]):
    """A record that was read, or why it could not be."""

    key: str
    nbytes: int
    record: T | None
    error: LcstoreError | None


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
    done = 0
    with ThreadPoolExecutor(workers, thread_name_prefix="lcstore-read") as pool:
        try:
            for item in wanted:
                if until():
                    break
                pending.append(pool.submit(function, item))
                if len(pending) >= workers * _AHEAD:
                    yield pending.popleft().result()
                    done += 1
                    if on_progress is not None:
                        on_progress(phase, done, len(wanted))
            while pending:
                yield pending.popleft().result()
                done += 1
                if on_progress is not None:
                    on_progress(phase, done, len(wanted))
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def read_records(
    backend: Backend,
    found: Iterable[str],
    parse: Callable[[str, bytes], T],
    *,
    limit: int = MAX_RECORD_BYTES,
    phase: str = "records",
    on_progress: OnProgress | None = None,
) -> list[ReadRecord[T]]:
    """Read the records under these keys. Nothing is raised for one of them: its error is kept.

    One that is damaged is read once more: a bit may have flipped on the way.
    """

    def read(key: str) -> ReadRecord[T]:
        first = read_once(key)
        return read_once(key) if isinstance(first.error, CorruptionError) else first

    def read_once(key: str) -> ReadRecord[T]:
        nbytes = 0
        try:
            data = read_capped(backend, key, limit)
            nbytes = len(data)
            return ReadRecord(key, nbytes, parse(key, data), None)
        except LcstoreError as error:
            error.key = error.key or key
            return ReadRecord(key, nbytes, None, error)

    return list(spread(read, found, phase=phase, on_progress=on_progress))
