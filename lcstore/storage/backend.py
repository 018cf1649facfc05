"""The narrow contract between a store and whatever keeps its bytes.

A backend keeps whole, immutable objects under validated names. Everything else (commits, retries,
integrity) is built above it, on these promises alone; :mod:`lcstore.testing.conformance` checks them.
"""

from __future__ import annotations

import errno
import secrets
import shlex
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from lcstore.arrays import Buffer
from lcstore.errors import (
    FULL,
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    NotFoundError,
    StorageError,
    reason_of,
)
from lcstore.jobs.deadline import setting, unsized
from lcstore.limits import MAX_LISTING
from lcstore.storage.masking import harmless, said_by
from lcstore.storage.safekeys import is_key, validate_key, validate_prefix

Names: TypeAlias = list[str]
T = TypeVar("T")
#: The target said no before anything was stored; after any other error a write may have landed.
REFUSALS: Final = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    NotImplementedError,
)
#: Where objects lie for a moment, to tell the time by or to keep room.
CLOCK: Final = "clock"


@dataclass(frozen=True)
class Leftover:
    """A file of a write that has not ended, and may never: its bytes, and when it was last written to."""

    nbytes: int
    stored: float


Leftovers: TypeAlias = list[Leftover]


@runtime_checkable
class Backend(Protocol):
    """Whole immutable objects under names. Every method may be called from any thread at any time.

    Only `LcstoreError` leaves a backend. `NotFoundError` means that the object does not exist, and comes
    from `get`, `size` and `created` alone; any other failure is a `StorageError` that names the key.
    """

    @property
    def url(self) -> str:
        """Where this is, without secrets; `open_backend(url)` opens it again where no options are needed."""

    @property
    def durable(self) -> bool:
        """Whether an object that `put` returned for outlives a power cut."""

    @property
    def writable(self) -> bool:
        """Whether `put` and `delete` can work at all."""

    def put(self, key: str, data: Buffer) -> None:
        """Store a whole object. It is seen by every reader at once and whole, or not at all.

        An object is put again only with the same bytes, by a retry. If this raises `StorageError`, the
        object is not there unless `outcome_unknown` is true on the error.
        """

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes of an object, or those of ``[start, end)`` that exist."""

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        """Return every key below ``prefix/`` at any depth ("" is the whole store), in no particular order.

        The answer is fresh: it holds each object whose `put` returned before this call. Names that no
        lcstore wrote (they are not keys) are left out, and appended to `foreign` where given.
        """

    def delete(self, key: str) -> None:
        """Delete an object; one that is absent is fine."""

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects. All are gone for good when this returns; after an error, any part of them."""

    def size(self, key: str) -> int:
        """Return the length of an object in bytes."""

    def created(self, key: str) -> float | None:
        """Return when an object was stored, in seconds by the storage's own clock, or None."""

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return what writes that have not ended left below some folders, and beside those.

        What was last written to before a moment, by the storage's own clock, is taken away. None of it is an
        object. Most targets have nothing like it.
        """


class BaseBackend(ABC):
    """What all backends share: here alone keys are checked, both ways, and foreign errors mapped.

    A subclass fills in the underscored methods, which may raise anything.
    """

    def __init__(self, url: str, *, durable: bool, writable: bool = True) -> None:
        self._url = url
        self._durable = durable
        self._writable = writable

    @property
    def url(self) -> str:
        """Where this is, without secrets."""
        return self._url

    @property
    def durable(self) -> bool:
        """Whether an object that `put` returned for outlives a power cut."""
        return self._durable

    @property
    def writable(self) -> bool:
        """Whether `put` and `delete` can work at all."""
        return self._writable

    @property
    def refusal(self) -> str:
        """Why nothing can be written here, and what to do instead."""
        return f"{self._url} can only be read: open the store with mode='r'"

    def put(self, key: str, data: Buffer) -> None:
        """Store a whole object."""
        validate_key(key)
        self._check_writable(key)
        view = as_view(data)
        with mapped("write", key):
            try:
                self._put(key, view)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                # Where in lcstore it was is of no use to whoever reads it.
                raise StorageError(self._no_room(error), key=key) from error.with_traceback(None)

    def _no_room(self, error: OSError) -> str:
        url = shlex.quote(self._url)
        return (
            f"there is no room left on {self._url} ({error.strerror}). Delete other files there, or, which "
            f"always helps, copy the store to another disk: `lcstore cp {url} TO`. Where its run has ended, "
            "states can go, unless kept ones are deltas to them: "
            f"`lcstore retain {url} --keep latest:3 --apply`, and then, once it was silent for twice as "
            "long as its saves were apart (a minute at least), "
            f"`lcstore collect {url} --grace 0 --run-is-dead --apply`"
        )

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes of an object, or those of ``[start, end)`` that exist."""
        validate_key(key)
        first = 0 if start is None else start
        if first < 0 or (end is not None and end < first):
            raise InvalidInputError(f"not a range of bytes: {start}:{end}", key=key)
        if end == first:
            # HTTP cannot ask for nothing: a server then answers with everything.
            self.size(key)
            return b""
        with mapped("read", key, absent=True):
            data = self._get(key, first, end)
        if end is not None and len(data) > end - first:
            # A server that ignores ranges answers with the whole object: only its beginning can be trusted.
            if first != 0:
                raise StorageError(f"asked for bytes {first}:{end}, got {len(data)}", key=key)
            return data[:end]
        return data

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        """Return every key below ``prefix/`` at any depth."""
        validate_prefix(prefix)
        with mapped("list", prefix):
            found = self._list(prefix)
        if len(found) > MAX_LISTING:
            raise LimitError(
                f"{len(found)} names in one listing, past the limit of {MAX_LISTING}", key=prefix
            )
        # Some servers (rclone) tell a name twice while others write.
        keys = [name for name in dict.fromkeys(found) if is_key(name)]
        if foreign is not None and len(keys) != len(found):
            foreign.extend(name for name in dict.fromkeys(found) if not is_key(name))
        return keys

    def lengths(self, prefix: str) -> dict[str, int]:
        """Return how long objects below ``prefix/`` are, as far as a listing tells: see `told_lengths`."""
        validate_prefix(prefix)
        with mapped("list", prefix):
            return {name: length for name, length in self._lengths(prefix).items() if is_key(name)}

    def delete(self, key: str) -> None:
        """Delete an object; one that is absent is fine."""
        validate_key(key)
        self._check_writable(key)
        with mapped("delete", key):
            try:
                self._delete(key)
            except (FileNotFoundError, NotADirectoryError):
                return

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, one after another."""
        for key in keys:
            self.delete(key)

    def size(self, key: str) -> int:
        """Return the length of an object in bytes."""
        validate_key(key)
        with mapped("look at", key, absent=True):
            return self._size(key)

    def created(self, key: str) -> float | None:
        """Return when an object was stored, in seconds by the storage's own clock."""
        validate_key(key)
        with mapped("look at", key, absent=True):
            return self._created(key)

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return what writes that have not ended left: nothing, where there is nothing like it."""
        return []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    @abstractmethod
    def _put(self, key: str, data: memoryview) -> None: ...

    @abstractmethod
    def _get(self, key: str, start: int, end: int | None) -> bytes: ...

    @abstractmethod
    def _list(self, prefix: str) -> Names: ...

    def _lengths(self, prefix: str) -> dict[str, int]:
        return {}

    @abstractmethod
    def _delete(self, key: str) -> None: ...

    @abstractmethod
    def _size(self, key: str) -> int: ...

    @abstractmethod
    def _created(self, key: str) -> float | None: ...

    def _check_writable(self, key: str) -> None:
        if not self._writable:
            raise InvalidInputError(self.refusal, key=key)


class mapped:  # noqa: N801
    """Turns what a storage library raises in a ``with`` block into errors of lcstore.

    No generator does it: in Python 3.13 each error that one turns into another stays, with all that the
    functions that called it held, until the collector comes.

    Parameters
    ----------
    verb
        What was being done, for the message.
    key
        The object concerned.
    absent
        Whether "no such file" is an answer (`NotFoundError`) and not a failure.
    """

    def __init__(self, verb: str, key: str, *, absent: bool = False) -> None:
        self._verb, self._key, self._absent = verb, key, absent

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, LcstoreError):
            return
        if self._absent and isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            raise NotFoundError("no such object", key=self._key) from harmless(error)
        raise storage_error(self._verb, self._key, error) from harmless(error)


def storage_error(verb: str, key: str, error: Exception) -> StorageError:
    """Return the `StorageError` for a foreign error."""
    said = said_by(error)
    if isinstance(error, OSError) and error.errno == errno.EROFS:
        said = "the file system is read-only: what only reads goes on working, all else once that is mended"
    return StorageError(f"could not {verb}: {said}", key=key, reason=reason_of(error))


def as_view(data: Buffer) -> memoryview:
    """Return `data` as a flat view of its bytes, without a copy."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInputError(f"an object is made of bytes, not {type(data).__name__}")
    view = memoryview(data)
    if not view.c_contiguous:
        raise InvalidInputError("the bytes of an object must lie together in memory")
    return view.cast("B") if view.nbytes else memoryview(b"")


