"""Every flipped bit and every missing end of every object: an error that names it, or the committed bytes."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable

import numpy as np
import pytest
from conftest import Run
from damaged import CREATED, merge, put, state
from states import same

import lcstore
from lcstore import LcstoreError
from lcstore.check.verify import verify
from lcstore.format import keys
from lcstore.format.marks import CondemnedRecord, RetiredRecord
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS, settled

pytestmark = pytest.mark.once

#: Objects of the small store.
OBJECTS = 15


def small_run(step: int) -> dict:
    rng = np.random.default_rng(step)
    weights = np.random.default_rng(99).standard_normal((24, 20)) + rng.standard_normal((24, 20)) / 2
    return {
        "model": {"w.weight": (weights * 0.01).astype(np.float32)},
        "optim": {"state": {0: {"exp_avg": rng.standard_normal((24, 20)).astype(np.float32)}}},
        "epoch": step,
    }


@pytest.fixture(scope="module")
def small() -> tuple[dict[str, bytes], list]:
    backend = MemoryBackend.fresh()
    store = lcstore.open(backend, durability="none")
    for step in range(3):
        store.save(step, small_run(step), tags=["end"] if step == 2 else ())
    return backend.snapshot(), [store.restore(step) for step in range(3)]


def check(objects: dict[str, bytes], key: str, seen: list) -> bool:
    """Restore every step of a damaged store; whether the damage was noticed."""
    noticed = False
    for step, good in enumerate(seen):
        try:
            back = lcstore.open(MemoryBackend.fresh(objects), "r", threads=1).restore(step)
        except LcstoreError as error:
            noticed = True
            assert error.key == key, (key, error)
        else:
            assert same(back, good)
    return noticed


def damage(small, key: str, every: int, seed: int) -> None:
    objects, seen = small
    data = objects[key]
    rng = random.Random(seed)
    bits = [bit for bit in range(8 * len(data)) if rng.randrange(every) == 0]
    for bit in bits:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        noticed = check({**objects, key: bytes(flipped)}, key, seen)
        assert noticed or not key.startswith(("nodes/", "layouts/", "lcstore.json"))
    for end in [end for end in range(len(data)) if rng.randrange(every) == 0]:
        check({**objects, key: data[:end]}, key, seen)


def keys_of(small) -> list[str]:
    return sorted(small[0])


def test_a_part_of_all_bits_and_prefixes(small):
    total = sum(map(len, small[0].values()))
    for key in keys_of(small):
        damage(small, key, max(1, total * 8 // 400), seed=1)


def test_the_number_of_objects(small):
    assert len(small[0]) == OBJECTS


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", range(OBJECTS))
def test_all_bits_and_prefixes(small, number):
    damage(small, keys_of(small)[number], 1, seed=1)


def test_a_missing_object_is_named(small):
    objects, seen = small
    for key in objects:
        rest = {k: v for k, v in objects.items() if k != key}
        for step, good in enumerate(seen):
            try:
                back = lcstore.open(MemoryBackend.fresh(rest), "r").restore(step)
            except LcstoreError as error:
                assert key == "lcstore.json" or key.startswith("nodes/") or error.key == key
            else:
                assert same(back, good)


def test_a_flip_on_the_way_is_read_again(small):
    from lcstore.testing.faults import FaultBackend

    objects, seen = small
    for number in range(40):
        faulty = FaultBackend(MemoryBackend.fresh(objects), {number: "bit_flip"}, seed=number)
        try:
            assert same(lcstore.open(faulty, "r", threads=1).restore(2), seen[2])
        except LcstoreError as error:
            assert error.key is not None
            assert not error.key.startswith("data/")  # chunks are read twice before they are given up


def test_a_record_that_is_not_one_is_reported(small):
    objects, _ = small
    for name in ("nodes/readme.txt", "nodes/0000000000000000001-x.json"):
        store = lcstore.open(MemoryBackend.fresh({**objects, name: b"{}"}), "r")
        with pytest.raises(lcstore.CorruptionError) as caught:
            store.steps()
        assert caught.value.key == name


def test_swapped_chunks_are_noticed(small):
    objects, _ = small
    chunks = sorted(k for k in objects if k.endswith("weights-float32.add/c.0"))
    swapped = {**objects, chunks[0]: objects[chunks[1]], chunks[1]: objects[chunks[0]]}
    with pytest.raises(lcstore.CorruptionError):
        lcstore.open(MemoryBackend.fresh(swapped), "r").restore(2)


def test_run_helper_is_deterministic():
    assert same(Run(3).step(), Run(3).step())


# Found by verifying -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> dict[str, bytes]:
    """Three states in about 8 KiB: with a shortcut, a tag, a retirement and a condemnation."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none", policy=settled(PRESETS["balanced"])) as store:
        first, moved = np.random.default_rng(4).standard_normal((2, 19, 19), np.float32)
        for step in range(3):
            store.save(step, {"model": {"w.weight": first + step * np.float32(0.01) * moved}})
        merge(store, 0, 2)
        store.tag("end", 2)
        passed, last = store.info(1).node, store.info(2).node
        spare = store._index.record(last).edge.id
    put(
        backend,
        RetiredRecord(passed, "old", CREATED),
        CondemnedRecord(spare, last, "weights-float32.add", CREATED),
    )
    return backend.snapshot()


