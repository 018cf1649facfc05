"""One object of a closed store is lost or damaged, each in turn: what is protected comes back, bit by bit."""

from __future__ import annotations

import random
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from damaged import faults, keys_of
from kit import explore
from meetings import Meeting, collecting, start
from states import same

import lcstore
from lcstore.check.verify import verify
from lcstore.errors import FallbackWarning
from lcstore.format import keys
from lcstore.layout import layout as layouts
from lcstore.repair.repair import repair
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, FaultBackend
from lcstore.track.policy import PRESETS, settled

pytestmark = pytest.mark.once

STEPS = 6
CHUNK = 4096


def state(step: int) -> dict[str, Any]:
    """Weights of 40 chunks, moments, a mask that is set once, a count, and many plain values at step 2."""
    rng = np.random.default_rng(5)
    w, moved = rng.standard_normal((2, 320, 512), dtype=np.float32)
    w = w + np.float32(step / 100) * moved
    return {
        "model": {"w": w, "mask": np.arange(100) % 3 == 0},
        "optim": {"state": {0: {"exp_avg": w[:48] * 0.1, "exp_avg_sq": w[:48] ** 2, "step": np.int64(step)}}},
        "log": "long " * 20_000 if step == 2 else "short",
    }


@cache
def closed(durability: str = "default") -> tuple[dict[str, bytes], dict[int, Any]]:
    """A closed store with a shortcut and an exact value, and what it gives back."""
    backend = MemoryBackend.fresh()
    with (
        patch.object(layouts, "chunk_elements", lambda size, dtype, covered=False: CHUNK),
        lcstore.open(backend, durability=durability, policy=settled(PRESETS["balanced"])) as store,
    ):
        for step in range(STEPS):
            store.save(step, state(step), exact=step == 3)
        store.compact()
        return backend.snapshot(), {step: store.restore(step) for step in range(STEPS)}


def is_set_anew(key: str) -> bool:
    """Whether an object holds what each save sets: moments."""
    return any(pool in key for pool in ("/first-float32.set/c.", "/second-float32.set/c."))


def check(objects: dict[str, bytes], whole: dict[int, Any], key: str, *, everything: bool) -> None:
    """Restore all states; one of them may lack moments unless `everything` is protected."""
    lacking = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        with lcstore.open(MemoryBackend.fresh(objects), "r", threads=2) as store:
            assert store.steps() == list(range(STEPS))
            for step, good in whole.items():
                try:
                    assert same(store.restore(step), good), (key, step)
                except lcstore.CorruptionError as error:
                    assert error.key == key
                    assert same(store.restore(step, names="model/**"), {"model": good["model"]})
                    lacking.append(step)
    assert len(lacking) <= (is_set_anew(key) and not everything), (key, lacking)


def step_of(store: lcstore.Store, key: str) -> int:
    """The step whose own edge an object is of."""
    return next(s for s in store if store._index.record(store.info(s).node).edge.id == key.split("/")[1])


def test_a_tenth_of_all_objects():
    objects, whole = closed()
    for key in keys_of(objects, 10):
        for kind, damaged in faults(objects, key).items():
            steps = random.Random(f"{kind} {key}").sample(range(STEPS), 2)
            check(damaged, {step: whole[step] for step in steps}, key, everything=False)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("durability", ["default", "all"])
def test_all_objects(durability):
    objects, whole = closed(durability)
    for key in objects:
        for damaged in faults(objects, key).values():
            check(damaged, whole, key, everything=durability == "all")


def test_with_all_protected_no_tensor_is_lost():
    objects, whole = closed("all")
    moments = [key for key in objects if is_set_anew(key)]
    assert moments
    for key in random.Random(2).sample(moments, 6):
        for damaged in faults(objects, key).values():
            check(damaged, whole, key, everything=True)


def test_what_is_rebuilt_is_told():
    objects, whole = closed()
    key = next(key for key in objects if "/weights-float32.add/c." in key)
    with lcstore.open(MemoryBackend.fresh(faults(objects, key)["gone"]), "r") as store:
        step = step_of(store, key)
        with pytest.warns(FallbackWarning, match=f"rebuilt.*lcstore repair {store.url}"):
            assert same(store.restore(step), whole[step])