def read_capped(backend: Backend, key: str, limit: int) -> bytes:
    """Return a whole object of at most `limit` bytes, never reading (or allocating) more than that."""
    with setting(unsized, True):
        data = backend.get(key, 0, limit + 1)
    if len(data) > limit:
        raise LimitError(f"object longer than the limit of {limit} bytes", key=key)
    return data


def told_lengths(backend: Backend, prefix: str) -> dict[str, int]:
    """Return how long objects below ``prefix/`` are, as far as a listing tells: a request for each thousand.

    Of the others, which on many targets are all, `Backend.size` tells it. That is what decides wherever an
    object seems to be missing, or of another length than it should have.
    """
    ask: Callable[[str], dict[str, int]] | None = getattr(backend, "lengths", None)
    return {} if ask is None else ask(prefix)


def exists(backend: Backend, key: str) -> bool:
    """Return whether an object is there."""
    try:
        backend.size(key)
    except NotFoundError:
        return False
    return True


def check_writable(backend: Backend) -> None:
    """Raise `InvalidInputError`, with what to do instead, if a target can only be read."""
    if not backend.writable:
        raise InvalidInputError(refusal_of(backend))


def refusal_of(backend: Backend) -> str:
    """Return why nothing can be written to a target that can only be read, and what to do instead."""
    usual = f"{backend.url} can only be read: open the store with mode='r'"
    return str(getattr(backend, "refusal", usual))


def read_twice(read: Callable[[], T]) -> T:
    """Return what `read` returns; once more where that is damaged: a bit may have flipped on the way."""
    try:
        return read()
    except CorruptionError:
        return read()


@contextmanager
def room_left(backend: Backend, nbytes: int) -> Iterator[None]:
    """Have that much room on a target when the ``with`` block ends, whatever it filled."""
    key = f"{CLOCK}/{secrets.token_hex(16)}"
    if nbytes:
        backend.put(key, bytes(nbytes))
    try:
        yield
    finally:
        if nbytes:
            backend.delete(key)


def storage_clock(backend: Backend) -> float | None:
    """Return the time by the storage's own clock, or None. Stores and deletes a tiny object."""
    key = f"{CLOCK}/{secrets.token_hex(16)}"
    backend.put(key, b"")
    try:
        return backend.created(key)
    finally:
        backend.delete(key)