def find_flips(objects: dict[str, bytes], bits: Iterable[int]) -> int:
    """Flip bits of a store, counted through all of its objects; verifying has to name each object."""
    places = [(key, bit) for key in sorted(objects) for bit in range(8 * len(objects[key]))]
    looked = 0
    for number in bits:
        key, bit = places[number]
        flipped = bytearray(objects[key])
        flipped[bit // 8] ^= 1 << bit % 8
        report = verify(MemoryBackend.fresh(objects | {key: bytes(flipped)}), "checksum")
        named = [finding for finding in report.findings if finding.key == key]
        assert named, (key, bit)
        # What is condemned already need not be whole, and what follows from the layout can be made anew.
        assert not report.ok or named[0].severity == "info" or named[0].check == "rebuild", (key, bit)
        looked += 1
    return looked


def test_the_tiny_store(tiny):
    assert 8 << 10 <= sum(map(len, tiny.values())) < 9 << 10
    assert {key.split("/")[0] for key in tiny} == {
        "lcstore.json", "layouts", "data", "nodes", "edges", "names", "retired", "condemned",
    }  # fmt: skip
    report = verify(MemoryBackend.fresh(tiny), "restore")
    assert report.ok
    assert (report.states, report.lost) == (2, ())


def test_a_part_of_all_flips_is_found(tiny):
    total = 8 * sum(map(len, tiny.values()))
    assert find_flips(tiny, random.Random(2).sample(range(total), 400)) == 400


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(16))
def test_every_flip_is_found(tiny, part):
    total = 8 * sum(map(len, tiny.values()))
    assert find_flips(tiny, range(part, total, 16)) >= 4_096


# Around the damage ------------------------------------------------------------------------------------------


