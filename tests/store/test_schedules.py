"""Single schedules of saving, compacting, pinning and collecting, each of which could lose something."""

from __future__ import annotations

import itertools
from contextlib import suppress

import numpy as np
import pytest
from crash_histories import opened
from kit import Snapshot
from meetings import Meanwhile, start, state

from lcstore import ConflictError, StorageError, UnknownOutcomeError
from lcstore.format import keys, markkeys
from lcstore.format.marks import CondemnedRecord
from lcstore.format.records import utc_now
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, Fault, FaultBackend, Operation

pytestmark = pytest.mark.unprotected


def collect(backend: MemoryBackend) -> None:
    with opened(backend) as store:
        store.collect(grace=0)


def is_record(operation: Operation) -> bool:
    return operation.name == "put" and operation.key.startswith(("nodes/", "edges/"))


def states_of(backend: MemoryBackend) -> dict[str, Snapshot]:
    with opened(backend, "r") as store:
        return {found.node: Snapshot.of(store.restore(found.node)) for found in store.states(records=False)}


def sound(backend: MemoryBackend) -> bool:
    with opened(backend) as store:
        return store.verify(level="checksum").ok


@pytest.mark.parametrize("objects", [1, 2, 3])
def test_a_save_of_which_some_objects_were_taken_is_saved_again(objects):
    backend = MemoryBackend.fresh(start(1).objects)
    count = itertools.count(1)

    def take() -> None:
        if next(count) < objects:
            meanwhile.do = take
        else:
            collect(backend)

    meanwhile = Meanwhile(backend, "put", "data/", take, after=True)
    with opened(meanwhile) as store:
        node = store.save(5, state(5)).node
    assert next(count) == objects + 1
    assert states_of(backend)[node].tensors == Snapshot.of(state(5)).tensors
    collect(backend)
    assert sound(backend)


def test_an_open_commit_of_which_the_objects_were_taken_is_not_built_upon():
    backend = MemoryBackend.fresh(start(1).objects)
    faulty = FaultBackend(backend, {is_record: Fault("lost_request", times=2)})
    with opened(faulty) as store:
        with pytest.raises(UnknownOutcomeError):
            store.save(5, state(5))
        collect(backend)
        info = store.save(6, state(6))
    assert info.kind == "anchor"
    assert states_of(backend)[info.node].tensors == Snapshot.of(state(6)).tensors
    collect(backend)
    assert sound(backend)


def test_an_open_commit_of_which_the_base_was_collected_is_not_built_upon():
    begun = start(3, fork=True)
    backend = MemoryBackend.fresh(begun.objects)
    faulty = FaultBackend(backend, {is_record: Fault("lost_request", times=2)})
    with opened(faulty) as store:
        store.resume(begun.nodes[1])
        with pytest.raises(UnknownOutcomeError):
            store.save(50, state(50))
        with opened(backend) as other:
            other.retain("LatestN(2)")
            other.compact()
            other.collect(grace=0)
        info = store.save(60, state(60))
    assert info.kind == "anchor"
    assert states_of(backend)[info.node].tensors == Snapshot.of(state(60)).tensors
    collect(backend)
    assert sound(backend)


def test_collecting_goes_on_after_a_save_whose_base_is_gone():
    begun = start(3, fork=True)
    backend = MemoryBackend.fresh(begun.objects)
    with opened(backend) as store:
        store.resume(begun.nodes[1])
        with opened(backend) as other:
            other.retain("LatestN(2)")
            other.compact()
            other.collect(grace=0)
            other.collect(grace=0)
        assert begun.nodes[1] not in {name.split("-")[3] for name in backend.list(keys.NODES)}
        assert store.save(50, state(50)).kind == "anchor"
    collect(backend)
    assert sound(backend)


def test_a_state_whose_exact_value_was_collected_is_not_pinned():
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        store.save(0, state(0))
        exact = store.save(1, state(1), exact=True).node
        store.save(2, state(2))
        store.retire(exact)
        store.collect(grace=0)
        with pytest.raises(ConflictError):
            store.pin(exact)
        assert store.steps() == [0, 2]


def once_pinned(backend):
    """Return what tells listings after a pin is there."""
    return lambda asked: asked.name == "list" and "names/pin" in "".join(backend.list("names"))


@pytest.mark.parametrize("kind", ["eio", "crash_before"])
def test_a_pin_that_fails_does_not_stay_on_what_is_no_more_whole(kind):
    """It was listed again, and could not be read."""
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        exact = [store.save(step, state(step), exact=step == 1).node for step in range(3)][1]
        store.retire(exact)
        store.collect(grace=0)
    assert exact in {keys.parse_node_key(key).node for key in backend.list("nodes")}

    with opened(FaultBackend(backend, {once_pinned(backend): kind})) as store, pytest.raises(ConflictError):
        store.pin(exact)
    with opened(backend) as store:
        assert store.steps() == [0, 2]
        assert store.verify("restore").ok


