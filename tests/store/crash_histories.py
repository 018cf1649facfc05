"""Small stores with a past, and what each of their states must give back, for tests that break things."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from kit import Snapshot
from kit.actors import alone, deterministic
from kit.around import Around

import lcstore
from lcstore.format import keys, markkeys
from lcstore.storage.backend import Backend
from lcstore.storage.memory import MemoryBackend


def state(number: int) -> dict[str, Any]:
    """A state of a run: weights that move, some that do not, moments, an exact table that stays."""
    rng = np.random.default_rng(5)
    weights = rng.standard_normal((6, 16)).astype(np.float32)
    still = rng.standard_normal((4, 4)).astype(np.float32)
    for _ in range(number):
        weights = weights + rng.standard_normal(weights.shape).astype(np.float32) * np.float32(1e-3)
    # Plain, and moved so little that it is added to.
    average = np.random.default_rng(7).standard_normal(700) * (1 + number * 1e-12)
    return {
        "model": {"a.weight": weights, "b.weight": still, "bn.running_mean": weights[0] * 2},
        "average": average,
        "optim": {"state": {0: {"step": np.float32(number), "exp_avg": weights * np.float32(1e-3)}}},
        "table": np.arange(12) * 3,
        "epoch": number,
    }


@contextmanager
def opened(backend: Backend, mode: Any = "a", **options: Any) -> Iterator[lcstore.Store]:
    """A handle as a process of its own has it."""
    with lcstore.open(backend, mode, threads=1, **options) as store:
        yield store


@contextmanager
def quick(seed: int = 0) -> Iterator[Any]:
    """Neither chance nor threads: the same run gives the same bytes under the same names."""
    with deterministic(seed) as anew, alone():
        yield anew


@dataclass
class Past:
    """A store, and what its states give back.

    Attributes
    ----------
    objects
        All that is stored.
    snapshots
        What every node that is not retired restores to.
    retired
        Nodes that were let go of, and may still be there.
    """

    objects: dict[str, bytes]
    snapshots: dict[str, Snapshot]
    retired: set[str]

    def backend(self) -> MemoryBackend:
        """Return the store anew."""
        return MemoryBackend.fresh(self.objects)


def past_of(backend: MemoryBackend) -> Past:
    """Return what a store holds."""
    with opened(backend, "r") as store:
        nodes = [state.node for state in store.states(records=False)]
        snapshots = {node: Snapshot.of(restored(store, node)) for node in nodes}
        retired = {markkeys.parse_retired_key(k) for k in backend.list(keys.RETIRED)}
    return Past(
        backend.snapshot(), snapshots, {name.node for name in retired if name.what == markkeys.WHOLE_STATE}
    )


def restored(store: lcstore.Store, node: str) -> Any:
    """Return a state, without the moments where those were let go of."""
    stripped = store._index.refresh(full=True) and store._index.marks.stripped.get(node)
    return store.restore(node, names="model/**" if stripped else None)


def fresh() -> MemoryBackend:
    """A few saves."""
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        for step in range(4):
            store.save(step, state(step), exact=step == 1, tags=["first"] if step == 0 else ())
        store.retire(2, "a bad one")
    return backend


def deep() -> MemoryBackend:
    """Many saves, the past compacted and collected, then more: retired ones, stripped ones, exact ones."""
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        for step in range(16):
            store.save(step, state(step), exact=step % 5 == 3)
        store.retain("LatestN(6) | EveryNSteps(4)")
        store.compact()
        store.collect(grace=0)
        for step in range(16, 25):
            store.save(step, state(step), exact=step == 20)
        store.retain("LatestN(5) | EveryNSteps(4) | Strip('optim/**', after=LatestN(2))")
        store.pin(24, "me")
    return backend


def forked() -> MemoryBackend:
    """Two runs that went on from older steps, one of them from one that is retired now; steps saved again."""
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as one:
        for step in range(6):
            one.save(step, state(step))
        with opened(backend) as two, opened(backend) as three:
            two.resume(2)
            three.resume(4)
            for step in range(3, 7):
                two.save(step, state(step + 20), exact=step == 5)
                three.save(step + 2, state(step + 40))
        one.save(6, state(6), tags=["first"])
        bad = sorted(node.node for node in one.states(records=False) if node.step in (3, 4))
        for node in bad:
            one.retire(node)
    return backend


PASTS = {"fresh": fresh, "deep": deep, "forked": forked}


@dataclass
class Memory:
    """What was restored before: the same path over the same bytes gives the same state.

    A restore that reads only what an earlier one of the same node read, over the same path, need not be run.
    """

    seen: dict[object, tuple[dict[str, bytes], Snapshot]] = field(default_factory=dict)
    restores: int = 0

    def look(self, backend: MemoryBackend, node: str, store: lcstore.Store) -> Snapshot:
        """Return what a node restores to; `store` is a handle that was just opened."""
        index = store._index
        objects = backend._space.objects
        how = (node, index.situation(node))
        if how in self.seen:
            read, snapshot = self.seen[how]
            if all(objects.get(key, (None,))[0] == data for key, data in read.items()):
                return snapshot
        self.restores += 1
        reads = Reads(backend)
        with opened(reads, "r") as fresh:
            snapshot = Snapshot.of(restored(fresh, node))
        self.seen[how] = ({key: objects[key][0] for key in reads.keys}, snapshot)
        return snapshot


class Reads(Around):
    """A backend that remembers what is read of it."""

    def __init__(self, inner: Backend) -> None:
        super().__init__(inner)
        self.keys: set[str] = set()

    def get(self, key: str, *range_: int | None) -> bytes:
        self.keys.add(key)
        return self.inner.get(key, *range_)