def test_two_of_a_family_are_too_many():
    objects, _ = closed()
    chunks = [key for key in objects if "/weights-float32.exact/c." in key]
    left = {key: data for key, data in objects.items() if key not in chunks[:2]}
    with lcstore.open(MemoryBackend.fresh(left), "r") as store:
        step = step_of(store, chunks[0])
        with pytest.raises(lcstore.CorruptionError) as caught:
            store.restore(step)
        assert caught.value.key in chunks[:2]


def test_a_wrong_parity_is_never_believed():
    objects, _ = closed()
    key = next(key for key in objects if "/weights-float32.exact/c." in key)
    parity = key.rpartition("/")[0] + "/p."
    damaged = faults(objects, key)["gone"]
    damaged |= {k: bytes(len(v)) for k, v in objects.items() if k.startswith(parity)}
    with lcstore.open(MemoryBackend.fresh(damaged), "r") as store:
        step = step_of(store, key)
        with pytest.raises(lcstore.CorruptionError) as caught:
            store.restore(step)
        assert caught.value.key == key


def test_walks_diffs_and_resumes_rebuild_as_well():
    objects, whole = closed()
    adds = [key for key in objects if "/weights-float32.add/c." in key]
    damaged = {key: data for key, data in objects.items() if key not in adds[::40]}

    def use(store: lcstore.Store) -> None:
        for step, tree in store.walk(names="model/**"):
            assert same(tree, {"model": whole[step]["model"]})
        store.diff(0, STEPS - 1)
        assert same(store.resume(), whole[STEPS - 1])
        store.save(STEPS, state(STEPS))
        assert store.verify("restore").ok

    def run() -> None:
        with lcstore.open(MemoryBackend.fresh(damaged)) as store:
            use(store)

    # A writer that notices may add an anchor besides, and says so.
    with pytest.warns(UserWarning, match="lcstore repair") as caught:
        run()
    assert any("rebuilt" in str(warning.message) for warning in caught)


def test_many_readers_at_once_rebuild_the_same():
    objects, whole = closed()
    key = next(key for key in objects if "/weights-float32.exact/c." in key)
    backend = MemoryBackend.fresh(faults(objects, key)["flipped"])
    steps = [*range(STEPS)] * 2
    with (
        pytest.warns(FallbackWarning),
        lcstore.open(backend, "r", threads=4) as store,
        ThreadPoolExecutor(6) as pool,
    ):
        found = list(pool.map(store.restore, steps))
    for step, got in zip(steps, found, strict=True):
        assert same(got, whole[step])


@pytest.mark.parametrize("level", ["structure", "checksum", "decode", "restore"])
def test_what_can_be_rebuilt_is_no_loss_to_verify(level):
    objects, _ = closed()
    report = verify(MemoryBackend.fresh(objects), level)
    assert not [finding for finding in report.findings if finding.severity != "info"]
    for key in keys_of(objects, 40):
        if is_set_anew(key) or key.startswith(f"{keys.COPIES}/") or ".copy." in key:
            continue
        report = verify(MemoryBackend.fresh(faults(objects, key)["gone"]), level)
        assert report.ok, (key, report.findings)
        assert not report.lost
        (finding,) = [finding for finding in report.findings if finding.severity == "warning"]
        assert (finding.check, finding.key) == ("rebuild", key)
        assert finding.next == f"lcstore repair {report.url}"


def test_a_repair_puts_everything_back():
    objects, _ = closed()
    beside = [key for key in objects if keys.copied_from(key) is not None]
    assert beside
    for key in dict.fromkeys([*keys_of(objects, 40), *beside]):
        if is_set_anew(key):
            continue
        for kind, damaged in faults(objects, key).items():
            backend = MemoryBackend.fresh(damaged)
            report = repair(backend, dry_run=False)
            assert not report.lost, (key, kind)
            assert not report.remaining, (key, kind)
            assert key in {action.key for action in report.actions if action.deed == "rebuild"}
            after = backend.snapshot()
            aside = {name for name in after if name.startswith(f"{keys.QUARANTINE}/")}
            assert {name: data for name, data in after.items() if name not in aside} == objects, (key, kind)
            assert [after[name] for name in aside] == ([damaged[key]] if kind == "flipped" else [])
            assert repair(backend, dry_run=False).ok


