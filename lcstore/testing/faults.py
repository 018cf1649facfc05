"""A backend that fails on purpose: at a chosen operation, with a chosen fault, the same on every run.

The loop that tests need is here too. It runs something once for every operation that it makes, with a crash
or a failure at that operation, so that a test can look at what is left.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from lcstore.arrays import Buffer
from lcstore.errors import InvalidInputError, LcstoreError, StorageError, UnknownOutcomeError
from lcstore.storage.backend import Backend, Leftovers, Names, as_view

FaultKind: TypeAlias = Literal[
    "crash_before",
    "crash_after",
    "torn",
    "eio",
    "busy",
    "enospc",
    "lost_reply",
    "lost_request",
    "stale_listing",
    "bit_flip",
    "short_read",
]
OperationName: TypeAlias = Literal["put", "get", "list", "delete", "size", "created"]

_ALL: frozenset[OperationName] = frozenset(["put", "get", "list", "delete", "size", "created"])
_WRITES: frozenset[OperationName] = frozenset(["put", "delete"])
_APPLIES: dict[FaultKind, frozenset[OperationName]] = {
    "crash_before": _ALL,
    "crash_after": _WRITES,
    "torn": frozenset(["put"]),
    "eio": _ALL,
    "busy": _ALL,
    "enospc": frozenset(["put"]),
    "lost_reply": _WRITES,
    "lost_request": _WRITES,
    "stale_listing": frozenset(["list"]),
    "bit_flip": frozenset(["get"]),
    "short_read": frozenset(["get"]),
}


class Crash(BaseException):
    """The process died here. Not an `Exception`, so that no handler can live on."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of a backend. Numbers count from 0; `delete_many` is one `delete` for each key."""

    number: int
    name: OperationName
    key: str
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault, and how often it happens.

    Parameters
    ----------
    kind
        ``crash_before``: dies with no effect. ``crash_after``: the effect lands, then dies. ``torn``: a
        prefix lands, then dies (what a target without atomic publish does). ``eio``: fails, no effect.
        ``busy``: this and the next operations, `count` in all, are refused, no effect. ``enospc``: this and
        every later put fails. ``lost_reply``: the effect lands, the caller is told that the outcome is
        unknown. ``lost_request``: the same, but nothing landed. ``stale_listing``: the newest `count`
        objects are left out. ``bit_flip``: one bit of what is read differs. ``short_read``: the end of what
        is read is missing.
    times
        How often it happens; None is for ever.
    count
        Names that a stale listing leaves out; operations that a busy server refuses.
    """

    kind: FaultKind
    times: int | None = 1
    count: int = 1


When: TypeAlias = int | Callable[[Operation], bool]


class FaultBackend:
    """A backend around another, counting and logging operations and failing as planned.

    After a `Crash` it refuses everything, because the process is dead, until `revive`. Safe for threads:
    operations are numbered in the order in which they begin.

    Parameters
    ----------
    inner
        Where the objects are.
    plan
        Faults by operation number, or by a predicate over operations. A fault whose kind does not fit the
        operation does not happen.
    seed
        Chooses which bit flips and where reads and torn writes end.
    """

    def __init__(
        self, inner: Backend, plan: Mapping[When, Fault | FaultKind] | None = None, *, seed: int = 0
    ) -> None:
        self.inner = inner
        self.seed = seed
        self.log: list[Operation] = []
        self.struck: list[tuple[Operation, FaultKind]] = []
        self._rules = [_Rule(when, fault) for when, fault in (plan or {}).items()]
        self._lock = threading.Lock()
        self._dead = False
        self._full = False
        self._busy = 0
        self._newest: list[str] = []

    @property
    def url(self) -> str:
        """Where the objects are."""
        return self.inner.url

    @property
    def durable(self) -> bool:
        """Whether what was put outlives a power cut."""
        return self.inner.durable

    @property
    def writable(self) -> bool:
        """Whether anything can be put at all."""
        return self.inner.writable

    @property
    def dead(self) -> bool:
        """Whether the process has died."""
        return self._dead

    def revive(self) -> Backend:
        """Return what a new process finds: the inner backend, with no more faults."""
        self._dead = False
        self._full = False
        self._busy = 0
        self._rules = []
        return self.inner

    def put(self, key: str, data: Buffer) -> None:
        """Store a whole object, or fail."""
        view = as_view(data)
        operation, fault = self._begin("put", key, view.nbytes)
        if fault is not None and fault.kind == "enospc":
            self._full = True
        if self._full:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise StorageError(f"could not write: {full.strerror}", key=key) from full
        if fault is not None and fault.kind == "torn":
            self.inner.put(key, view[: self._random(operation).randrange(view.nbytes or 1)])
            self._die(operation)
        self._write(operation, fault, lambda: self.inner.put(key, view))
        with self._lock:
            if key not in self._newest:
                self._newest.append(key)

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """Return bytes of an object, perhaps damaged."""
        operation, fault = self._begin("get", key)
        data = self.inner.get(key, start, end)
        if fault is None or not data:
            return data
        chance = self._random(operation)
        if fault.kind == "bit_flip":
            bit = chance.randrange(8 * len(data))
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            return bytes(flipped)
        return data[: chance.randrange(len(data))] if fault.kind == "short_read" else data

    def list(self, prefix: str, foreign: Names | None = None) -> Names:
        """Return the keys below a prefix, perhaps without the newest."""
        _, fault = self._begin("list", prefix)
        found = self.inner.list(prefix, foreign)
        if fault is None or fault.kind != "stale_listing" or not fault.count:
            return found
        with self._lock:
            newest = [key for key in self._newest if key in set(found)][-fault.count :]
        return [key for key in found if key not in newest]

    def delete(self, key: str) -> None:
        """Delete an object, or fail."""
        operation, fault = self._begin("delete", key)
        self._write(operation, fault, lambda: self.inner.delete(key))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects one by one, so that a fault may lie between any two."""
        for key in keys:
            self.delete(key)

    def size(self, key: str) -> int:
        """Return the length of an object."""
        self._begin("size", key)
        return self.inner.size(key)

    def created(self, key: str) -> float | None:
        """Return when an object was stored."""
        self._begin("created", key)
        return self.inner.created(key)

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return what writes that have not ended left: no operation, as most targets have nothing like it."""
        if self._dead:
            raise Crash("the process is dead")
        return self.inner.leftovers(folders, before)

    def _begin(self, name: OperationName, key: str, nbytes: int = 0) -> tuple[Operation, Fault | None]:
        with self._lock:
            if self._dead:
                raise Crash("the process is dead")
            operation = Operation(len(self.log), name, key, nbytes)
            self.log.append(operation)
            fault = next((rule.fault for rule in self._rules if rule.strikes(operation)), None)
            if fault is not None:
                self.struck.append((operation, fault.kind))
            if fault is not None and fault.kind == "busy":
                self._busy = max(self._busy, fault.count)
            refused = self._busy > 0
            self._busy -= refused
        if refused:
            raise StorageError(f"could not {name}: the server is busy, try later (503)", key=key)
        if fault is not None and fault.kind == "crash_before":
            self._die(operation)
        if fault is not None and fault.kind == "eio":
            raise StorageError(f"could not {name}: {os.strerror(errno.EIO)}", key=key)
        return operation, fault

    def _write(self, operation: Operation, fault: Fault | None, effect: Callable[[], None]) -> None:
        kind = None if fault is None else fault.kind
        if kind != "lost_request":
            effect()
        if kind == "crash_after":
            self._die(operation)
        if kind in ("lost_reply", "lost_request"):
            raise UnknownOutcomeError(
                "no reply: the operation may or may not have happened", key=operation.key
            )

    def _die(self, operation: Operation) -> None:
        self._dead = True
        raise Crash(f"died at operation {operation.number}: {operation.name} {operation.key}")

    def _random(self, operation: Operation) -> random.Random:
        return random.Random(f"{self.seed}/{operation.number}")


class _Rule:
    """When a fault happens, and how often it still may."""

    def __init__(self, when: When, fault: Fault | FaultKind) -> None:
        self.when = when
        self.fault = fault if isinstance(fault, Fault) else Fault(fault)
        if self.fault.kind not in _APPLIES:
            raise InvalidInputError(f"no such fault: {self.fault.kind!r}")
        self.left = self.fault.times

    def strikes(self, operation: Operation) -> bool:
        if self.left == 0 or operation.name not in _APPLIES[self.fault.kind]:
            return False
        if self.left is None and isinstance(self.when, int):
            wanted = operation.number >= self.when
        else:
            wanted = operation.number == self.when if isinstance(self.when, int) else self.when(operation)
        if wanted and self.left is not None:
            self.left -= 1
        return wanted


@dataclass(frozen=True, slots=True)
class Point:
    """One run of :func:`every_point`: the fault, the operation, how the run ended, and its storage."""

    kind: FaultKind
    operation: Operation
    faulty: FaultBackend
    error: BaseException | None

    @property
    def backend(self) -> Backend:
        """What a new process finds."""
        return self.faulty.revive()


def every_point(
    make: Callable[[], Backend],
    run: Callable[[Backend], object],
    kinds: Iterable[FaultKind] = ("crash_before", "crash_after"),
    *,
    forever: bool = False,
    seed: int = 0,
) -> Iterator[Point]:
    """Run something once for each operation that it makes and each kind of fault, with that fault there.

    Parameters
    ----------
    make
        Returns a backend in the state from which each run begins.
    run
        What is tested. The number of its operations need not be known, and may differ from run to run: for
        each kind, points are tried until a run ends before reaching its point.
    kinds
        The faults to try.
    forever
        Whether a fault, once there, stays.
    seed
        As for `FaultBackend`.

    Yields
    ------
    Point
        For each run that a fault struck. `error` is what `run` raised: a `Crash`, an `LcstoreError`, or
        None where it took the fault in its stride. Any other exception is not caught: it is a finding.
    """
    for kind in kinds:
        number = 0
        while True:
            faulty = FaultBackend(make(), {number: Fault(kind, None if forever else 1)}, seed=seed)
            error = _outcome(run, faulty)
            if len(faulty.log) <= number:
                break
            if faulty.struck:
                yield Point(kind, faulty.struck[0][0], faulty, error)
            number += 1


def crash_points(make: Callable[[], Backend], run: Callable[[Backend], object]) -> Iterator[Point]:
    """Run something once for each operation that it makes, dying before it and, where it writes, after it."""
    return every_point(make, run)


def _outcome(run: Callable[[Backend], object], backend: Backend) -> BaseException | None:
    try:
        run(backend)
    except (Crash, LcstoreError) as error:
        return error
    return None
