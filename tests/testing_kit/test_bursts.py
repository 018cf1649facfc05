"""Bursts of refusals, objects that are slow to appear, and plans that mix faults by a seed."""

from __future__ import annotations

import itertools

import pytest
from kit import Reluctant, check_store, seeded_plan
from runs import base, opened, state

import lcstore
from lcstore.errors import StorageError, UnknownOutcomeError
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Fault, FaultBackend

pytestmark = pytest.mark.once


def refused(call):
    try:
        call()
    except StorageError as error:
        assert not isinstance(error, UnknownOutcomeError)
        return True
    return False


def test_a_burst_refuses_the_next_operations_of_any_sort():
    backend = FaultBackend(MemoryBackend.fresh({"a": b"a"}), {1: Fault("busy", count=4)})
    calls = [
        lambda: backend.put("b", b"b"),
        lambda: backend.put("c", b"c"),
        lambda: backend.get("a"),
        lambda: backend.list(""),
        lambda: backend.delete("a"),
        lambda: backend.put("d", b"d"),
    ]
    assert [refused(call) for call in calls] == [False, True, True, True, True, False]
    assert sorted(backend.list("")) == ["a", "b", "d"]
    assert [(operation.number, kind) for operation, kind in backend.struck] == [(1, "busy")]


def test_a_burst_ends_with_the_process():
    backend = FaultBackend(MemoryBackend.fresh(), {0: Fault("busy", count=99)})
    assert refused(lambda: backend.put("a", b"a"))
    backend.revive()
    backend.put("a", b"a")


def test_a_reluctant_object_can_be_read_in_the_end():
    objects = {"a": b"a", "b": b"b"}
    backend = FaultBackend(MemoryBackend.fresh(objects), {Reluctant("get", 2): Fault("eio", times=None)})
    order = ["a", "b", "a", "a", "b", "b", "a"]
    outcomes = [refused(lambda key=key: backend.get(key)) for key in order]
    assert outcomes == [True, True, True, False, True, False, False]
    backend.put("c", b"c")


def test_plans_are_by_seed_and_of_every_kind():
    assert seeded_plan(3) == seeded_plan(3)
    assert seeded_plan(3) != seeded_plan(4)
    plans = [seeded_plan(seed, operations=200, rate=0.1, longest=3) for seed in range(50)]
    faults = list(itertools.chain.from_iterable(plan.values() for plan in plans))
    assert {fault.kind for fault in faults} == {"eio", "busy", "lost_reply", "lost_request"}
    assert {fault.count for fault in faults} == {1, 2, 3}
    assert 0.08 < len(faults) / (50 * 200) < 0.12
    assert seeded_plan(0, rate=0) == {}


@pytest.mark.parametrize("seed", range(20))
def test_saves_get_through_any_weather(seed):
    """Whoever tries again until it works has saved, and has saved what it meant to."""
    start = base(2)
    backend, model = start.backend(), start.model
    faulty = FaultBackend(backend, seeded_plan(seed, operations=400, rate=0.08) | {0: Fault("busy")})

    def insist(call):
        for _ in range(50):
            try:
                return call()
            except StorageError:
                continue
        raise AssertionError("fails for ever")

    with insist(lambda: lcstore.open(faulty, threads=1)) as store:
        insist(store.resume)
        for number in range(10, 14):
            info = insist(lambda number=number: store.save(number, state(number)))
            with opened(backend, "r") as fresh:
                known = model.acknowledge(fresh, info.node)
                assert fresh.restore(info.node)["epoch"] == number
            assert known.step == number
    assert faulty.struck
    check_store(backend, model, settled=False)
