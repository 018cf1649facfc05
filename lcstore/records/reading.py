"""Reading records: one at a time and kept, or all of a listing, with what could not be read told of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import Any, Final, Generic, TypeVar

from lcstore.errors import CorruptionError, LcstoreError, NotFoundError, StorageError
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.jobs.survey import OnProgress, spread
from lcstore.records.kinds import Kind
from lcstore.records.stored import is_stored, tell
from lcstore.storage.backend import Backend, read_capped

R = TypeVar("R")

#: Bytes of records, as they are stored, that are kept. In memory they are a few times as many.
KEPT_BYTES: Final = 64 << 20


class Records:
    """Records that were read. They never change, so those used last are kept, up to a number of bytes.

    Thread-safe.

    Parameters
    ----------
    backend
        Where the records are.
    limit
        Stored bytes of what is kept. The record that was used last is kept whatever its size.
    """

    def __init__(self, backend: Backend, limit: int = KEPT_BYTES) -> None:
        self.backend = backend
        self.limit = limit
        self.nbytes = 0
        self._kept: dict[str, tuple[Any, int]] = {}
        self._lock = Lock()

    def get(self, kind: Kind[Any, R], key: str, missing: str = "a record that was listed is missing") -> R:
        """Return a record, read and checked.

        Raises
        ------
        CorruptionError
            It is not there (the error says `missing`), or is not what its name promises.
        """
        return self.made(key, partial(read_listed, self.backend, kind, key, missing))

    def made(self, key: str, make: Callable[[], tuple[R, int]]) -> R:
        """Return what is kept under a key; else what `make` returns, with as many bytes as it counts for."""
        with self._lock:
            if key in self._kept:
                self._kept[key] = self._kept.pop(key)  # the last to go
                known: R = self._kept[key][0]
                return known
        return self.keep(key, *make())

    def peek(self, key: str) -> tuple[Any, int] | None:
        """Return what is kept under a key, and as how many bytes it counts; None where nothing is."""
        with self._lock:
            return self._kept.get(key)

    def offer(self, key: str, record: object, nbytes: int) -> None:
        """Keep one of many records while a quarter of the room is enough: no other goes for it."""
        with self._lock:
            if key not in self._kept and self.nbytes + nbytes <= self.limit // 4:
                self._kept[key] = record, nbytes
                self.nbytes += nbytes

    def keep(self, key: str, record: R, nbytes: int) -> R:
        """Keep a record of some stored bytes, and return it, or the same one that is kept already."""
        with self._lock:
            if key in self._kept:
                known: R = self._kept[key][0]
                return known
            self._kept[key] = record, nbytes
            self.nbytes += nbytes
            while self.nbytes > self.limit and len(self._kept) > 1:
                _, gone = self._kept.pop(next(iter(self._kept)))
                self.nbytes -= gone
        return record


def read_listed(backend: Backend, kind: Kind[Any, R], key: str, missing: str) -> tuple[R, int]:
    """Return a record and how many bytes it has; errors as for `Records.get`."""
    try:
        try:
            return _read_at(backend, kind, kind.reader(backend), key, key)
        except NotFoundError as error:
            raise CorruptionError(missing, key=key) from error
    except CorruptionError as damage:
        found = read_copy(backend, kind, key, damage, gone=isinstance(damage.__cause__, NotFoundError))
        tell(backend, damage, "its second copy was read")
        return found


def _read_at(
    backend: Backend, kind: Kind[Any, R], parse: Callable[[str, bytes], R], key: str, at: str
) -> tuple[R, int]:
    """Return what the record of a key is, by what is stored there or at another key, and how long that is.

    What is damaged is read once more, as a bit may have flipped on the way. Where the same bytes come again
    they are not parsed again: that would take twice as long, and whoever wrote them may have meant it to.
    """
    data = None
    try:
        data = read_capped(backend, at, kind.limit)
        return parse(key, data), len(data)
    except CorruptionError:
        again = read_capped(backend, at, kind.limit)
        if again == data:
            raise
    return parse(key, again), len(again)


def read_copy(
    backend: Backend, kind: Kind[Any, R], key: str, damage: LcstoreError, *, gone: bool
) -> tuple[R, int]:
    """Return a record by its second copy, and how many bytes that has.

    A copy is deleted before what it is a copy of: where this one is found after the record was not (`gone`),
    nobody has let go of that; or it was stored after a collector took the edge, of which nothing is left.

    Raises
    ------
    LcstoreError
        The damage, where there is no copy of what the key promises.
    StorageError
        The target did not give the copy, which may well be whole.
    """
    copy = kind.copy_key(key)
    if copy is None:
        raise damage
    try:
        record, nbytes = _read_at(backend, kind, kind.reader(backend), key, copy)
        is_left = gone and isinstance(record, NodeRecord | EdgeRecord) and not is_stored(backend, record.edge)
    except StorageError:
        raise
    except LcstoreError as error:
        raise damage from error
    if is_left:
        raise damage
    return record, nbytes


@dataclass(frozen=True, slots=True)
class ReadRecord(Generic[R]):
    """A record that was read, or why it could not be.

    Attributes
    ----------
    key, nbytes, record
        Its key and length; None where neither it nor a second copy could be read.
    error
        Why it could not be read. Where there is a record nonetheless, that is from the second copy.
    """

    key: str
    nbytes: int
    record: R | None
    error: LcstoreError | None


def read_each(
    backend: Backend,
    kind: Kind[Any, R],
    found: Iterable[str],
    on_progress: OnProgress | None = None,
    known: Records | None = None,
) -> Iterator[ReadRecord[R]]:
    """Yield the records under some keys, in order. Nothing is raised for one of them: its error is kept.

    One that is damaged is read once more: a bit may have flipped on the way. None is read that `known` has,
    and those that are read are offered to them.
    """

    parse = kind.reader(backend)

    def read(key: str) -> ReadRecord[R]:
        if known is None:
            return read_anew(key)
        if (held := known.peek(key)) is not None:
            return ReadRecord(key, held[1], held[0], None)
        found = read_anew(key)
        if found.error is None:
            known.offer(key, found.record, found.nbytes)
        return found

    def read_anew(key: str) -> ReadRecord[R]:
        found = read_itself(key)
        if isinstance(found.error, CorruptionError | NotFoundError):
            try:
                gone = isinstance(found.error, NotFoundError)
                record, nbytes = read_copy(backend, kind, key, found.error, gone=gone)
            except StorageError as error:
                return replace(found, error=error)
            except LcstoreError:
                return found
            return ReadRecord(key, nbytes, record, found.error)
        return found

    def read_itself(key: str) -> ReadRecord[R]:
        nbytes = 0

        def counted(key: str, data: bytes) -> R:
            nonlocal nbytes
            nbytes = len(data)
            return parse(key, data)

        try:
            record, _ = _read_at(backend, kind, counted, key, key)
            return ReadRecord(key, nbytes, record, None)
        except LcstoreError as error:
            error.key = error.key or key
            return ReadRecord(key, nbytes, None, error)

    return spread(read, found, phase=kind.folder, on_progress=on_progress)


def read_all(
    backend: Backend,
    kind: Kind[Any, R],
    found: Iterable[str],
    take: Callable[[str, R], None],
    problem: Callable[[str, LcstoreError], None],
    on_progress: OnProgress | None = None,
    mended: Callable[[str, LcstoreError], None] | None = None,
    lengths: dict[str, int] | None = None,
    known: Records | None = None,
) -> set[str]:
    """Read all records of one kind that were listed.

    Parameters
    ----------
    backend, kind, found
        Where they are, of which kind, and their keys.
    take
        Given each record that can be read.
    problem
        Given each that cannot, with the error. It may raise.
    on_progress
        Told how many have been read.
    mended
        Given each that could be read by its second copy alone, with what is wrong with it; it was taken.
        Without it, that is warned of (`FallbackWarning`).
    lengths
        Filled with the bytes of each record that was read, by key.
    known
        Those that were read before, as for `read_each`.

    Returns
    -------
    set
        The keys of those that are there. The others were deleted since they were listed, as collecting does.
    """
    there = set()
    missing: list[tuple[str, LcstoreError]] = []
    for read in read_each(backend, kind, found, on_progress, known):
        if read.record is None and isinstance(read.error, NotFoundError):
            missing.append((read.key, read.error))
            continue
        there.add(read.key)
        if read.record is not None:
            take(read.key, read.record)
            if lengths is not None:
                lengths[read.key] = read.nbytes
            if read.error is not None and mended is not None:
                mended(read.key, read.error)
            elif read.error is not None:
                tell(backend, read.error, "its second copy was read")
        elif read.error is not None:
            problem(read.key, read.error)
    listed = set(backend.list(kind.folder)) if missing else set()
    for key, error in missing:
        if key in listed:
            there.add(key)
            problem(key, error)
    return there
