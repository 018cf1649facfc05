"""A fault at every storage operation of all that changes a store: nothing is lost, and a retry succeeds.

Every point begins with the same store, meets one fault (a crash, a failure, a lost reply, a torn write, a
damaged read, an old listing), and must leave what it found. Then the same is done again without a fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from crash_histories import PASTS, Memory, Past, opened, past_of, quick, state
from kit import Snapshot
from kit.besides import unprotected

import lcstore
from lcstore import LcstoreError
from lcstore.format import keys, markkeys
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, Fault, FaultBackend
from lcstore.write.saveinfo import SaveInfo

#: A restore may get around what a fault damaged, and says so.
pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore::lcstore.errors.FallbackWarning")]

ALL = ("put", "get", "list", "delete", "size", "created")
#: What may go wrong, with the operations that it may happen to.
FAULTS: dict[str, tuple[Fault, tuple[str, ...]]] = {
    "crash_before": (Fault("crash_before"), ALL),
    "crash_after": (Fault("crash_after"), ("put", "delete")),
    "torn": (Fault("torn"), ("put",)),
    "eio": (Fault("eio"), ALL),
    "busy": (Fault("busy", count=3), ALL),
    "enospc": (Fault("enospc"), ("put",)),
    "lost_reply": (Fault("lost_reply"), ("put", "delete")),
    "lost_request": (Fault("lost_request"), ("put", "delete")),
    "stale_listing": (Fault("stale_listing", count=3), ("list",)),
    "short_read": (Fault("short_read"), ("get",)),
    "bit_flip": (Fault("bit_flip"), ("get",)),
}

Act = Callable[[lcstore.Store, Past], Any]


def nothing(store: lcstore.Store, past: Past) -> None:
    """What most operations need to be done before them."""


def save(store: lcstore.Store, past: Past, *, exact: bool = False) -> Any:
    if store._writer.head is None:
        store.resume()
    return store.save(100, state(70), exact=exact, tags=["new"])


def save_exact(store: lcstore.Store, past: Past) -> Any:
    return save(store, past, exact=True)


def a_state(store: lcstore.Store) -> str:
    """One that is not the latest of its run."""
    return store.info(min(store.steps())).node


def pin(store: lcstore.Store, past: Past) -> None:
    store.pin(a_state(store), "test")
    there = store._index.refresh(full=True).nodes  # of some only the retirement is left
    store.pin(min(past.retired & there.keys()), "test")


def tag(store: lcstore.Store, past: Past) -> None:
    store.tag("first", store.info().node)


def retire(store: lcstore.Store, past: Past) -> None:
    store.retire(min(past.snapshots.keys() - newest(past)))


def newest(past: Past) -> set[str]:
    """The latest of every run, and what is pinned: states that are always kept."""
    last: dict[str, Any] = {}
    pinned = set()
    for key in past.objects:
        if key.startswith("nodes/"):
            name = keys.parse_node_key(key)
            last[name.run_id] = max(last.get(name.run_id, name), name, key=lambda n: n.order)
        elif key.startswith("names/pin"):
            pinned.add(markkeys.parse_tag_key(key).node)
    return {name.node for name in last.values()} | pinned


def tear_a_retirement(store: lcstore.Store, past: Past) -> None:
    """As a target without atomic writes may leave it."""
    key = min(store.backend.list(keys.RETIRED))
    other = key.replace(key.split("-")[1], "ab" * 16)
    store.backend.put(other, store.backend.get(key)[:40])


@dataclass(frozen=True)
class Operation:
    """Something that changes a store.

    Attributes
    ----------
    act
        Does it; doing it again is right.
    before
        What is done to the store first.
    settled
        Whether, when it was done, the same planned work is not planned again.
    """

    act: Act
    before: Act = nothing
    settled: Callable[[lcstore.Store], bool] = lambda store: True


OPERATIONS = {
    "save": Operation(save),
    "exact save": Operation(save_exact),
    "compact": Operation(
        lambda store, past: store.compact(), settled=lambda store: store.compact(dry_run=True).planned == 0
    ),
    "retire": Operation(retire),
    "retain": Operation(lambda store, past: store.retain("LatestN(2) | EveryNSteps(3)")),
    "strip": Operation(lambda store, past: store.retain("LatestN(99) | Strip('optim/**', after=LatestN(3))")),
    "let go of exactness": Operation(lambda store, past: store.retain("LatestN(99) | ExactOnly(LatestN(1))")),
    "collect": Operation(
        lambda store, past: store.collect(grace=0),
        before=lambda store, past: (store.retain("LatestN(4) | EveryNSteps(3)"), store.compact()),
        settled=lambda store: store.collect(grace=0).deleted_objects == 0,
    ),
    "collect at once": Operation(
        lambda store, past: store.collect(grace=0),
        settled=lambda store: store.collect(grace=0).deleted_objects == 0,
    ),
    "pin": Operation(pin),
    "unretire": Operation(
        lambda store, past: store.unretire(),
        settled=lambda store: not store.unretire(dry_run=True).brought_back,
    ),
    "retain what was unretired": Operation(
        lambda store, past: store.retain("LatestN(2) | EveryNSteps(3)"),
        before=lambda store, past: (store.retain("LatestN(1)"), store.unretire()),
    ),
    "tag": Operation(tag),
    "repair": Operation(
        lambda store, past: store.repair(dry_run=False, level="structure"),
        before=tear_a_retirement,
    ),
}


@dataclass(frozen=True)
class Case:
    """An operation on a store.

    Attributes
    ----------
    past
        What there is before.
    after
        What the states that there were give back when it is done.
    points
        The faults: kind, and number of the storage operation.
    memory
        What was restored before.
    """

    operation: Operation
    past: Past
    after: Past
    points: list[tuple[str, int]]
    memory: Memory


@cache
def case(history: str, name: str) -> Case:
    operation = OPERATIONS[name]
    with quick() as anew:
        anew()
        past = past_of(PASTS[history]())
        backend = past.backend()
        with opened(backend) as store:
            operation.before(store, past)
        # Not what a torn mark tells: it is none.
        past = (
            past_of(backend) if name != "repair" else Past(backend.snapshot(), past.snapshots, past.retired)
        )
        backend = past.backend()
        faultless = FaultBackend(backend)
        with opened(faultless) as store:
            operation.act(store, past)
        after = past_of(backend)
    points = [
        (kind, done.number)
        for done in faultless.log
        for kind, (_, names) in FAULTS.items()
        if done.name in names and not (kind == "torn" and done.key in past.objects)  # those are never torn
    ]
    return Case(operation, past, after, points, Memory())


def check(case: Case, backend: MemoryBackend, saved: dict[str, Snapshot], *, done: bool) -> list[str]:
    """Return what was lost. Until it is `done`, each state is as before or as after."""
    found = []
    with opened(backend, "r") as store:
        graph = store._index.refresh(full=True)
        shown = graph.nodes.keys() - graph.hidden
        for node, before in case.past.snapshots.items():
            after = case.after.snapshots.get(node)
            if node not in shown:
                found += [f"{node} is gone"] if after is not None else []
            elif done and after is None:
                found.append(f"{node} is still there")
            else:
                now = case.memory.look(backend, node, store)
                if now != after and (done or now != before):
                    found.append(f"{node} gives other bits: {(after or before).differences(now)}")
        for node in shown - case.past.snapshots.keys():  # whatever landed can be restored
            now = case.memory.look(backend, node, store)
            if node in saved and now != saved[node]:
                found.append(f"{node} was saved and gives other bits: {saved[node].differences(now)}")
        found += [f"{node} was saved and is gone" for node in saved.keys() - shown]
    return found


def errors(backend: MemoryBackend) -> list[str]:
    with opened(backend, "r") as store:
        report = store.verify(level="checksum")
    return [str(finding) for finding in report.findings if finding.severity == "error"]


def act(case: Case, store: lcstore.Store, backend: MemoryBackend, saved: dict[str, Snapshot]) -> None:
    """Do it, and take down what was acknowledged."""
    done = case.operation.act(store, case.past)
    if isinstance(done, SaveInfo):
        with opened(backend, "r") as other:
            saved[done.node] = Snapshot.of(other.restore(done.node))


def try_point(case: Case, kind: str, number: int) -> None:
    """Meet one fault, look at what is left, and do the same again."""
    backend, saved = case.past.backend(), dict[str, Snapshot]()
    faulty = FaultBackend(backend, {number: FAULTS[kind][0]}, seed=number)
    survived = None
    try:
        store = lcstore.open(faulty, threads=1)
        survived = store
        act(case, store, backend, saved)
    except Crash:
        survived = None
    except LcstoreError:
        pass
    assert faulty.struck
    faulty.revive()
    torn = faulty.struck[0][0].key if kind == "torn" else "data/"
    if not torn.startswith(("data/", "layouts/")):
        with opened(backend) as other:
            other.repair(dry_run=False)
    assert not (lost := check(case, backend, saved, done=False)), lost
    if survived is not None:
        act(case, survived, backend, saved)
        survived.close()
        assert not (lost := check(case, backend, saved, done=True)), lost
    with opened(backend) as other:
        act(case, other, backend, saved)
    with opened(backend) as other:
        assert case.operation.settled(other)
    assert not (lost := check(case, backend, saved, done=True)), lost
    assert not (found := errors(backend)), found
    if number % 5 == 0:
        converge(backend)
        assert not (lost := check(case, backend, saved, done=True)), lost


def converge(backend: MemoryBackend) -> None:
    """What is planned is done at once, and what may go is gone at once."""
    with opened(backend) as store:
        store.compact()
        assert store.compact(dry_run=True).planned == 0
        store.collect(grace=0)
        again = store.collect(grace=0)
        assert (again.condemned, again.deleted_objects, again.deleted_marks) == (0, 0, 0)


def some(points: list[tuple[str, int]], seed: str) -> Iterator[tuple[str, int]]:
    """A tenth of the points, of each kind at least one."""
    chance = random.Random(seed)
    for kind in FAULTS:
        mine = [point for point in points if point[0] == kind]
        yield from chance.sample(mine, -(-len(mine) // 10))


def try_points(case: Case, points: Iterator[tuple[str, int]] | list[tuple[str, int]]) -> int:
    count = 0
    with quick(seed=1) as anew:  # not the names of what is there
        for kind, number in points:
            anew()
            try:
                try_point(case, kind, number)
            except Exception as error:
                error.add_note(f"at point {kind!r}, {number}")
                raise
            count += 1
    return count


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("history", PASTS)
def test_a_fault_loses_nothing(history, name):
    # What is stored besides is in the way of faults in one history, and in all of them when run in full.
    with nullcontext() if history == "fresh" else unprotected():
        tried = case(history, name)
        assert try_points(tried, some(tried.points, f"{history}/{name}"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("history", PASTS)
def test_no_fault_at_any_operation_loses_anything(history, name):
    tried = case(history, name)
    assert try_points(tried, tried.points) == len(tried.points)


def test_there_are_many_points():
    assert sum(len(case(history, name).points) for history in PASTS for name in OPERATIONS) >= 10_000
