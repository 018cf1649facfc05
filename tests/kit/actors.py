"""Several pieces of real code on one backend, of which exactly one moves at a time, as a schedule says.

Each actor has a thread and a view of the backend. Every operation on that view waits for its turn; between
two operations of one actor nothing else moves. Whoever arrives at an operation decides (by the schedule) who
goes on, so that a turn that stays where it is costs nothing.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import Any, Final, TypeAlias, TypeVar

from kit.races import Step
from lcstore.arrays import Buffer
from lcstore.errors import LcstoreError
from lcstore.format import records
from lcstore.storage.backend import Backend, Leftovers, Names, as_view
from lcstore.testing.faults import Crash, OperationName

R = TypeVar("R")

#: Where words that actors say to each other lie; no key of a store begins like this.
_SAID: Final = "//said"
_NOW: Final = 1_750_000_000.0
#: Seconds in which nobody has moved, after which actors are taken to wait for each other.
_STUCK_AFTER: Final = 20.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an actor ended: what it returned, or the error of lcstore (or the `Crash`) that ended it."""

    value: Any = None
    error: BaseException | None = None


#: Given the next operation of each actor that has not ended, says whose turn it is; None stops the run.
Choose: TypeAlias = Callable[[Mapping[str, Step]], str | None]


class _Stopped(BaseException):
    """The run is over for this actor, wherever it is."""


