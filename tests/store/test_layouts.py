"""Layouts that no record names are collected, beside writers that store and name them."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest
from kit import Scene, ScheduleError, explore
from meetings import collecting, saving, start

import lcstore
from lcstore.format import keys
from lcstore.format.layoutfile import layout_object
from lcstore.index.standing import is_taken_away
from lcstore.storage.memory import MemoryBackend
from lcstore.write import writer

pytestmark = pytest.mark.once


def state(number: int, tensors: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    return {f"{place}.weight": rng.standard_normal((4, 8)).astype(np.float32) for place in range(tensors)}


def stored(backend: MemoryBackend) -> set[str]:
    return {keys.parse_layout_key(key) for key in backend.list(keys.LAYOUTS)}


def named(store: lcstore.Store) -> set[str]:
    return {store._index.record(node).layout for node in store._index.refresh(full=True).nodes}


def test_layouts_that_no_record_names_are_deleted():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        for step in range(12):
            store.save(step, state(step, tensors=step + 1))
        assert len(stored(backend)) == 12
        store.retain("latest:1")
        store.compact()
        while store.collect().deleted_objects:
            pass
        assert stored(backend) == named(store)
        assert len(named(store)) < 12
        assert store.restore()["11.weight"].shape == (4, 8)
        assert not [key for key in backend.list(keys.CONDEMNED) if key.endswith("-layout.json")]
        assert store.verify("restore").ok


def test_a_layout_is_stored_once_for_the_saves_that_follow_each_other():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        for step in range(4):
            store.save(step, state(step))
    assert len(stored(backend)) == 1


def test_a_young_layout_of_no_record_waits_for_its_grace():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=3600) as store:
        store.save(0, state(0))
        layout = store._index.layout(*stored(backend))
        digest, data = layout_object(layout)
        backend.put(keys.layout_key(digest), data)
        assert store.collect(dry_run=True).condemned == store.collect().condemned == 0
        now = backend.created(keys.layout_key(digest))
        with patch("lcstore.maintain.collect.storage_clock", lambda _: now + 3600):
            found = store.collect()
            assert (found.condemned, found.waiting, found.deleted_objects) == (1, 1, 0)
        assert digest in stored(backend)
        with patch("lcstore.maintain.collect.storage_clock", lambda _: now + 7300):
            found = store.collect()
            assert (found.condemned, found.deleted_objects) == (0, 1)
            assert found.deleted_bytes == len(data)
        assert digest not in stored(backend)
        assert not backend.list(keys.CONDEMNED)


def test_a_torn_layout_of_no_record_is_no_damage_and_is_deleted():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0, durability="none") as store:
        store.save(0, state(0))
        (digest,) = stored(backend)
        torn, data = layout_object(store._index.layout(digest))
        backend.put(keys.layout_key(torn), data[:-9])
        report = store.verify("restore")
        assert report.ok
        assert [finding.key for finding in report.findings if finding.check == "orphan"] == [
            keys.layout_key(torn)
        ]
        assert not store.repair(dry_run=False).actions
        assert store.collect().deleted_objects == 1
        assert stored(backend) == {digest}
        backend.put(keys.layout_key(digest), data[:-9])
        assert not store.verify().ok


def test_the_second_copy_of_a_layout_goes_with_it():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0, durability="none") as store:
        store.save(0, state(0))
        (digest,) = stored(backend)
        idle, data = layout_object(store._index.layout(digest))
        backend.put(keys.layout_key(idle), data)
        for one in (digest, idle):
            backend.put(keys.copy_key(one), backend.get(keys.layout_key(one)))
        assert store.collect().deleted_objects == 1
        assert backend.list(keys.COPIES) == [keys.copy_key(digest)]
        assert store.verify("restore").ok


def test_equal_layouts_are_stored_under_names_of_their_own():
    """So no writer ever stores again what a collector deletes."""
    backend = MemoryBackend.fresh()
    for _ in range(3):
        with lcstore.open(backend) as store:
            store.save(0, state(0))
    assert len(stored(backend)) == 3


def test_a_save_whose_layout_is_condemned_before_its_record_is_stored_is_made_anew():
    """The collector runs between the two, and takes the layout for one of an interrupted save."""
    backend = MemoryBackend.fresh()
    taken = []

    class Collecting:
        def __getattr__(self, name):
            return getattr(backend, name)

        def put(self, key, data):
            if key.startswith(keys.NODES) and len(stored(backend)) == 2 and not taken:
                taken.extend(stored(backend))
                with lcstore.open(backend, "r+") as other:
                    other.collect()
            backend.put(key, data)

    with lcstore.open(backend, grace=0) as other:
        other.save(0, state(0))
    with lcstore.open(Collecting()) as store:
        info = store.save(1, state(1))
        assert taken
        assert stored(backend) - set(taken)
        assert store._index.record(info.node).layout in stored(backend) - set(taken)
        store.save(2, state(2))
    with lcstore.open(backend) as store:
        while store.collect().deleted_objects:
            pass
        assert store.verify("restore").ok
        assert store.restore(2)["0.weight"].shape == (4, 8)


def scene(collector: str = "collector", **options: str) -> Scene:
    """A writer that begins a run, whose layout a collector may take for that of an interrupted save."""
    begun = start(1)
    backend = MemoryBackend.fresh(begun.objects)

    def check(outcomes):
        assert outcomes[collector].error is None, outcomes
        assert outcomes["writer"].error is None, outcomes
        with closing(lcstore.open(backend, "r")) as store:
            assert store.restore(outcomes["writer"].value)["a.weight"].shape == (4, 8)

    return Scene(backend, {"writer": saving(**options), collector: collecting()}, check)


def test_no_order_of_a_writer_and_a_collector_loses_a_layout():
    found = explore(scene, 60, samples=60)
    assert found.schedules + found.cut_short + found.sampled == 120


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_no_order_of_a_writer_and_a_collector_loses_a_layout_at_all():
    found = explore(scene, 4_000, samples=1_000)
    assert found.complete or found.sampled == 1_000


def test_a_writer_that_does_not_look_at_its_layout_is_found_out():
    """The test above can fail: without that look some order loses the layout."""

    def careless(listing, edge, objects, new_layouts=()):
        return is_taken_away(listing, edge, objects)

    with (
        patch.object(writer, "is_taken_away", careless),
        pytest.raises(ScheduleError, match="a layout that a record needs is missing"),
    ):
        explore(partial(scene, durability="none"), 2_000)
