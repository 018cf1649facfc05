"""A backend that waits for its target for so long, tries again so often, and says in the log that it does."""

from __future__ import annotations

import contextvars
import errno
import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Final, TypeVar

from lcstore.arrays import Buffer
from lcstore.errors import FULL, InvalidInputError, StorageError, UnknownOutcomeError
from lcstore.futures import SafeFuture
from lcstore.jobs.deadline import deadline, remaining, unsized
from lcstore.jobs.jobs import REQUESTS
from lcstore.storage.backend import REFUSALS, Backend, Leftovers, Names, refusal_of, told_lengths
from lcstore.storage.wave import ROOM

R = TypeVar("R")

_log: Final = logging.getLogger("lcstore")

#: Trying again does not help against these.
_FINAL: Final = (*REFUSALS, TypeError, ValueError)
#: Seconds before the first retry; each further one waits twice as long, up to the second number.
_PAUSES: Final = (0.1, 5.0)
#: Seconds of silence that are worth a line in the log.
_SILENCE: Final = 5.0


@dataclass(frozen=True)
class Patience:
    """How long a target is waited for.

    Attributes
    ----------
    timeout
        Seconds that a request may take, all tries together. A try takes at most half of them, or of what is
        left of the time for the whole, while another may follow. Infinity: for ever. What carries bytes has
        more: see `carrying`.
    retries
        How often a request that failed is tried again, where that may help.
    """

    timeout: float
    retries: int

    def whole_save(self, nbytes: int) -> float:
        """Return how many seconds a save of that many bytes may take: rather too many than too few.

        Two for a MiB: of what is left, the first try of each object has half.
        """
        return 10 * self.timeout + 2 * nbytes / (1 << 20)

    def carrying(self, nbytes: int) -> float:
        """Return how many seconds more a try may take that carries so many bytes, a second for a MiB.

        It shares its line with as many others as there are at a time.
        """
        return min(REQUESTS * nbytes, max(nbytes, ROOM)) / (1 << 20)


#: For targets behind a network, unless told otherwise.
REMOTE: Final = Patience(60.0, 5)