def flipped(objects: dict[str, bytes], key: str) -> MemoryBackend:
    data = bytearray(objects[key])
    data[len(data) // 2] ^= 4
    return MemoryBackend.fresh(objects | {key: bytes(data)})


@pytest.mark.parametrize("base", [0, None])
def test_a_state_is_read_around_damage_where_another_path_leads_to_it(small, base):
    """Every object of a shortcut in turn: the same bits over the way that is left, and a word of it."""
    objects, seen = small
    backend = MemoryBackend.fresh(objects)
    with lcstore.open(backend, durability="none") as store:
        made = merge(store, base, 2)
    objects = backend.snapshot()
    warned = 0
    for key in sorted(objects):
        if keys.edge_of(key) != made:
            continue
        with lcstore.open(flipped(objects, key), threads=1) as store:
            for at in (2, 2, 1):
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    assert same(store.restore(at), seen[at])
                for warning in caught:
                    assert warning.category is lcstore.FallbackWarning
                    assert key in str(warning.message)
                    assert "lcstore repair" in str(warning.message)
                warned += len(caught)
            # Said once: from then on the handle goes around it.
            assert not caught
            assert same(store.resume(2), seen[2])
            assert store.save(3, small_run(3)).kind == "delta"
    assert warned == 2  # the record, and the chunk


def test_damage_that_no_path_leads_around_is_an_error(small):
    objects, _ = small
    with lcstore.open(MemoryBackend.fresh(objects), threads=1) as store:
        first = store._index.record(store.info(0).node).edge.id
    key = next(key for key in objects if keys.edge_of(key) == first and "weights" in key and "/c." in key)
    with lcstore.open(flipped(objects, key), "r", threads=1) as store:
        for _ in range(2):
            with pytest.raises(lcstore.CorruptionError) as caught:
                store.restore(2)
            assert caught.value.key == key


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_lost_edge_between_two_anchors_costs_no_more_than_its_own_state(lost):
    """Behind it every state comes back bit for bit; of its own, all but what that edge alone set."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        for step in range(6):
            store.save(step * 10, state(step * 10))
        seen = {step: store.restore(step) for step in store.steps()}
        merge(store, None, 40)
        folder = keys.edge_folder(store._index.record(store.info(lost * 10).node).edge.id)
    for key in backend.list(folder):
        backend.delete(key)
    with lcstore.open(backend, "r") as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", lcstore.FallbackWarning)
        for step in store.steps():
            if step != lost * 10:
                assert same(store.restore(step), seen[step])
                assert same(store.at(step).sel["model/w", 3:5], seen[step]["model"]["w"][3:5])
                assert store.at(step).bytes_to_read() > 0
        kept = store.restore(lost * 10, names=["model/**", "log", "epoch"])
        assert same(kept["model"], seen[lost * 10]["model"])
        with pytest.raises(lcstore.CorruptionError):
            store.restore(lost * 10)


def test_where_a_whole_folder_is_lost_no_error_names_a_part_that_fails_too(small):
    objects, _ = small
    with lcstore.open(MemoryBackend.fresh(objects), "r") as store:
        folder = keys.edge_folder(store._index.record(store.info(1).node).edge.id)
    left = MemoryBackend.fresh({key: data for key, data in objects.items() if not key.startswith(folder)})
    with lcstore.open(left, "r") as store:
        for names in (None, "model", "optim"):
            with pytest.raises(lcstore.CorruptionError, match=r"no part of this state .* can be read whole"):
                store.restore(1, names=names)
        with pytest.raises(lcstore.CorruptionError, match=r"; restore\(2, names='optim'\) does not need it"):
            store.restore(2)
        store.restore(2, names="optim")


def test_lost_moments_leave_weights_that_the_error_names(small):
    objects, seen = small
    store = lcstore.open(MemoryBackend.fresh(objects), "r")
    folder = keys.edge_folder(store._index.record(store.info(1).node).edge.id)
    lost = [key for key in objects if key.startswith(folder) and "/first-" in key]
    assert lost
    store = lcstore.open(MemoryBackend.fresh({k: v for k, v in objects.items() if k not in lost}), "r")
    for read in (lambda: store.restore(1), lambda: store[1]["optim/state/#0/exp_avg"]):
        with pytest.raises(
            lcstore.CorruptionError, match=r"; restore\(1, names='model'\) does not need it; "
        ):
            read()
    assert same(store.restore(1, names="model"), {"model": seen[1]["model"]})
    report = store.verify()
    assert (report.lost, report.lost_ranges, report.kept_in_part) == ((1,), ((1, 1),), ((1, 1),))