class Actor:
    """An actor's view of the backend (a `Backend`), and its voice."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self._stage = stage
        self._inner = stage.backend

    @property
    def url(self) -> str:
        """Where the objects are."""
        return self._inner.url

    @property
    def durable(self) -> bool:
        """Whether what was put outlives a power cut."""
        return self._inner.durable

    @property
    def writable(self) -> bool:
        """Whether anything can be put at all."""
        return self._inner.writable

    def put(self, key: str, data: Buffer) -> None:
        """Store a whole object, in turn."""
        view = bytes(as_view(data))
        self._turn("put", key, lambda: self._inner.put(key, view), hash(view))

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes of an object, in turn."""
        return self._turn("get", key, lambda: self._inner.get(key, start, end))

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        """Return the keys below a prefix, in turn and in a fixed order."""
        return sorted(self._turn("list", prefix, lambda: self._inner.list(prefix, foreign)))

    def delete(self, key: str) -> None:
        """Delete an object, in turn."""
        self._turn("delete", key, lambda: self._inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects one by one, each in turn."""
        for key in keys:
            self.delete(key)

    def size(self, key: str) -> int:
        """Return the length of an object, in turn."""
        return self._turn("size", key, lambda: self._inner.size(key))

    def created(self, key: str) -> float | None:
        """Return when an object was stored, in turn."""
        return self._turn("created", key, lambda: self._inner.created(key))

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return what writes that have not ended left."""
        return self._inner.leftovers(folders, before)

    def say(self, word: str) -> None:
        """Say something that others can hear from now on ("my save returned")."""
        self._turn("put", f"{_SAID}/{word}", lambda: self._stage.said.append(word))

    def heard(self) -> Names:
        """Return all that was said until now. What a check says of "before" and "after" rests on this."""
        return self._turn("list", _SAID, lambda: list(self._stage.said))

    def _turn(self, name: OperationName, key: str, effect: Callable[[], R], data: int = 0) -> R:
        self._stage.wait_for_turn(Step(self.name, name, key, data))
        return effect()


@dataclass
class Stage:
    """One run of several actors.

    Parameters
    ----------
    backend
        What they share.
    choose
        Whose turn it is.
    """

    backend: Backend
    choose: Choose
    said: list[str] = field(default_factory=list)
    trace: list[Step] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    pending: dict[str, Step] = field(default_factory=dict)
    stopped: bool = False
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        self._turns: dict[str, threading.Lock] = {}
        self._main = threading.Lock()
        self._main.acquire()
        self._begun = False

    def run(self, actors: Mapping[str, Callable[[Actor], object]]) -> bool:
        """Run all actors to their ends; say whether they got there (and were not stopped by `choose`).

        Raises
        ------
        BaseException
            What an actor raised that is no error of lcstore, or `choose`.
        """
        threads = []
        for name, play in actors.items():
            self._turns[name] = threading.Lock()
            self._turns[name].acquire()
            threads.append(threading.Thread(target=self._play, args=(name, play), name=name, daemon=True))
            threads[-1].start()
            self._wait_for_main()  # until it stands before its first operation
            if self.failure is not None:
                break
        self._begun = True
        if not self.failure and self.pending:
            self._pass_on(None)
            self._wait_for_main()
        self.stopped = self.stopped or self.failure is not None
        for thread in threads:
            if thread.name in self.pending:
                self._turns[thread.name].release()
            thread.join(_STUCK_AFTER)
        if self.failure is not None:
            raise self.failure
        return not self.stopped

    def wait_for_turn(self, step: Step) -> None:
        """Stand before an operation until it is one's turn; called by the thread of the step's actor."""
        if self.stopped:
            raise _Stopped
        if getattr(_here, "name", None) != step.actor:
            self._fail(AssertionError(f"{step.actor} has several threads at work; {step}"))
            raise _Stopped
        self.pending[step.actor] = step
        self._pass_on(step.actor)
        if self.stopped:
            raise _Stopped

    def _play(self, name: str, play: Callable[[Actor], object]) -> None:
        _here.name, _here.stage = name, self
        try:
            self.outcomes[name] = Outcome(play(Actor(name, self)))
        except _Stopped:
            return
        except (LcstoreError, Crash) as error:
            self.outcomes[name] = Outcome(error=error)
        except BaseException as error:
            self._fail(error)
            return
        if self.stopped:
            return
        if self._begun and self.pending:
            self._pass_on(None)
        else:
            self._main.release()

    def _pass_on(self, me: str | None) -> None:
        """Let the next actor move: the one who called this waits, unless it is the next."""
        chosen = me
        begun = self._begun  # looked at once: others go on, and may begin, as soon as one is released
        if begun:
            try:
                chosen = self.choose(
                    {name: self.pending[name] for name in self._turns if name in self.pending}
                )
                if chosen is not None:
                    self.trace.append(self.pending.pop(chosen))
            except BaseException as error:
                self.failure, chosen = error, None
            if chosen is None:
                self.stopped = True
                self._main.release()
            elif chosen != me:
                self._turns[chosen].release()
        else:
            self._main.release()
        if me is not None and (not begun or chosen != me):
            self._turns[me].acquire()

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure, self.stopped = error, True
            self._main.release()

    def _wait_for_main(self) -> None:
        moved = -1
        while not self._main.acquire(timeout=_STUCK_AFTER):
            if len(self.trace) == moved:
                self.stopped = True
                raise AssertionError(f"an actor waits for something that no operation brings: {self.pending}")
            moved = len(self.trace)


class _Here(threading.local):
    name: str | None = None
    stage: Stage | None = None


_here = _Here()


@contextmanager
def deterministic(seed: int = 0) -> Iterator[Callable[[], None]]:
    """Have nothing depend on chance or on the clock, and threads of actors do the work of their pools.

    Random names come from `seed`, the actor and how many it has drawn; the time stands still. Yields a
    function that begins anew.
    """
    drawn: Counter[str] = Counter()

    def token_hex(nbytes: int | None = None) -> str:
        count = 32 if nbytes is None else nbytes
        name = _here.name or ""
        drawn[name] += 1
        return hashlib.shake_256(f"{seed}/{name}/{drawn[name]}".encode()).hexdigest(count)

    with (
        _replaced(secrets, "token_hex", token_hex),
        _replaced(time, "time", lambda: _NOW),
        _replaced(records, "datetime", _Standing),
        _replaced(ThreadPoolExecutor, "submit", _submit),
    ):
        yield drawn.clear


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class _Standing(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.fromtimestamp(_NOW, tz or UTC)


_submit_to_pool = ThreadPoolExecutor.submit


def _submit(pool: ThreadPoolExecutor, fn: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
    """Do the work at once, in the thread of an actor; other threads use the pool."""
    if _here.name is None:
        return _submit_to_pool(pool, fn, *args, **kwargs)
    if pool._shutdown:
        raise RuntimeError("cannot schedule new futures after shutdown")
    future: Future[R] = Future()
    try:
        future.set_result(fn(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
    return future


@contextmanager
def alone() -> Iterator[None]:
    """Have this thread do the work of its pools, as threads of actors do."""
    before, _here.name = _here.name, ""
    try:
        yield
    finally:
        _here.name = before