class PatientBackend:
    """A backend around another: requests end in time, and are tried again where that may help.

    What does not answer in time is left behind. `StorageError.gave_up` says that the target was asked as
    long, or as often, as it may be: what is asked next should be little.
    """

    def __init__(self, inner: Backend, patience: Patience) -> None:
        self.inner = inner
        self.patience = patience

    @property
    def url(self) -> str:
        """Where this is, without secrets."""
        return self.inner.url

    @property
    def durable(self) -> bool:
        """Whether an object that `put` returned for outlives a power cut."""
        return self.inner.durable

    @property
    def writable(self) -> bool:
        """Whether `put` and `delete` can work at all."""
        return self.inner.writable

    @property
    def refusal(self) -> str:
        """Why nothing can be written here, and what to do instead."""
        return refusal_of(self.inner)

    def put(self, key: str, data: Buffer) -> None:
        """Store a whole object."""
        more = self.patience.carrying(memoryview(data).nbytes)
        self.ask("write", key, partial(self.inner.put, key, data), UnknownOutcomeError, more=more)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return the bytes of an object, or those of ``[start, end)`` that exist."""
        nbytes = 0 if end is None or unsized.get() else max(0, end - (start or 0))
        more = self.patience.carrying(nbytes)
        return self.ask("read", key, partial(self.inner.get, key, start, end), more=more)

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        """Return every key below ``prefix/`` at any depth."""

        def once() -> tuple[Names, Names]:
            others: Names = []
            return self.inner.list(prefix, others), others

        found, others = self.ask("list", prefix, once)
        if foreign is not None:
            foreign.extend(others)
        return found

    def lengths(self, prefix: str) -> dict[str, int]:
        """Return how long objects below ``prefix/`` are, as far as a listing tells."""
        return self.ask("list", prefix, partial(told_lengths, self.inner, prefix))

    def delete(self, key: str) -> None:
        """Delete an object; one that is absent is fine."""
        self.ask("delete", key, partial(self.inner.delete, key))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects."""
        wanted = list(keys)
        self.ask("delete", f"{len(wanted)} objects", partial(self.inner.delete_many, wanted))

    def size(self, key: str) -> int:
        """Return the length of an object in bytes."""
        return self.ask("look at", key, partial(self.inner.size, key))

    def created(self, key: str) -> float | None:
        """Return when an object was stored, in seconds by the storage's own clock."""
        return self.ask("look at", key, partial(self.inner.created, key))

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return what writes that have not ended left; what is older than a moment is taken away."""
        wanted = list(folders)
        return self.ask("look for", "interrupted writes", partial(self.inner.leftovers, wanted, before))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r}, {self.patience!r})"

    def ask(
        self,
        verb: str,
        what: str,
        call: Callable[[], R],
        overdue: type[StorageError] = StorageError,
        *,
        more: float = 0.0,
    ) -> R:
        """Return what a call returns; `overdue` is the error where nothing is known of how it ended.

        Each of two tries has so many seconds `more`.
        """
        what = what or "everything"
        with deadline(self.patience.timeout + 2 * more):
            if _left() <= 0:
                raise _gave_up(f"{self.url}: could not {verb}: the time for the whole is over", what)
            undecided, cause, half = False, "", _left() / 2
            for number in itertools.count(1):
                last = number > self.patience.retries
                try:
                    seconds = _left() if last else min(_left(), half)
                    return _within(call, seconds, verb, what, overdue, self.url)
                except StorageError as error:
                    undecided |= error.outcome_unknown
                    pause = _pause(number)
                    helps = _may_help(error)
                    silent = isinstance(error.__cause__, TimeoutError)
                    if last or not helps or pause >= _left():
                        error.gave_up = helps
                        error.message = f"{self.url}: {error.message}"  # of several, which one it was
                        error.message += f" (tried {number} times)" if number > 1 else ""
                        error.message += f"; before that: {cause}" if silent and cause else ""
                        if undecided and not error.outcome_unknown:
                            raise _undecided(error) from error
                        raise
                    cause = cause if silent else error.message[:200]
                    _log.warning(
                        "%s: could not %s %s (%s): retry %d of %d in %.1f s",
                        *(self.url, verb, what, error.message[:200], number, self.patience.retries, pause),
                    )
                time.sleep(pause)
        raise AssertionError


def patient(backend: Backend, timeout: float | None, retries: int | None) -> Backend:
    """Return a backend that waits as told; None is what suits the target.

    A target that is not behind a network, and of which nothing is told, is returned as it is.
    """
    if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
        raise InvalidInputError(f"timeout is {timeout!r}; it is seconds above 0, or None for the usual")
    if retries is not None and not (isinstance(retries, int) and retries >= 0):
        raise InvalidInputError(f"retries is {retries!r}; it is 0 or more, or None for the usual")
    remote = bool(getattr(backend, "remote", False))
    if not remote and timeout is None and retries is None:
        return backend
    usual = REMOTE if remote else Patience(math.inf, 0)
    return PatientBackend(
        backend,
        Patience(
            usual.timeout if timeout is None else float(timeout),
            usual.retries if retries is None else retries,
        ),
    )


def _left() -> float:
    left = remaining()
    return math.inf if left is None else left


def _pause(number: int) -> float:
    first, longest = _PAUSES
    return min(longest, first * 2.0 ** min(number - 1, 16)) * random.uniform(0.75, 1.25)


def _may_help(error: StorageError) -> bool:
    """Return whether trying again may help."""
    cause = error.__cause__
    if isinstance(cause, _FINAL) or lacks_credentials(error):
        return False
    return not (no_room(error) or (isinstance(cause, OSError) and cause.errno == errno.EROFS))


def lacks_credentials(error: StorageError) -> bool:
    """Return whether nobody gave what a target asks for, or not all of it."""
    return "Credentials" in type(error.__cause__).__name__


def no_room(error: StorageError) -> bool:
    """Return whether a target has no room left, or no more of it for this user."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL


def _gave_up(message: str, what: str, kind: type[StorageError] = StorageError) -> StorageError:
    error = kind(message, key=what, reason="timeout")
    error.gave_up = True
    return error


def _undecided(error: StorageError) -> UnknownOutcomeError:
    found = UnknownOutcomeError(f"an earlier try may have landed; then: {error.message}", key=error.key)
    found.gave_up = error.gave_up
    return found


def _within(
    call: Callable[[], R], seconds: float, verb: str, what: str, overdue: type[StorageError], url: str
) -> R:
    """Return what a call returns within some seconds, by this thread's clock whatever the call does."""
    if seconds == math.inf:
        return call()
    answer = SafeFuture[R]()

    def run() -> None:
        try:
            with deadline(seconds):
                answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    started = time.monotonic()
    # Nobody can end a thread that waits for a dead connection: it must not keep the process from ending.
    Thread(target=contextvars.copy_context().run, args=(run,), daemon=True, name="lcstore-request").start()
    for silence in itertools.count(1):
        waited = time.monotonic() - started
        try:
            return answer.result(max(0.0, min(seconds, silence * _SILENCE) - waited))
        except TimeoutError as error:
            if answer.done():
                return answer.result()
            waited = time.monotonic() - started
            if waited >= seconds or not _left():
                message = f"could not {verb}: no answer within {min(waited, seconds):.3g} s"
                raise _gave_up(message, what, overdue) from error
            _log.warning("%s: still waiting to %s %s, for %.0f s", url, verb, what, silence * _SILENCE)
    raise AssertionError