def test_a_pin_that_fails_is_taken_away():
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        first = next(iter([store.save(step, state(step)).node for step in range(3)]))

    with opened(FaultBackend(backend, {once_pinned(backend): "eio"})) as store, pytest.raises(StorageError):
        store.pin(first)
    with opened(backend) as store:
        assert store.retire(first).node == first
        assert store.steps() == [1, 2]


def test_a_pin_that_is_set_again_and_fails_stays():
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        first = next(iter([store.save(step, state(step)).node for step in range(3)]))
        store.pin(first)

    class Nth:
        """The listing of some number."""

        def __init__(self, number):
            self.left = number

        def __call__(self, asked):
            self.left -= asked.name == "list"
            return asked.name == "list" and self.left == -1

    for number in range(30):
        faulty = FaultBackend(backend, {Nth(number): "eio"})
        with opened(faulty) as store, suppress(StorageError):
            store.pin(first)
        with opened(backend) as store:
            assert store.retain("latest:1").kept == (0, 2)


def test_a_pin_that_is_set_again_and_again_leaves_two_records():
    """The one that is new, and the one before it."""
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        first = next(iter([store.save(step, state(step)).node for step in range(2)]))
        for _ in range(4):
            store.pin(first)
            store.pin(first, by="another")
    assert [asked.seq for asked in map(markkeys.parse_tag_key, sorted(backend.list("names")))] == [2, 3, 2, 3]
    assert states_of(backend).keys() == {keys.parse_node_key(key).node for key in backend.list("nodes")}


def test_a_pin_of_which_the_record_is_damaged_is_set_anew():
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        first = next(iter([store.save(step, state(step)).node for step in range(2)]))
        store.pin(first)
        (key,) = backend.list("names")
        held = backend.get(key)
        backend.delete(key)
        backend.put(key, held[:-2])
        store.pin(first)
        assert len(backend.list("names")) == 2
        store.repair()
        assert store.retain("latest:1").kept == (0, 1)


def test_a_shortcut_of_which_objects_were_taken_is_not_relied_on():
    begun = start(4, (1, 2))
    backend = MemoryBackend.fresh(begun.objects)
    # The compactor dies when its record is there; a collector took what it had written by then.
    meanwhile = Meanwhile(backend, "put", "edges/", lambda: collect(backend), after=False)
    faulty = FaultBackend(meanwhile, {is_record: "crash_after"})
    with pytest.raises(Crash), opened(faulty) as store:
        store.compact()
    assert backend.list(keys.EDGES)
    collect(backend)
    collect(backend)
    kept = {node: begun.snapshots[node] for node in (begun.nodes[0], begun.nodes[3])}
    assert states_of(backend) == kept
    assert sound(backend)


def test_compaction_goes_on_where_a_collector_takes_what_it_writes():
    begun = start(4, (1, 2))
    backend = MemoryBackend.fresh(begun.objects)
    for prefix in ("data/", "edges/"):
        for after in (False, True):
            meanwhile = Meanwhile(backend, "put", prefix, lambda: collect(backend), after=after)
            with opened(meanwhile) as store:
                store.compact()
    collect(backend)
    assert states_of(backend) == {node: begun.snapshots[node] for node in (begun.nodes[0], begun.nodes[3])}
    assert sound(backend)


def test_a_way_that_needs_a_condemned_array_is_not_relied_on():
    backend = MemoryBackend.fresh()
    with opened(backend, grace=0) as store:
        store.save(0, state(0))
        middle = store.save(1, state(1) | {"mask": np.arange(4) + 1}).node
        last = store.save(2, state(4) | {"mask": np.arange(4) + 1}).node
        seen = Snapshot.of(store.restore(last))
        store.retire(middle)
        assert store.compact().added
        edge = store._index.record(middle).edge.id
    shortcuts = [keys.parse_edge_key(key).edge for key in backend.list(keys.EDGES)]
    # One collector means to delete the shortcuts, another (relying on them) what the other way needs.
    for mark in (
        *(CondemnedRecord(one, None, markkeys.WHOLE_EDGE, utc_now()) for one in shortcuts),
        CondemnedRecord(edge, middle, "plain-int64.set", utc_now()),
    ):
        backend.put(mark.key(), mark.to_bytes())
    before = set(backend.list(keys.DATA))
    collect(backend)
    assert set(backend.list(keys.DATA)) == before
    assert states_of(backend)[last] == seen


@pytest.mark.parametrize("reads", [1, 2])
def test_two_collectors_may_sweep_the_same(reads):
    begun = start(2, fork=True)
    backend = MemoryBackend.fresh(begun.objects)
    with opened(backend) as store:
        store.retire(begun.nodes[1])
    count = itertools.count(1)

    def meet() -> None:
        if next(count) < reads:
            meanwhile.do = meet
        else:
            collect(backend)

    meanwhile = Meanwhile(backend, "get", "retired/", meet, after=False)
    meanwhile.durable = True  # what is relied on is written once more there
    with opened(meanwhile) as store:
        store.collect(grace=0)
    assert next(count) == reads + 1
    collect(backend)
    assert not backend.list(keys.RETIRED)
    assert set(states_of(backend)) == set(begun.nodes) - {begun.nodes[1]}
    assert sound(backend)
