"""One object is deleted while a run saves, and its store is compacted, collected and repaired."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import pytest
from crash_histories import opened, quick
from damaged import state
from kit import Outcome, Scene, Snapshot, explore
from meetings import Meanwhile, start
from states import leaves, tracked

import lcstore
from lcstore.errors import ConflictError, CorruptionError, LcstoreError
from lcstore.format import keys, markkeys
from lcstore.format.marks import CondemnedRecord
from lcstore.format.records import utc_now
from lcstore.storage.memory import MemoryBackend

#: A reader that gets around damage, and a writer that stands on it, say so.
pytestmark = [
    pytest.mark.once,
    pytest.mark.filterwarnings("ignore::lcstore.errors.FallbackWarning"),
    pytest.mark.filterwarnings("ignore::lcstore.errors.DamageWarning"),
]

DURABILITY = lcstore.Durability(anchor_every=5)
BEFORE, SAVES = 12, 7
SEEDS = 300
#: The deletion comes after one of so many operations, while the writer is at work.
OPERATIONS = 700


@cache
def begun() -> dict[str, bytes]:
    """A run of some saves with anchors among them, some of them let go of."""
    backend = MemoryBackend.fresh()
    with quick(), opened(backend, grace=0, durability=DURABILITY) as store:
        for step in range(BEFORE):
            store.save(step, state(step, rows=8), exact=step == 3, tags=["good"] if step == 4 else ())
        for step in (1, 2, 6):
            store.retire(step)
    return backend.snapshot()


class Losing:
    """A backend that loses one object after some operation, whatever that is about."""

    def __init__(self, inner: MemoryBackend, chance: random.Random) -> None:
        self.inner = inner
        self.chance = chance
        self.left = chance.randrange(OPERATIONS)
        self.lost: str | None = None
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.inner, name)
        if name not in ("put", "get", "list", "delete", "size", "created"):
            return real

        def operation(*args: Any) -> Any:
            done = real(*args)
            self.left -= 1
            if self.left < 0:
                self.lose()
            return done

        return operation

    def lose(self) -> None:
        """Lose the object now, unless that has happened."""
        with self._lock:
            if self.lost is None:
                self.lost = self.chance.choice(sorted(self.inner.snapshot()))
                self.inner.delete(self.lost)


@dataclass
class Run:
    """What the writer was told.

    Attributes
    ----------
    saved, seen
        The nodes that were acknowledged, in order; what those after the loss gave back right then.
    failed
        Why others were not.
    """

    saved: list[str] = field(default_factory=list)
    seen: dict[str, Snapshot] = field(default_factory=dict)
    failed: list[LcstoreError] = field(default_factory=list)


def scene(seed: int) -> Scene:
    """A writer, a compactor, a collector and a repair, and an object that goes."""
    backend = MemoryBackend.fresh(begun())
    losing, run = Losing(backend, random.Random(f"lose/{seed}")), Run()

    def writing(actor: Any) -> None:
        with opened(actor, durability=DURABILITY) as store:
            store.resume(on_corrupt="previous")
            for step in range(BEFORE, BEFORE + SAVES):
                save(store, step, losing, run)

    def compacting(actor: Any) -> None:
        for _ in range(2):
            with opened(actor, durability=DURABILITY) as store:
                store.compact()

    def collecting(actor: Any) -> None:
        for number in range(3):
            with opened(actor, durability=DURABILITY) as store:
                if number == 1:
                    store.retain("latest:10 | every:4")
                store.collect()

    def repairing(actor: Any) -> None:
        for _ in range(2):
            with opened(actor, durability=DURABILITY) as store:
                store.repair(dry_run=False)

    actors = {"writer": writing, "compactor": compacting, "collector": collecting, "repairer": repairing}
    return Scene(losing, actors, partial(check, losing, run))


def save(store: lcstore.Store, step: int, losing: Losing, run: Run) -> None:
    """Save a state, and note what a reader gets of it now, if it was acknowledged after the loss."""
    tree = state(step, rows=8)
    late = losing.lost is not None
    try:
        info = store.save(step, tree)
    except LcstoreError as error:
        run.failed.append(error)
        return
    run.saved.append(info.node)
    if late:
        with opened(losing.inner, "r") as reader:
            back = reader.restore(info.node)
        held = {name: array.tobytes() for name, array in leaves(back).items()}
        if info.kind == "anchor":
            assert held["model/w"] == tree["model"]["w"].tobytes()
        else:
            assert {"model/w": held["model/w"]}.items() <= tracked(store).items()
        run.seen[info.node] = Snapshot.of(back)


def check(losing: Losing, run: Run, outcomes: Mapping[str, Outcome]) -> None:
    """Look at the store as it was left, then repair it and look again."""
    for name, outcome in outcomes.items():
        if outcome.error is not None and not refuses(name, outcome.error):
            raise AssertionError(f"{name}, {losing.lost}") from outcome.error
    losing.lose()
    look(losing.inner, run)
    with opened(losing.inner) as store:
        assert not store.repair(dry_run=False).remaining
    look(losing.inner, run)
    with opened(losing.inner, durability=DURABILITY) as store:
        for _ in range(2):
            store.compact()
            store.collect()
        assert store.verify("restore").ok
    look(losing.inner, run)


def refuses(name: str, error: BaseException) -> bool:
    """Return whether an actor may end so: maintenance that meets damage does nothing further.

    To a compactor a save of which a collector took objects looks alike, until the writer disowns it.
    """
    may = name == "compactor" or (name == "collector" and "lcstore repair" in str(error))
    return may and isinstance(error, CorruptionError)


def look(backend: MemoryBackend, run: Run) -> None:
    """See that what was acknowledged after the loss is there, and how far back a new process begins."""
    with opened(backend, "r") as store:
        for node, seen in run.seen.items():
            assert Snapshot.of(store.restore(node)) == seen
    with opened(MemoryBackend.fresh(backend.snapshot())) as store:
        epoch = store.resume(on_corrupt="previous")["epoch"]
        steps = [store.info(node).step for node in run.saved[-1:]] or [BEFORE - 1]
        assert steps[0] - epoch <= 2, (steps, epoch)


def lose_and_look(seeds: range) -> None:
    for seed in seeds:
        try:
            explore(partial(scene, seed), 0, seed + 1, samples=1)  # not the names of what is there
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_tenth_of_all_deletions():
    lose_and_look(range(0, SEEDS, 10))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(8))
def test_all_deletions(part):
    lose_and_look(range(part, SEEDS, 8))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_all_deletions_in_threads_that_run_side_by_side():
    for seed in range(SEEDS):
        met = scene(seed)
        with ThreadPoolExecutor(len(met.actors)) as pool:
            futures = {name: pool.submit(play, met.backend) for name, play in met.actors.items()}
        try:
            met.check({name: outcome_of(future) for name, future in futures.items()})
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def outcome_of(future: Future[object]) -> Outcome:
    error = future.exception()
    if error is not None and not isinstance(error, LcstoreError):
        raise error
    return Outcome(error=error)


# While a repair looks -------------------------------------------------------------------------------------


def test_what_compaction_takes_the_place_of_is_not_lost_to_a_repair():
    """Its first listing does not show the edge that leads to the last state when the others are gone."""
    started = start(4, (1, 2))
    backend = MemoryBackend.fresh(started.objects)

    def maintain() -> None:
        with opened(backend) as store:
            store.compact()
            store.collect(grace=0)

    meanwhile = Meanwhile(backend, "get", "data/", maintain, after=False)
    with quick(seed=1), opened(meanwhile) as store:  # nothing is read side by side
        assert store.repair(dry_run=False).lost == ()
    with opened(backend, "r") as store:
        for node in (started.nodes[0], started.nodes[3]):
            assert Snapshot.of(store.restore(node)) == started.snapshots[node]


def test_a_repair_lets_go_of_nothing_in_a_store_that_changes_all_the_time():
    backend = MemoryBackend.fresh(start(4).objects)
    backend.delete(next(key for key in backend.list("data") if ".add/" in key))
    backend.delete(next(key for key in backend.list("data") if ".add/p." in key))
    count = itertools.count()

    def change() -> None:
        mark = CondemnedRecord(f"{next(count):032x}", None, markkeys.WHOLE_EDGE, utc_now())
        backend.put(mark.key(), mark.to_bytes())
        meanwhile.do = change

    meanwhile = Meanwhile(backend, "get", "data/", change, after=False)
    with opened(meanwhile) as store, pytest.raises(ConflictError, match="repair it once that has ended"):
        store.repair(dry_run=False)
    assert not backend.list(keys.RETIRED)


def test_a_copy_of_what_is_collected_meanwhile_is_not_put_back():
    backend = MemoryBackend.fresh(start(2).objects)
    record = min(backend.list(keys.NODES), key=lambda key: keys.parse_node_key(key).step)
    copy = keys.copy_key(keys.parse_node_key(record).node)
    backend.delete(copy)
    reads = itertools.count()

    def change():
        if next(reads):
            backend.delete(record)
        else:
            meanwhile.do = change

    # It is read as a record, and then because it has no copy: after that it is gone.
    meanwhile = Meanwhile(backend, "get", record, change, after=True)
    with opened(meanwhile) as store:
        store.repair(dry_run=False)
    assert not {record, copy} & backend.snapshot().keys()
