"""Small stores, actors that meet in them, and what must hold when they are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from crash_histories import opened, quick
from kit import Outcome, Scene, Snapshot
from kit.around import Around

import lcstore
from lcstore.errors import CorruptionError
from lcstore.format import keys
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import read_node, utc_now
from lcstore.maintain.collect import Collector
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.put import put_record

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
def start(
    length: int,
    retired: tuple[int, ...] = (),
    *,
    fork: bool = False,
    compacted: bool = False,
    back: bool = False,
) -> Start:
    """A run of states, some of them let go of; with `fork` two runs more that went on from the first.

    With `back` those that were let go of have been brought back by `unretire`.
    """
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
        if back:
            store.unretire()
    gone = frozenset[str]() if back else frozenset(nodes[place] for place in retired)
    return Start(backend.snapshot(), nodes, snapshots, gone)


# Actors -------------------------------------------------------------------------------------------------


def saving(at: str | None = None, number: int = 60, **options: Any) -> Play:
    """Save, going on from a node; return the node that was acknowledged."""

    def play(actor: Any) -> Any:
        with opened(actor, **options) as store:
            if at is not None:
                store.resume(at)
            return store.save(number, state(number)).node

    return play


def collecting(times: int = 1, *, retire: str | None = None) -> Play:
    """Collect, having retired a node; without the listings that a handle takes besides."""

    def play(actor: Any) -> None:
        with opened(actor) as store:
            if retire is not None:
                mark = RetiredRecord(retire, "test", utc_now())
                put_record(actor, mark.key(), mark.to_bytes())
            for _ in range(times):
                Collector(actor, store._index, store._executor, store.durability, 0).run(dry_run=False)

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


def unretiring(actor: Any) -> Any:
    """Bring back whatever was let go of; return the nodes that came back."""
    with opened(actor) as store:
        return [one.node for one in store.unretire().brought_back]


def retiring(node: str) -> Play:
    """Let go of a node."""

    def play(actor: Any) -> None:
        with opened(actor) as store:
            store.retire(node, "test")

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
        By name; those of writers, readers, pinners and of who unretires begin so.
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
            elif name.startswith("unretirer"):
                kept |= {*outcome.value} - self.let_go
            elif name.startswith("writer"):
                saved.append(outcome.value)
        # Let go of or not: what is shown is whole.
        with opened(backend, "r") as store:
            kept |= self.start.snapshots.keys() & {one.node for one in store.states(records=False)}
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


class Meanwhile:
    """A backend that does something once, right before or after an operation on some key."""

    def __init__(
        self, inner: MemoryBackend, name: str, prefix: str, do: Callable[[], Any], *, after: bool
    ) -> None:
        self.inner = inner
        self.durable = inner.durable
        self.watched = name, prefix
        self.do: Callable[[], Any] | None = do
        self.after = after

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.inner, name)
        if name != self.watched[0]:
            return real

        def operation(key: str, *rest: Any) -> Any:
            if self.do is None or not key.startswith(self.watched[1]):
                return real(key, *rest)
            do, self.do = self.do, None
            if not self.after:
                do()
                return real(key, *rest)
            result = real(key, *rest)
            do()
            return result

        return operation


# Handles that are at work already -----------------------------------------------------------------------


def at_work(*names: str) -> Callable[[], Scene]:
    """A writer that goes on, a compactor and a collector on a run of which the middle is let go of.

    Their handles are open before anything happens, and no Zarr metadata is written, which nothing here reads:
    that leaves few enough operations for every order of three of them.

    The compactor may find that a state lacks an object, if the writer lets go of that very state: a collector
    without grace took the object before the record was there, and the writer has not noticed yet.
    """
    begun = start(4, (1, 2))

    def make() -> Scene:
        backend = MemoryBackend.fresh(begun.objects)
        return Scene(
            backend,
            {name: _ready(name, backend, begun.nodes[-1]) for name in names},
            lambda outcomes: Meeting(begun, {}).check(backend, _but_for_disowned(backend, outcomes)),
        )

    return make


def _but_for_disowned(backend: MemoryBackend, outcomes: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """Return the outcomes without a compactor's error about an object of a state not acknowledged."""
    error = getattr(outcomes.get("compactor"), "error", None)
    if isinstance(error, CorruptionError) and error.key is not None:
        marks = (RetiredRecord.from_bytes(backend.get(key), key=key) for key in backend.list(keys.RETIRED))
        disowned = {mark.node for mark in marks if mark.reason.startswith("not acknowledged")}
        stored = [key for key in backend.list(keys.NODES) if keys.parse_node_key(key).node in disowned]
        edges = {read_node(key, backend.get(key)).edge.id for key in stored}
        if keys.parse_data_key(error.key).edge in edges:
            return {name: outcome for name, outcome in outcomes.items() if name != "compactor"}
    return dict(outcomes)


def _ready(name: str, backend: MemoryBackend, at: str) -> Play:
    switch = Around(backend)
    store = lcstore.open(switch, threads=1)
    store.steps()
    if name == "writer":
        store.resume(at)

    def play(actor: Any) -> Any:
        switch.inner = actor
        if name == "compactor":
            return store.compact()
        if name == "collector":
            return Collector(switch, store._index, store._executor, store.durability, 0).run(dry_run=False)
        return store.save(60, state(60)).node

    return play
