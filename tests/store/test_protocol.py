"""Saving, compacting, collecting, pinning and reading beside each other, in every order that can matter.

Each scene is a store of a few states and a few actors with the real code. One storage operation happens at a
time; all orders of them that can end differently are run, or (where they are too many) as many as there is
time for, and then random ones. After each: no acknowledged state that is not let go of is lost, nobody got
wrong bytes, and collecting goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pytest
from crash_histories import opened, quick

from lcstore import ConflictError, CorruptionError, LcstoreError, NotFoundError
from lcstore.store import keys
from lcstore.store.memory import MemoryBackend
from lcstore.testing import Crash, Exploration, Fault, FaultBackend, Outcome, Scene, Snapshot, Step, explore

Play = Callable[[Any], Any]


def state(number: int) -> dict[str, Any]:
    """One tensor that moves, and one that stays."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((4, 8)).astype(np.float32)
    for _ in range(number):
        weights = weights + rng.standard_normal(weights.shape).astype(np.float32) * np.float32(1e-3)
    return {"a.weight": weights, "mask": np.arange(4)}


@dataclass(frozen=True)
class Start:
    """A store to begin from: its states in the order of saving, what they give back, which are retired."""

    objects: dict[str, bytes]
    nodes: list[str]
    snapshots: dict[str, Snapshot]
    retired: frozenset[str]


@cache
def start(length: int, retired: tuple[int, ...] = (), *, fork: bool = False, compacted: bool = False) -> Start:
    """A run of states, some of them let go of; with `fork` two runs more that went on from the first."""
    backend = MemoryBackend.fresh()
    with quick(), opened(backend, grace=0) as store:
        nodes = [store.save(step, state(step)).node for step in range(length)]
        if fork:
            store.resume(nodes[0])
            nodes += [store.save(10 + step, state(30 + step)).node for step in range(2)]
        snapshots = {node: Snapshot.of(store.restore(node)) for node in nodes}
        for place in retired:
            store.retire(nodes[place])
        if compacted:
            store.compact()
    return Start(backend.snapshot(), nodes, snapshots, frozenset(nodes[place] for place in retired))


# Actors -------------------------------------------------------------------------------------------------


def saving(at: str | None = None, number: int = 60) -> Play:
    """Save, going on from a node; return the node that was acknowledged."""

    def play(actor: Any) -> Any:
        with opened(actor) as store:
            if at is not None:
                store.resume(at)
            return store.save(number, state(number)).node

    return play


def collecting(times: int = 1, *, retire: str | None = None) -> Play:
    """Collect, having retired a node."""

    def play(actor: Any) -> None:
        with opened(actor) as store:
            if retire is not None:
                store.retire(retire)
            for _ in range(times):
                store.collect(grace=0)

    return play


def compacting(actor: Any) -> None:
    with opened(actor) as store:
        store.compact()


def pinning(node: str) -> Play:
    """Pin a node, and return it."""

    def play(actor: Any) -> Any:
        with opened(actor) as store:
            store.pin(node, "test")
        return node

    return play


def reading(*nodes: str) -> Play:
    """Return what nodes give."""

    def play(actor: Any) -> Any:
        with opened(actor, "r") as store:
            return {node: Snapshot.of(store.restore(node)) for node in nodes}

    return play


@dataclass(frozen=True)
class Meeting:
    """Who meets in which store.

    Attributes
    ----------
    start
        The store.
    actors
        By name; those of writers, readers and pinners begin so.
    let_go
        Nodes that are retired meanwhile.
    excused
        By actor: errors that it may end with.
    """

    start: Start
    actors: Mapping[str, Play]
    let_go: frozenset[str] = frozenset()
    excused: Mapping[str, tuple[type[BaseException], ...]] = field(default_factory=dict)

    def scene(self) -> Scene:
        backend = MemoryBackend.fresh(self.start.objects)
        return Scene(backend, self.actors, lambda outcomes: self.check(backend, outcomes))

    def check(self, backend: MemoryBackend, outcomes: Mapping[str, Outcome]) -> None:
        kept = self.start.snapshots.keys() - self.start.retired - self.let_go
        saved = []
        for name, outcome in outcomes.items():
            if outcome.error is not None:
                assert isinstance(outcome.error, self.excused.get(name, ())), (name, outcome.error)
            elif name.startswith("reader"):
                assert all(seen == self.start.snapshots[node] for node, seen in outcome.value.items())
            elif name.startswith("pinner"):
                kept |= {outcome.value}
            elif name.startswith("writer"):
                saved.append(outcome.value)
        before = self._seen(backend, [*kept, *saved])
        assert all(before[node] == self.start.snapshots[node] for node in kept)
        # Collecting goes on, and takes nothing that is needed.
        with opened(backend) as store:
            store.collect(grace=0)
            store.collect(grace=0)
            report = store.verify(level="checksum")
        assert self._seen(backend, [*kept, *saved]) == before
        assert not [finding for finding in report.findings if finding.severity == "error"], report.findings

    @staticmethod
    def _seen(backend: MemoryBackend, nodes: list[str]) -> dict[str, Snapshot]:
        with opened(backend, "r") as store:
            return {node: Snapshot.of(store.restore(node)) for node in nodes}


