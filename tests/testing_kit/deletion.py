"""A writer that goes on from a state while that is retired and collected, and collectors that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from kit import Scene, StoreModel
from kit.around import Around
from kit.invariants import lost
from runs import opened, state

import lcstore
from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import StoreRecord, utc_now
from lcstore.index.contents import Contents, read_contents
from lcstore.maintain.collect import Collector
from lcstore.maintain.sweeping import loose_marks
from lcstore.maintain.verdict import Verdict, condemnable, judge
from lcstore.storage.backend import Backend
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Fault, FaultBackend

Collect = Callable[[Backend], None]


def small(number: int) -> dict[str, object]:
    """A state of few objects: each is an operation to be interleaved."""
    return {"model": {"a.weight": state(number)["model"]["a.weight"]}, "epoch": number}


def retire(backend: Backend, node: str) -> None:
    mark = RetiredRecord(node=node, reason="test", created=utc_now())
    backend.put(mark.key(), mark.to_bytes())


def collector_of(kind: type[Collector]) -> Collect:
    """Collecting, as a process of its own does it."""

    def collect(backend: Backend) -> None:
        with opened(backend) as store:
            kind(backend, store._index, store._executor, store.durability, 0).run(dry_run=False)

    return collect


@dataclass(frozen=True)
class Forked:
    """A store without grace, with two states that go on from one; neither run's latest is `leaf`."""

    objects: dict[str, bytes]
    model: StoreModel
    leaf: str

    def backend(self) -> MemoryBackend:
        return MemoryBackend.fresh(self.objects)


def forked(**options: Any) -> Forked:
    backend, model = MemoryBackend.fresh(), StoreModel()
    backend.put(keys.STORE_KEY, StoreRecord(grace_seconds=0).to_bytes())
    with opened(backend, **options) as store:
        first = store.save(0, small(0)).node
        leaf = store.save(1, small(1)).node
        store.resume(first)
        last = store.save(2, small(2)).node
        for node in (first, leaf, last):
            model.acknowledge(store, node)
    return Forked(backend.snapshot(), model, leaf)


def meeting(start: Forked, collect: Collect, *, resumed: bool, **options: Any) -> Callable[[], Scene]:
    """A writer that goes on from a leaf, and a collector that retires the leaf and collects it.

    With `resumed` the writer stands on the leaf before anything else happens; otherwise it resumes meanwhile.
    """

    def make() -> Scene:
        backend = start.backend()
        switch = Around(backend)
        store = lcstore.open(switch, threads=1, **options)
        if resumed:
            store.resume(start.leaf)

        def write(actor):
            switch.inner = actor
            with store:
                if not resumed:
                    store.resume(start.leaf)
                return store.save(10, small(10)).node

        def clean(actor):
            retire(actor, start.leaf)
            collect(actor)

        def check(outcomes):
            assert outcomes["collector"].error is None, outcomes
            model = deepcopy(start.model)
            model.retire([start.leaf])
            writer = outcomes["writer"]
            with opened(backend, "r") as store:
                if writer.error is None:
                    assert model.acknowledge(store, writer.value).step == 10
                else:  # the leaf was gone before it had been read
                    assert not resumed, writer.error
                    assert isinstance(writer.error, NotFoundError | CorruptionError), writer.error
                assert not (problems := lost(store, model)), problems

        return Scene(backend, {"writer": write, "collector": clean}, check)

    return make


def lost_to_damaged_reads(start: Forked, collect: Collect) -> list[str]:
    """Collect while one read of each record in turn is damaged; return what was lost."""
    found = []
    for key in start.backend().list(keys.NODES):
        backend = start.backend()
        faulty = FaultBackend(backend, {lambda op, key=key: op.key == key: Fault("bit_flip", times=None)})
        try:
            collect(faulty)
        except CorruptionError:
            continue
        finally:
            with opened(backend, "r") as store:
                found += lost(store, start.model)
    return found


class NeverLooksAgain(Collector):
    """Deletes what it condemned, whatever was committed since."""

    def _judged(self, before: Contents | None) -> tuple[Contents, Verdict]:
        if before is None:
            return super()._judged(None)
        before = replace(before, condemned=self.backend.list(keys.CONDEMNED))
        return before, judge(before, self.index.layout, self.durability)


class ByAgeAlone(Collector):
    """Deletes what was not needed when it looked, condemning nothing."""

    def run(self, *, dry_run: bool):
        contents, verdict = self._judged(None)
        scopes = list(condemnable(contents, verdict, set(contents.data)))
        self._delete(contents, scopes)
        self._delete_all("marks", loose_marks(contents, scopes))


class CondemnsLate(Collector):
    """Condemns what it is about to delete, after it has looked for the last time."""

    def run(self, *, dry_run: bool):
        contents, verdict = self._judged(None)
        scopes = list(condemnable(contents, verdict, set(contents.data)))
        contents = read_contents(self.backend, contents)
        free = set(
            condemnable(contents, judge(contents, self.index.layout, self.durability), set(contents.data))
        )
        scopes = [scope for scope in scopes if scope in free]
        self._condemn(scopes)
        self._delete(contents, scopes)
