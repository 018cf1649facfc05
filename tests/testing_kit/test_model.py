"""The model says what must be there, and the invariants notice each way of breaking a promise."""

from __future__ import annotations

import numpy as np
import pytest
from kit import BrokenStoreError, Chronicle, Snapshot, StoreModel, check_store, problems, refuses_to_go_on
from runs import base, opened, state

from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.once


@pytest.fixture
def start():
    return base(3)


def test_a_snapshot_is_of_every_bit():
    tree = state(1) | {"nan": float("nan"), "flag": True}
    snapshot = Snapshot.of(tree)
    assert snapshot == Snapshot.of(state(1) | {"nan": float("nan"), "flag": True})
    assert snapshot.differences(snapshot) == []
    assert snapshot.differences(Snapshot.of(tree | {"flag": 1})) == ["leaves"]
    assert "structure" in snapshot.differences(Snapshot.of(tree | {"more": 1}))
    bits = tree["model"]["a.weight"].view(np.uint32)
    bits[3, 4] ^= 1
    assert snapshot.differences(Snapshot.of(tree)) == ["model/a.weight"]
    tree["model"]["a.weight"] = tree["model"]["a.weight"].astype(np.float64)
    assert snapshot.differences(Snapshot.of(tree)) == ["model/a.weight"]


def test_minus_zero_is_another_value():
    one, other = ({"w": np.array([[value]], np.float32)} for value in (0.0, -0.0))
    assert Snapshot.of(one).differences(Snapshot.of(other)) == ["w"]


def test_a_sound_store_agrees_with_its_model(start):
    check_store(start.backend(), start.model)
    assert start.model.steps() == [0, 1, 2]
    assert start.model.latest().step == 2


def test_no_store_is_right_where_nothing_was_acknowledged(start):
    assert problems(MemoryBackend.fresh(), StoreModel()) == []
    with pytest.raises(BrokenStoreError, match="there is no store"):
        check_store(MemoryBackend.fresh(), start.model)


@pytest.mark.parametrize("folder", ["data", "nodes", "layouts"])
def test_each_lost_object_is_noticed(start, folder):
    for key in start.backend().list(folder):
        damaged = start.backend()
        damaged.delete(key)
        assert problems(damaged, start.model), key


def test_a_flipped_bit_is_noticed(start):
    backend = start.backend()
    for key in backend.list("data"):
        data = bytearray(backend.get(key))
        data[len(data) // 2] ^= 4
        backend.put(key, data)
        assert problems(backend, start.model), key


def test_states_that_nobody_saved(start):
    backend = start.backend()
    with opened(backend) as store:
        store.save(7, state(7))
    assert problems(backend, start.model, settled=False) == []
    found = problems(backend, start.model)
    assert any("nobody saved" in problem for problem in found)
    assert any("should not be: [7]" in problem for problem in found)
    with opened(backend, "r") as store:
        assert [known.step for known in start.model.adopt(store)] == [7]
        assert start.model.adopt(store) == []
    check_store(backend, start.model)


def test_a_state_that_landed_unacknowledged_must_restore_too(start):
    backend = start.backend()
    with opened(backend) as store:
        edge = store._index.record(store.save(7, state(7)).node).edge.id
    backend.delete_many(backend.list(keys.edge_folder(edge)))
    assert any("does not restore" in problem for problem in problems(backend, start.model, settled=False))


def test_other_bits_are_noticed(start):
    with opened(start.backend(), "r") as store:
        known = start.model.known[store.info(1).node]
    start.model.change(known.node, Snapshot.of(state(9)))
    found = problems(start.backend(), start.model)
    assert len(found) == 1
    assert "restores to other bits: leaves" in found[0]


def test_what_is_retired_must_not_be_listed_and_what_is_in_doubt_may(start):
    first = next(iter(start.model.known))
    start.model.doubt([first])
    assert problems(start.backend(), start.model) == []
    assert start.model.steps() == [1, 2]
    start.model.retire([first])
    assert problems(start.backend(), start.model) == ["steps listed that should not be: [0]"]
    start.model.pinned.add(first)
    assert problems(start.backend(), start.model) == []
    assert start.model.steps() == [0, 1, 2]


def test_tags_must_be_where_they_were_put(start):
    backend = start.backend()
    with opened(backend) as store:
        start.model.acknowledge(store, store.save(5, state(5), tags=["good"]).node)
    check_store(backend, start.model)
    backend.delete_many(backend.list("names"))
    assert any("tag 'good'" in problem for problem in problems(backend, start.model))


def test_a_store_that_cannot_go_on_says_why(start):
    assert refuses_to_go_on(start.backend(), 100, state(8)) == []
    assert refuses_to_go_on(MemoryBackend.fresh(), 100, state(8)) == []
    backend = start.backend()
    backend.delete_many(backend.list("layouts"))
    assert "cannot be saved to again" in refuses_to_go_on(backend, 100, state(8))[0]


def test_a_chronicle_remembers_every_moment(start):
    chronicle = Chronicle()
    for moment, known in enumerate(start.model.known.values(), 1):
        chronicle.model.known[known.node] = known
        chronicle.note(10 * moment)
    chronicle.model.retire([next(iter(start.model.known))])
    chronicle.note(40)
    assert [chronicle.at(moment).steps() for moment in (0, 9, 10, 29, 35, 40, 99)] == [
        [], [], [0], [0, 1], [0, 1, 2], [1, 2], [1, 2],
    ]  # fmt: skip