def plans_stay(one: Step, other: Step) -> bool:
    """A plan that was there at first is never deleted, and is written again with the same bytes."""
    return one.key == other.key and one.key.startswith("plans/")


TOO_LATE = (NotFoundError, CorruptionError)


def fresh_writer() -> Meeting:
    """A writer that begins a run of its own, whose objects a collector takes for those of a dead one."""
    return Meeting(start(2), {"writer": saving(), "collector": collecting()})


def resumed_writer() -> Meeting:
    """A writer that goes on from a state that is retired and collected."""
    begun = start(3, fork=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"writer": saving(leaf), "collector": collecting(retire=leaf)},
        let_go=frozenset([leaf]),
        excused={"writer": TOO_LATE},
    )


def compactor() -> Meeting:
    """A compactor makes states needless that a collector takes."""
    return Meeting(start(4, (1, 2)), {"compactor": compacting, "collector": collecting(2)})


def collectors() -> Meeting:
    """Two collectors, one of which retires something more."""
    begun = start(4, (1,), compacted=True)
    return Meeting(
        begun,
        {"one": collecting(), "two": collecting(retire=begun.nodes[2])},
        let_go=frozenset([begun.nodes[2]]),
    )


def collectors_and_compactor() -> Meeting:
    """Two collectors that see different ways to one state, as a compactor is at work."""
    return Meeting(start(4, (1, 2)), {"compactor": compacting, "one": collecting(), "two": collecting()})


def all_three() -> Meeting:
    """A writer that goes on from a state that is let go of, a compactor and a collector."""
    begun = start(4, (2,), fork=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"writer": saving(leaf), "compactor": compacting, "collector": collecting(retire=leaf)},
        let_go=frozenset([leaf]),
        excused={"writer": TOO_LATE},
    )


def pinner() -> Meeting:
    """A state is pinned while it is retired and collected."""
    begun = start(3, fork=True)
    leaf = begun.nodes[1]
    return Meeting(
        begun,
        {"pinner": pinning(leaf), "collector": collecting(retire=leaf)},
        let_go=frozenset([leaf]),
        excused={"pinner": (ConflictError, *TOO_LATE), "collector": (LcstoreError,)},
    )


def late_pinner() -> Meeting:
    """A state is pinned after it was retired, while it is collected."""
    begun = start(3, (1,), fork=True, compacted=True)
    return Meeting(
        begun,
        {"pinner": pinning(begun.nodes[1]), "collector": collecting()},
        excused={"pinner": (ConflictError, *TOO_LATE)},
    )


def reader() -> Meeting:
    """A reader of a state that stays, and of one that is let go of, while a collector takes its way away."""
    begun = start(4, (1, 2), compacted=True)
    return Meeting(begun, {"reader": reading(begun.nodes[3], begun.nodes[0]), "collector": collecting()})


def late_reader() -> Meeting:
    """A reader of a state that is collected."""
    begun = start(3, (1,), compacted=True)
    return Meeting(
        begun,
        {"reader": reading(begun.nodes[1]), "collector": collecting()},
        excused={"reader": TOO_LATE},
    )


MEETINGS = {
    made.__name__: made
    for made in (
        fresh_writer,
        resumed_writer,
        compactor,
        collectors,
        collectors_and_compactor,
        all_three,
        pinner,
        late_pinner,
        reader,
        late_reader,
    )
}


def meet(name: str, limit: int | None, samples: int) -> Exploration:
    return explore(MEETINGS[name]().scene, limit, samples=samples, commutes=plans_stay)


@pytest.mark.parametrize("name", MEETINGS)
def test_nothing_is_lost_in_some_orders(name):
    found = meet(name, 60, 60)
    assert found.complete or found.schedules + found.cut_short + found.sampled == 120


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", MEETINGS)
def test_nothing_is_lost_in_any_order(name):
    found = meet(name, 20_000, 2_000)
    assert found.complete or found.sampled == 2_000