@cache
def collected() -> tuple[dict[str, bytes], dict[int, Any]]:
    """A store in which merged edges are all that leads to its states, and what it gives back."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0, threads=1) as store:
        for step in range(24):
            store.save(step, small(step))
        whole = {step: store.restore(step) for step in (0, 8, 16, 22, 23)}
        store.retain("latest:2 | every:8")
        store.compact()
        for _ in range(2):
            store.collect()
        assert store.steps() == list(whole)
        graph = store._index.refresh(full=True)
        assert [ref.edge is None for ref in graph.path(store.info(16).node)] == [True, False, False]
    return backend.snapshot(), whole


def small(step: int) -> dict[str, Any]:
    whole = state(step)
    moments = {name: value[:4, :32] for name, value in whole["optim"]["state"][0].items() if name != "step"}
    return {"model": {"w": whole["model"]["w"][:32, :64]}, "optim": {"state": {0: moments}}}


def test_once_collected_no_object_is_all_that_leads_to_a_state():
    objects, whole = collected()
    for key in objects:
        for kind, damaged in faults(objects, key).items():
            lacking = []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FallbackWarning)
                with lcstore.open(MemoryBackend.fresh(damaged), "r", threads=1) as store:
                    assert store.steps() == list(whole)
                    for step, good in whole.items():
                        try:
                            assert same(store.restore(step), good)
                        except lcstore.CorruptionError as error:
                            assert error.key == key
                            lacking.append(step)
            assert len(lacking) <= is_set_anew(key), (kind, key, lacking)


def let_go(store: lcstore.Store) -> None:
    """Keep the latest state alone."""
    store.retain("latest:1")
    store.compact()
    for _ in range(3):
        store.collect()


def test_a_lost_record_of_an_edge_is_collected_with_the_edge():
    objects, whole = collected()
    key = next(key for key in objects if key.startswith(f"{keys.EDGES}/"))
    backend = MemoryBackend.fresh(faults(objects, key)["gone"])
    with lcstore.open(backend) as store:
        with pytest.warns(FallbackWarning, match="second copy"):
            let_go(store)
        assert not [there for there in backend.snapshot() if keys.edge_stem(key) in there]
        assert store.verify("restore").ok
        assert same(store.restore(), whole[23])


def test_the_last_record_is_known_by_its_copy_until_a_collector_lets_go_of_it():
    objects, whole = closed()
    last = max(key for key in objects if key.startswith(f"{keys.NODES}/"))
    node = keys.parse_node_key(last).node
    backend = MemoryBackend.fresh(faults(objects, last)["gone"])
    with lcstore.open(backend) as store:
        with pytest.warns(FallbackWarning):
            assert store.info().node == node
        with pytest.warns(FallbackWarning):
            store.collect()
        assert same(store.restore(), whole[STEPS - 1])
    no_data = {key: data for key, data in backend.snapshot().items() if not key.startswith(f"{keys.DATA}/")}
    with lcstore.open(MemoryBackend.fresh(no_data), "r") as store:
        assert STEPS - 1 not in store.steps()


def test_a_copy_that_is_another_record_is_not_believed():
    objects, _ = closed()
    records = sorted(key for key in objects if key.startswith(f"{keys.NODES}/"))
    last = keys.copy_key(keys.parse_node_key(records[-1]).node)
    swapped = faults(objects, records[-1])["gone"] | {last: objects[records[0]]}
    with lcstore.open(MemoryBackend.fresh(swapped), "r") as store:
        assert store.steps() == list(range(STEPS - 1))


def test_with_none_nothing_is_stored_besides():
    objects, _ = closed("none")
    assert not [
        key for key in objects if key.startswith(f"{keys.COPIES}/") or "/p." in key or ".copy." in key
    ]


def test_layouts_of_no_record_lose_their_copies_with_them():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0) as store:
        for step in range(3):
            store.save(step, {"model": {"w": np.full((4, 4), step, np.float32)}})
        stray = keys.copy_key("ab" * 32)
        backend.put(stray, b"of nothing")
        store.retire(0)
        store.collect()
        assert stray in backend.list(keys.COPIES)  # it may be that of a save under way
        backend._space.objects[stray] = b"of nothing", time.time() - 4000
        store.collect()
        assert stray not in backend.list(keys.COPIES)
        assert verify(backend, "checksum").ok


def late_copies(objects: dict[str, bytes]) -> list[str]:
    """Return second copies that are stored after what they are copies of: of three kinds of records."""
    last = max(key for key in objects if key.startswith(f"{keys.NODES}/"))
    edge = next(key for key in objects if key.startswith(f"{keys.EDGES}/"))
    stored = keys.parse_node_key(last).node, keys.edge_stem(edge), keys.STORE_KEY
    return [keys.copy_key(what) for what in stored]


def test_a_copy_that_a_killed_process_did_not_come_to_is_no_damage_and_a_collect_stores_it():
    objects, whole = closed()
    for copy in late_copies(objects):
        backend = MemoryBackend.fresh(faults(objects, copy)["gone"])
        report = verify(backend)
        assert report.is_sound
        assert [(one.severity, one.check) for one in report.findings if one.key == copy] == [("info", "copy")]
        with lcstore.open(backend, "r") as store:
            store.collect(dry_run=True)
        assert copy not in backend.snapshot()
        with lcstore.open(backend, "r+") as store:
            store.collect()
            assert same(store.restore(), whole[STEPS - 1])
        assert backend.snapshot()[copy] == objects[copy]
        assert not verify(backend).findings


def test_other_copies_that_are_missing_and_all_that_are_wrong_are_damage():
    objects, _ = closed()
    late = late_copies(objects)
    for key in (key for key in objects if key.startswith(f"{keys.COPIES}/")):
        for fault, damaged in faults(objects, key).items():
            report = verify(MemoryBackend.fresh(damaged))
            assert report.is_sound == (fault == "gone" and key in late), (key, fault)


def test_a_copy_that_grew_is_not_read_as_a_whole():
    objects, _ = closed()
    for key in (key for key in objects if key.startswith(f"{keys.COPIES}/")):
        backend = MemoryBackend.fresh(objects | {key: objects[key] + bytes(1 << 20)})
        lengths: list[int] = []

        def get(*of, get=backend.get, lengths=lengths):
            data = get(*of)
            lengths.append(len(data))
            return data

        backend.get = get
        assert not verify(backend).is_sound
        assert max(lengths) < 1 << 20


def test_copies_that_are_all_missing_are_damage_that_a_repair_makes_good():
    objects, _ = closed()
    copies = {key for key in objects if key.startswith(f"{keys.COPIES}/")}
    backend = MemoryBackend.fresh({key: data for key, data in objects.items() if key not in copies})
    with lcstore.open(backend) as store:
        store.collect()
    report = verify(backend)
    assert report.ok
    assert not report.is_sound
    assert "all is well" not in str(report)
    assert "to be made again" in str(report)
    assert {one.key for one in report.mendable} == copies
    assert len({one.message for one in report.findings}) == 1  # so that they are told in one line
    assert not repair(backend, dry_run=True).ok
    repair(backend)
    assert {key: backend.snapshot()[key] for key in copies} == {key: objects[key] for key in copies}
    assert not [one for one in verify(backend).findings if one.check == "copy"]


def test_a_store_without_copies_is_good():
    objects, _ = closed("none")
    report = verify(MemoryBackend.fresh(objects))
    assert report.is_sound
    assert "all is well" in str(report)
    assert not report.findings


@pytest.mark.parametrize("last", ["none", "default"])
def test_copies_are_asked_of_those_alone_who_wrote_them(last):
    backend, rng, state = MemoryBackend.fresh(), np.random.default_rng(0), {}
    for turn, durability in enumerate(("none", "default", "none", "default", last)):
        with lcstore.open(backend, durability=durability, grace=0) as store:
            if turn:
                store.resume()
            for step in range(4 * turn, 4 * turn + 4):
                state = {"w.weight": rng.standard_normal((32, 32), np.float32), "epoch": step}
                store.save(step, state)
            if turn > 1:
                store.maintain("latest:3 | every:4")
        assert verify(backend).is_sound, turn
    # A copy that was written, of the layout above all, is asked for.
    layouts = [keys.parse_layout_key(key) for key in backend.snapshot() if key.startswith(f"{keys.LAYOUTS}/")]
    copy = next(key for key in map(keys.copy_key, layouts) if key in backend.snapshot())
    backend.delete(copy)
    assert [one.key for one in verify(backend).mendable] == [copy]


def test_what_can_be_rebuilt_counts_as_there_where_an_error_names_what_can_be_read():
    objects, whole = closed()
    with lcstore.open(MemoryBackend.fresh(objects), "r") as store:
        own = keys.edge_folder(store._index.record(store.info(2).node).edge.id)
    lost = [key for key in objects if key.startswith(own) and is_set_anew(key)]
    lost.append(next(key for key in objects if key.startswith(own) and "/weights-float32.add/c." in key))
    left = MemoryBackend.fresh({key: data for key, data in objects.items() if key not in lost})
    with lcstore.open(left, "r") as store, warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        with pytest.raises(lcstore.CorruptionError, match=r"; restore\(2, names='model'\) does not need it"):
            store.restore(2)
        assert same(store.restore(2, names="model")["model"], whole[2]["model"])


def test_no_copy_is_made_where_none_is_wanted_nor_of_a_damaged_record():
    objects, _ = closed()
    last = max(key for key in objects if key.startswith(f"{keys.NODES}/"))
    copy, *_ = late_copies(objects)
    without = faults(objects, copy)["gone"]
    for stored, durability in ((without, "none"), (faults(without, last)["flipped"], "default")):
        backend = MemoryBackend.fresh(stored)
        with lcstore.open(backend, "r+", durability=durability) as store, suppress(lcstore.CorruptionError):
            store.collect()
        assert copy not in backend.snapshot()


def test_wherever_a_process_is_killed_nothing_is_taken_for_damaged():
    number, struck = 0, True
    while struck:
        backend = MemoryBackend.fresh()
        dying = FaultBackend(backend, {number: "crash_before"})
        with suppress(Crash), lcstore.open(dying, threads=1) as store:
            for step in range(3):
                store.save(step, {"model": {"w": np.full((64, 64), step, np.float32)}})
            store.retain("latest:1")
            store.compact()
        struck, number = bool(dying.struck), number + 1
        if any(key.startswith(f"{keys.NODES}/") for key in backend.snapshot()):
            assert verify(backend).is_sound, (number, verify(backend).findings)
            with lcstore.open(backend, "r+", threads=1) as store:
                store.collect()
                assert not [one for one in verify(backend).findings if one.check == "copy"], number
    assert number > 30


def test_a_copy_is_stored_while_another_collector_takes_its_record():
    begun = start.__wrapped__(2, fork=True)  # not one that was made without protection
    leaf = begun.nodes[1]
    begun = replace(begun, objects=faults(begun.objects, keys.copy_key(leaf))["gone"])
    actors = {"one": collecting(), "two": collecting(2, retire=leaf)}
    explore(Meeting(begun, actors, let_go=frozenset([leaf])).scene, limit=60, samples=60)


def test_what_protection_costs_is_told():
    costs = {}
    for durability in ("none", "default"):
        backend = MemoryBackend.fresh()
        with lcstore.open(backend, durability=durability) as store:
            infos = [store.save(step, state(step)) for step in range(2, 4)]
            costs[durability] = infos
            besides = sum(info.bytes_protection for info in infos)
            found = store.stats()
        stored = backend.snapshot()
        parity = {k: v for k, v in stored.items() if k.startswith(f"{keys.DATA}/") and keys.is_parity(k)}
        copies = {k: v for k, v in stored.items() if k.startswith(f"{keys.COPIES}/") or keys.copied_from(k)}
        assert found.protection_bytes == sum(map(len, (*parity.values(), *copies.values())))
        assert found.orphans == 0
        own = len(stored.get(keys.copy_key(keys.STORE_KEY), b""))  # the store's, which is no save's
        assert found.protection_bytes == besides + own
        assert found.bytes_stored["total"] == sum(map(len, stored.values()))
    assert all(info.bytes_protection == 0 for info in costs["none"])
