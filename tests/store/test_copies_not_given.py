"""Where the target does not give a second copy for a moment: nothing is taken for lost, and nothing goes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from states import same

import lcstore
from lcstore import CorruptionError, StorageError
from lcstore.check.verify import verify
from lcstore.copying.copy import copy_store
from lcstore.format import keys
from lcstore.repair.repair import repair
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Fault, FaultBackend

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore::lcstore.FallbackWarning")]


def state(step: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    return {"model": {"weight": weight + np.float32(1e-3 * step)}, "n": step}


@pytest.fixture
def filled() -> MemoryBackend:
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0, threads=1) as store:
        for step in range(4):
            store.save(step, state(step))
    return backend


def flip(backend: MemoryBackend, key: str) -> None:
    data = bytearray(backend.get(key))
    data[len(data) // 2] ^= 1
    backend.delete(key)
    backend.put(key, bytes(data))


def failing(backend: MemoryBackend, key: str, times: int | None = None) -> FaultBackend:
    return FaultBackend(backend, {lambda op: op.name == "get" and op.key == key: Fault("eio", times)})


def copy_of(key: str) -> str:
    if key == keys.STORE_KEY:
        return keys.copy_key(key)
    return (
        keys.copy_key(keys.parse_node_key(key).node)
        if key.startswith("nodes/")
        else f"copies/{Path(key).name}"
    )


@pytest.mark.parametrize("what", ["layouts", "nodes", keys.STORE_KEY])
def test_a_repair_refuses_where_the_copy_of_a_damaged_record_is_not_given(filled, what):
    key = what if what == keys.STORE_KEY else max(filled.list(what))
    assert copy_of(key) in filled.list(keys.COPIES)
    flip(filled, key)
    before, target = filled.snapshot(), failing(filled, copy_of(key))
    report = verify(target)
    assert any("Input/output error" in found.message for found in report.findings)
    with pytest.raises(StorageError, match="nothing is repaired while the target"):
        repair(target)
    assert filled.snapshot() == before
    assert not repair(filled).lost
    with lcstore.open(filled, "r") as store:
        assert store.steps() == [0, 1, 2, 3]
        assert store.verify("checksum").ok


def test_a_restore_does_not_take_it_for_damage(filled):
    key = max(filled.list(keys.NODES))
    flip(filled, key)
    with (
        lcstore.open(failing(filled, copy_of(key)), "r") as store,
        pytest.raises(StorageError, match="Input/output error"),
    ):
        store.restore(on_corrupt="previous")
    filled.delete(copy_of(key))
    with lcstore.open(filled, "r") as store, pytest.raises(CorruptionError):
        store.restore()


@pytest.mark.parametrize("times", [1, 2, None])
def test_what_a_lost_record_may_name_is_neither_collected_nor_left_out_of_a_copy(filled, times):
    key = max(filled.list(keys.NODES))
    filled.delete(key)
    before = filled.snapshot()
    there = MemoryBackend.fresh()
    for act in (
        lambda target: lcstore.open(target, "r+").collect(),
        lambda target: copy_store(target, there),
    ):
        with pytest.raises(StorageError, match="Input/output error"):
            act(failing(filled, copy_of(key), times))
        assert filled.snapshot() == before
        assert keys.STORE_KEY not in there.list("")
    assert not verify(failing(filled, copy_of(key))).ok
    with pytest.raises(StorageError, match="nothing is repaired while the target"):
        repair(failing(filled, copy_of(key)))
    # The others can be read meanwhile, and training goes on.
    with lcstore.open(failing(filled, copy_of(key))) as store:
        with pytest.warns(lcstore.FallbackWarning, match="not be seen: .*Input/output error"):
            assert store.steps() == [0, 1, 2]
        store.resume(2)
        store.save(9, state(9))
    with lcstore.open(filled, "r") as store:
        assert store.steps() == [0, 1, 2, 3, 9]
        assert same(store.restore(3)["n"], 3)


def test_an_object_that_would_mend_another_and_is_not_given_is_told(filled):
    chunk = next(key for key in filled.list("data") if "/c." in key)
    flip(filled, chunk)
    before, target = filled.snapshot(), failing(filled, f"{chunk.rpartition('/')[0]}/p.0")
    report = verify(target, "checksum")
    assert not report.ok
    assert {found.key for found in report.findings if "Input/output error" in found.message}
    with pytest.raises(StorageError, match="nothing is repaired while the target"):
        repair(target)
    assert filled.snapshot() == before
    assert not repair(filled).lost


def test_a_resume_whose_exact_value_is_not_given_does_not_take_it_for_damage():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, threads=1, durability="none") as store:
        store.save(0, state(0))
        node = store.save(1, state(1), exact=True).node
        record = store._index.record(node)
    exact = next(ref.key for ref in record.exact.objects if "/c." in ref.key)
    flip(backend, next(ref.key for ref in record.edge.objects if "weights" in ref.key and "/c." in ref.key))
    with (
        lcstore.open(failing(backend, exact), threads=1) as store,
        pytest.raises(StorageError, match="Input/output error"),
    ):
        store.resume(on_corrupt="previous")
    with lcstore.open(backend, threads=1) as store:
        assert same(store.resume(), state(1))


@pytest.mark.parametrize("kind", ["bit_flip", "short_read"])
def test_one_read_that_goes_wrong_harms_nothing(filled, kind):
    """Of a copy that is put back, of one whose record is lost, and of one that is compared."""
    key = sorted(filled.list(keys.NODES))[1]
    filled.delete(key)
    for name, damage in (("lost", None), ("flipped", max(filled.list("layouts"))), ("whole", "")):
        backend = MemoryBackend.fresh(filled.snapshot())
        if damage:
            flip(backend, damage)
        log = FaultBackend(MemoryBackend.fresh(backend.snapshot()))
        repair(log)
        copies = [op.key for op in log.log if op.name == "get" and op.key.startswith(f"{keys.COPIES}/")]
        for copy in sorted({*copies}):
            again = MemoryBackend.fresh(backend.snapshot())
            flawed = FaultBackend(
                again, {lambda op, copy=copy: op.name == "get" and op.key == copy: Fault(kind, 1)}
            )
            assert not repair(flawed).lost, (name, copy)
            with lcstore.open(again, "r") as store:
                assert store.steps() == [0, 1, 2, 3]
                report = store.verify("checksum")
                assert report.is_sound, (name, copy, report.findings)


def test_parity_that_is_not_given_is_no_good_news(filled):
    parity = next(key for key in filled.list("data") if "/p." in key)
    report = verify(failing(filled, parity), "checksum")
    assert report.ok
    assert not report.is_sound
    assert "1 object that the target did not give" in str(report)
