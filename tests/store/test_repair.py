"""Repairing keeps every state that has a sound path, says what is lost, and can be cut off anywhere."""

from __future__ import annotations

import hashlib
import itertools
import random
import tracemalloc
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from damaged import CREATED, grown, restorable, state, tracks, with_part
from states import leaves, same

import lcstore
from lcstore.check.verify import verify
from lcstore.errors import CorruptionError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef
from lcstore.format.marks import TagRecord
from lcstore.format.records import NodeRecord, StoreRecord, node_id, read_node
from lcstore.repair.overlay import Overlay
from lcstore.repair.repair import repair
from lcstore.repair.repaired import RepairReport
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.testing.faults import Crash, Fault, FaultBackend

#: A restore may get around damage, and says so.
pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore::lcstore.errors.FallbackWarning")]


@pytest.fixture(scope="module")
def whole() -> tuple[dict[str, bytes], dict[str, Any], dict[str, Any]]:
    """A store, what is restored of each of its nodes, and the same without exact values."""
    objects = grown()
    return objects, restorable(objects), tracks(objects)


def mended(objects: dict[str, bytes], level: str = "checksum") -> tuple[dict[str, bytes], RepairReport]:
    """Repair; look at what every repair promises."""
    backend = MemoryBackend.fresh(objects)
    planned = repair(backend, dry_run=True, level=level)
    assert backend.snapshot() == objects, "a dry run changed the store"
    report = repair(backend, dry_run=False, level=level)
    deeds = [[action.deed for action in each.actions] for each in (planned, report)]
    assert deeds[0] == deeds[1]
    assert planned.lost == report.lost
    again = repair(backend, dry_run=False, level=level)
    assert (again.actions, again.lost) == ((), ())
    if not report.remaining:
        assert again.ok
        found = verify(backend, level)
        assert found.ok, [f for f in found.findings if f.severity == "error"]
    return backend.snapshot(), report


def check(whole: Any, objects: dict[str, bytes], level: str = "checksum") -> RepairReport:
    """Repair a damaged copy of a store; whatever any path gave before is given afterwards, bit for bit."""
    sound, states, exactless = whole
    store_record = {keys.STORE_KEY: sound[keys.STORE_KEY]}
    before = restorable(objects | store_record)
    after, report = mended(objects, level)
    lost = {(loss.node, loss.what) for loss in report.lost}
    let_go = {markkeys.parse_retired_key(key).node for key in sound if key.startswith(f"{keys.RETIRED}/")}
    for node in let_go:  # nobody is promised these; what is needed of them is seen in the others
        before.pop(node, None)
    with lcstore.open(MemoryBackend.fresh(after)) as store:
        graph = store._index.refresh(full=True)
        for node, was in before.items():
            assert same(was, states[node])
            assert (node, markkeys.WHOLE_STATE) not in lost
            assert same(store.restore(node), was), (node, "had a sound path")
        for node in states.keys() - before.keys() - let_go:
            value = exactless[node] if (node, markkeys.EXACT_VALUE) in lost else states[node]
            if any(what.startswith("pool.") for other, what in lost if other == node):
                assert same(store.restore(node, names="model/**")["model"], value["model"])
            elif (node, markkeys.EXACT_VALUE) in lost:
                assert same(store.restore(node), value)
            elif node in graph.nodes and node not in graph.hidden:
                # A reader gives up after some ways around what is damaged; with that mended it need not.
                assert same(store.restore(node), states[node])
        assert report.latest == store.latest_step()
        goes_on(store)
    return report


def goes_on(store: lcstore.Store) -> None:
    """A repaired store is written to as any other."""
    latest = store._index.graph.latest()
    # Neither a state without its moments nor an exact value whose track is lost can be gone on from.
    if latest is None or latest.node in store._index.marks.stripped or latest.step in _without_track(store):
        assert latest is None or store.restore(names="model/**")
    else:
        store.resume()
    store.save(99, state(99))
    assert same(store.restore(99)["epoch"], 99)
    assert store.verify(level="restore").ok


def bad(objects: dict[str, bytes], key: str) -> dict[str, bytes]:
    return objects | {key: b"?" * len(objects[key])}


def without(objects: dict[str, bytes], key: str) -> dict[str, bytes]:
    return {k: v for k, v in objects.items() if k != key}


def every(objects: dict[str, bytes], share: int) -> list[str]:
    """A seeded share of the keys, some of every folder."""
    rng = random.Random(3)
    folders: dict[str, list[str]] = {}
    for key in sorted(objects):
        folders.setdefault(key.split("/")[0], []).append(key)
    return [key for found in folders.values() for key in rng.sample(found, -(-len(found) // share))]


def test_a_whole_store_needs_no_repair(whole):
    report = check(whole, whole[0])
    assert report.ok
    assert (report.lost, report.states, report.latest) == ((), 7, 45)


@pytest.mark.parametrize("spoil", [bad, without])
def test_damage_to_an_object(whole, spoil):
    for key in every(whole[0], 10):
        check(whole, spoil(whole[0], key))


def much(objects: dict[str, bytes], seed: int) -> dict[str, bytes]:
    """Damage or delete two to nine objects."""
    rng = random.Random(seed)
    spoiled = objects
    for key in rng.sample(sorted(objects), rng.randint(2, 9)):
        spoiled = bad(spoiled, key) if rng.random() < 0.6 else without(spoiled, key)
    return spoiled


@pytest.mark.parametrize("seed", range(15))
def test_much_damage(whole, seed):
    check(whole, much(whole[0], seed))


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_very_much_damage(whole):
    for seed in range(15, 150):
        check(whole, much(whole[0], seed), level=("checksum", "restore")[seed % 2])


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spoil", [bad, without])
def test_damage_to_every_object(whole, spoil):
    for key in whole[0]:
        check(whole, spoil(whole[0], key))


# What in particular is done ---------------------------------------------------------------------------------


def node_at(objects: dict[str, bytes], step: int) -> str:
    return next(key for key in objects if key.startswith(f"nodes/{step:019d}"))


def id_at(objects: dict[str, bytes], step: int) -> str:
    return keys.parse_node_key(node_at(objects, step)).node


def record_at(objects: dict[str, bytes], step: int) -> NodeRecord:
    key = node_at(objects, step)
    return read_node(key, objects[key])


def object_at(objects: dict[str, bytes], step: int, part: str) -> str:
    """Key of an object of the own edge of a step."""
    return next(k for k in objects if k.startswith(f"data/{record_at(objects, step).edge.id}/0/{part}"))


@pytest.mark.parametrize("harmless", [False, True])
def test_a_state_is_kept_that_a_condemned_edge_alone_leads_to(whole, harmless):
    """That edge may be gone; the damaged one is of no use. Damage that no other state feels tips nothing."""
    objects = whole[0]
    anchor = next(key for key in objects if "-root-" in key and key.startswith(f"{keys.EDGES}/"))
    spoiled = bad(objects, node_at(objects, 10))
    spoiled = bad(spoiled, keys.chunk_key(keys.parse_edge_key(anchor).edge, "weights-float32", "grid", 0))
    if harmless:
        spoiled = bad(spoiled, object_at(objects, 0, "second-float32.set"))
    report = check(whole, spoiled)
    lost = {loss.step for loss in report.lost if loss.what == markkeys.WHOLE_STATE}
    assert lost == {10}, report.lost


def losses(report: RepairReport) -> list[tuple[int, str]]:
    return [(loss.step, loss.what) for loss in report.lost]


def test_a_redundant_edge_saves_what_stands_behind(whole):
    # The own edge of step 20 is damaged, and step 30 has an anchor: only nothing is lost behind that.
    report = check(whole, bad(whole[0], object_at(whole[0], 20, "weights-float32.add/c.0")))
    assert losses(report) == []  # step 20 itself keeps its exact value
    assert {action.deed for action in report.actions} == {"condemn"}
    report = check(whole, bad(whole[0], object_at(whole[0], 60, "weights-float32.add/c.0")))
    assert losses(report) == [(60, "state")]
    assert report.lost[0].names == ("latest of run 1",)


def test_a_damaged_shortcut_costs_nothing(whole):
    shortcuts = [keys.parse_edge_key(key).edge for key in whole[0] if key.startswith("edges/")]
    chunks = [key for key in whole[0] if "/c." in key and key.split("/")[1] in shortcuts]
    assert len({key.split("/")[1] for key in chunks}) == 3
    for key in chunks:
        report = check(whole, bad(whole[0], key))
        assert report.lost == ()


def test_a_damaged_exact_value_leaves_the_track(whole):
    report = check(whole, bad(whole[0], object_at(whole[0], 20, "weights-float32.exact/c.0")))
    assert losses(report) == [(20, "exact")]


def test_damaged_moments_leave_the_weights(whole):
    for pool in ("first-float32", "second-float32"):
        report = check(whole, bad(whole[0], object_at(whole[0], 60, f"{pool}.set/c.0")))
        assert losses(report) == [(60, f"pool.{pool}")]
        assert report.lost[0].tensors == (f"optim/state/#0/{_NAMES[pool]}",)


_NAMES = {"first-float32": "exp_avg", "second-float32": "exp_avg_sq"}


def test_damaged_optimizer_state_is_stripped_wherever_it_goes_on(whole):
    # The step count was set at 40, and every state since has it from there.
    report = check(whole, bad(whole[0], object_at(whole[0], 40, "plain_optim-int64.set/c.0")))
    assert losses(report) == [(step, "pool.plain_optim-int64") for step in (40, 45, 50, 60)]


def test_a_lost_buffer_is_a_lost_state(whole):
    report = check(whole, bad(whole[0], object_at(whole[0], 40, "plain-float32.set/c.0")))
    assert losses(report) == [(step, "state") for step in (40, 45, 50, 60)]
    assert "tag good" in report.lost[0].names


def test_damaged_plain_values_are_a_lost_state_alone(whole):
    report = check(whole, bad(whole[0], object_at(whole[0], 50, "leaves.json")))
    assert losses(report) == [(50, "state")]


def test_metadata_is_made_anew(whole):
    needed = [record_at(whole[0], step).edge.id for step in (0, 20, 40, 60)]
    found = [k for k in whole[0] if k.endswith("/zarr.json") and k.split("/")[1] in needed]
    assert len(found) == 4
    for key in found:
        damaged = bad(whole[0], key)
        after, report = mended(damaged)
        aside = f"{keys.QUARANTINE}/{key}"
        assert after == whole[0] | {aside: damaged[key]}
        assert [(action.deed, action.key) for action in report.actions] == [
            ("quarantine", aside),
            ("rebuild", key),
        ]


def test_a_lost_record_is_set_aside(whole):
    key = node_at(whole[0], 10)
    objects = bad(whole[0], key)
    after, report = mended(objects)
    assert after[f"quarantine/{key}"] == objects[key]
    assert key not in after
    # Retired and pinned: whatever needs it as a base is lost, but for what the anchor at 30 leads to.
    assert losses(report) == [(10, "state")]
    with lcstore.open(MemoryBackend.fresh(after)) as store:
        store.collect(dry_run=True)  # every parent is accounted for


@pytest.mark.parametrize("wrong", [{"step": 5000}, {"base": "0" * 32}, {"seq": 900}])
def test_a_record_whose_name_alone_is_wrong_is_named_rightly(whole, wrong):
    objects, states, _ = whole
    for key in sorted(key for key in objects if key.startswith("nodes/")):
        name = keys.parse_node_key(key)
        damaged = {other: data for other, data in objects.items() if other != key}
        damaged[keys.node_key(replace(name, **wrong))] = objects[key]
        after, report = mended(damaged)
        assert not report.lost
        assert after[key] == objects[key]
        assert restorable(after).keys() == states.keys()


def test_a_second_name_of_a_record_is_set_aside(whole):
    objects = whole[0]
    key = node_at(objects, 10)
    other = keys.node_key(replace(keys.parse_node_key(key), step=5000))
    found = verify(MemoryBackend.fresh(objects | {other: objects[key]}))
    assert not any(one.is_stray for one in found.findings)
    with lcstore.open(MemoryBackend.fresh(objects | {other: objects[key]})) as store:
        with pytest.raises(CorruptionError, match="`lcstore verify` says which is wrong") as caught:
            store.restore()
        assert caught.value.key == other
        assert store.repair(dry_run=True).actions
    after, report = mended(objects | {other: objects[key]})
    assert after == objects | {f"{keys.QUARANTINE}/{other}": objects[key]}
    assert not report.lost


def test_collecting_goes_on_after_a_repair(whole):
    for key in every(whole[0], 10):
        after, report = mended(bad(whole[0], key))
        backend = MemoryBackend.fresh(after)
        before = restorable(after)
        with lcstore.open(backend, durability="none") as store:
            if report.remaining or (exactly := _without_path(store)):
                assert not report.remaining
                assert exactly == [20]
                continue
            store.collect()
            visible = [n for n in store._index.graph.nodes if n not in store._index.graph.hidden]
            for node in visible:
                if node not in store._index.marks.stripped:
                    # What no path leads forward to may be read from behind.
                    assert same(store.restore(node), before.get(node, whole[1][node]))
            assert store.verify(level="restore").ok


def _without_path(store: lcstore.Store) -> list[int]:
    """Steps of exact states to which no path leads any more."""
    return [
        f.step for f in store.verify().findings if (f.severity, f.check) == ("warning", "path") and f.step
    ]


def _without_track(store: lcstore.Store) -> list[int]:
    """Steps of exact states whose track is lost."""
    found = store.verify(level="checksum").findings
    return [f.step for f in found if f.severity == "warning" and f.check in ("path", "track") and f.step]


def test_marks_are_written_again(whole):
    for folder in ("retired", "condemned", "names"):
        for key in [key for key in whole[0] if key.startswith(f"{folder}/")]:
            after, report = mended(bad(whole[0], key))
            assert report.lost == ()
            said = [
                k.rsplit("-", 2 if folder != "names" else 1) for k in (key, *after) if k.startswith(folder)
            ]
            assert len(said) == 1 + sum(k.startswith(folder) for k in whole[0])
            with (
                lcstore.open(MemoryBackend.fresh(after)) as store,
                lcstore.open(MemoryBackend.fresh(whole[0])) as other,
            ):
                assert store.steps() == other.steps()
                assert same(store.restore("good"), other.restore("good"))


def test_the_store_record_is_written_anew(whole):
    data = whole[0][keys.STORE_KEY].replace(b"86400", b"90000")
    for objects in (whole[0] | {keys.STORE_KEY: data}, without(whole[0], keys.STORE_KEY)):
        after, report = mended(objects)
        grace = StoreRecord.from_bytes(after[keys.STORE_KEY]).grace_seconds
        assert grace == (90_000 if keys.STORE_KEY in objects else 86_400)  # only a longer one is believed
        assert report.lost == ()


def test_a_pin_does_not_keep_what_is_lost(whole):
    objects = dict(whole[0])
    other = TagRecord("both", id_at(objects, 0), 0, CREATED, "pin")
    for mark in (other, TagRecord("both", id_at(objects, 60), 1, CREATED, "pin")):
        objects[mark.key()] = mark.to_bytes()
    after, report = mended(bad(objects, object_at(objects, 60, "weights-float32.add/c.0")))
    assert losses(report) == [(60, "state")]
    assert "pin both" in report.lost[0].names
    with lcstore.open(MemoryBackend.fresh(after)) as store:
        store._index.refresh(full=True)
        assert id_at(objects, 0) in store._index.marks.pinned
        assert id_at(objects, 60) not in store._index.marks.pinned


def test_foreign_names_stay(whole):
    objects = whole[0] | {"nodes/mine.json": b"{}", "notes.txt": b"x"}
    after, report = mended(objects)
    assert after == objects
    assert [finding.key for finding in report.remaining] == ["nodes/mine.json"]
    assert not report.ok


def test_what_may_be_whole_is_left_alone(whole):
    """A target that fails, or a newer format, is no damage."""
    backend = FaultBackend(
        MemoryBackend.fresh(whole[0]),
        {lambda op: op.name == "get" and op.key.endswith("/c.0"): Fault("eio", None)},
    )
    with pytest.raises(lcstore.StorageError, match="nothing is repaired"):
        repair(backend, dry_run=False)
    newer = whole[0][keys.STORE_KEY].partition(b",")[2].replace(b'"format":0', b'"format":9')
    seal = blake3(newer).hexdigest().encode()
    objects = whole[0] | {keys.STORE_KEY: b'{"_hash":"%s",%s' % (seal, newer)}
    backend = MemoryBackend.fresh(objects)
    with pytest.raises(lcstore.UnsupportedFormatError):
        repair(backend, dry_run=False)
    assert backend.snapshot() == objects


def test_a_repair_can_be_cut_off_anywhere(whole):
    objects = bad(whole[0], node_at(whole[0], 50))
    objects = bad(objects, object_at(objects, 20, "weights-float32.exact/c.0"))
    objects = bad(objects, object_at(objects, 60, "first-float32.set/c.0"))
    objects = bad(objects, object_at(objects, 40, "zarr.json"))
    objects = bad(objects, next(key for key in objects if key.startswith("condemned/")))
    done, report = mended(objects)
    assert {a.deed for a in report.actions} == {"quarantine", "renew", "retire", "condemn", "rebuild"}
    wanted = readable(done)
    faultless = FaultBackend(MemoryBackend.fresh(objects))
    repair(faultless, dry_run=False)
    changes = [done for done in faultless.log if done.name in ("put", "delete")]
    assert len(changes) > 7
    for kind, done in itertools.product(("crash_before", "crash_after"), changes):
        faulty = FaultBackend(MemoryBackend.fresh(objects), {done.number: Fault(kind)})
        with pytest.raises(Crash):
            repair(faulty, dry_run=False)
        left = faulty.revive()
        repair(left, dry_run=False)
        assert repair(left, dry_run=True).ok
        assert readable(left.snapshot()) == wanted, (kind, done)


def readable(objects: dict[str, bytes]) -> dict[int, str]:
    """What is found by step, as digests of what is restored."""
    found = {}
    with lcstore.open(MemoryBackend.fresh(objects), "r", threads=1) as store:
        for step in store.steps():
            stripped = store._index.marks.stripped.get(store._index.graph.at_step(step).node)
            tree = store.restore(step, names="model/**" if stripped else None)
            found[step] = hashlib.sha256(b"".join(v.tobytes() for v in leaves(tree).values())).hexdigest()
    return found


def test_an_open_handle_begins_anew(whole):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(3):
            store.save(step, state(step))
        chunk = next(
            k for k in backend.list("data") if record_id_of(store, 2) in k and k.endswith(".add/c.0")
        )
        data = backend.get(chunk)
        backend.delete(chunk)
        backend.put(chunk, b"?" * len(data))
        assert losses(store.repair(dry_run=True)) == [(2, "state")]
        store.repair()
        assert store.latest_step() == 1
        info = store.save(3, state(3))
        assert info.kind == "anchor"
        assert same(store.restore(3)["epoch"], 3)


def record_id_of(store: lcstore.Store, step: int) -> str:
    return store._index.record(store._index.graph.at_step(step).node).edge.id


def test_a_state_that_sets_everything_is_given_a_path():
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, policy="lossless", durability="none") as store:
        for step in range(3):
            store.save(step, {"w": np.arange(12) + step})
    objects = backend.snapshot()
    after, report = mended(bad(objects, node_at(objects, 0)))
    assert losses(report) == [(0, "state")]
    assert [a.step for a in report.actions if a.deed == "anchor"] == [1]
    with lcstore.open(MemoryBackend.fresh(after)) as store:
        assert store.steps() == [1, 2]
        assert store.resume(2)["w"].tolist() == (np.arange(12) + 2).tolist()
        store.collect(dry_run=True)


# Deeper levels ----------------------------------------------------------------------------------------------


def reworded(
    objects: dict[str, bytes], step: int, change: Callable[[NodeRecord], NodeRecord]
) -> dict[str, bytes]:
    """Replace the record of the last step of a run by one that is whole, and says something else."""
    key = node_at(objects, step)
    record = change(read_node(key, objects[key]))
    data = record.to_bytes()
    return without(objects, key) | {keys.node_key(record.name(node_id(data))): data}


@pytest.mark.parametrize("policy", ["lossless", "balanced"])
def test_what_stands_on_a_state_that_is_given_a_path_is_not_lost(policy):
    backend, rng, seen = MemoryBackend.fresh(), np.random.default_rng(0), set[str]()
    size, weight, nodes, layouts = 1.0, np.zeros((64, 64), np.float32), [], []
    with lcstore.open(backend, policy=policy, durability="none", threads=1, grace=0) as store:
        for step in range(6):
            anew = step in (0, 2)  # step 2 sets everything: all of it is of another size
            size = 1e-6 if step == 2 and policy != "lossless" else size
            noise = rng.standard_normal(weight.shape).astype(np.float32) * np.float32(size)
            weight = noise if anew else weight + np.float32(1e-4) * noise
            state = {"model": {"a.weight": weight}, "mask": np.arange(5 + (step == 1)), "step": step}
            nodes.append(store.save(step, state).node)
            layouts.append(set(backend.list("layouts")) - seen)
            seen |= layouts[-1]
    with lcstore.open(backend, "r") as store:
        wanted = [store.restore(node)["model"]["a.weight"].tobytes() for node in nodes]
    for key in layouts[1]:
        backend.delete(key)
    with lcstore.open(backend) as store:
        assert [loss.step for loss in store.repair().lost] == [1]
        store.collect()
        store.collect()
        assert store.steps() == [0, 2, 3, 4, 5]
        for step in store.steps():
            assert store.restore(step)["model"]["a.weight"].tobytes() == wanted[step]


def test_an_edge_that_does_not_lead_to_its_digests_is_set_aside(whole):
    """All bytes are as committed, and the sum is wrong: only the deepest level sees it."""

    def change(record: NodeRecord) -> NodeRecord:
        digests = bytearray(record.edge.columns["digest"])
        digests[-8] ^= 1
        columns = record.edge.columns | {"digest": bytes(digests)}
        return replace(record, edge=with_part(record.edge, columns=columns))

    for step in (60, 45):
        objects = reworded(whole[0], step, change)
        assert verify(MemoryBackend.fresh(objects), "decode").ok
        found = verify(MemoryBackend.fresh(objects), "restore")
        assert [(f.severity, f.check, f.step) for f in found.findings] == [("error", "digest", step)]
        assert found.lost == (step,)
        with lcstore.open(MemoryBackend.fresh(objects), "r") as store, pytest.raises(lcstore.CorruptionError):
            store.restore(step)
        _, report = mended(objects, "restore")
        assert [loss.step for loss in report.lost] == [step]


def test_a_frame_that_does_not_decode_is_set_aside(whole):
    """The bytes are as committed, and are no frame."""
    chunk = object_at(whole[0], 60, "weights-float32.add/c.0")
    spoiled = whole[0] | {chunk: b"no frame"}

    def change(record: NodeRecord) -> NodeRecord:
        refs = [ObjectRef.of(chunk, b"no frame") if r.key == chunk else r for r in record.edge.objects]
        return replace(record, edge=with_part(record.edge, objects=tuple(refs)))

    objects = reworded(spoiled, 60, change)
    assert verify(MemoryBackend.fresh(objects), "checksum").ok
    for level in ("decode", "restore"):
        found = verify(MemoryBackend.fresh(objects), level)
        assert [(f.severity, f.key) for f in found.findings] == [("error", chunk)]
        _, report = mended(objects, level)
        assert losses(report) == [(60, "state")]


def test_what_a_repair_adds_is_not_gone_over_for_each_state(monkeypatch):
    """Of a run whose data is lost: twice the states took four times as long."""
    looks = itertools.count()
    honest = markkeys.CondemnedName.blocks

    def blocks(name: markkeys.CondemnedName) -> bool:
        next(looks)
        return honest.__get__(name)

    monkeypatch.setattr(markkeys.CondemnedName, "blocks", property(blocks))

    def cost(states: int) -> int:
        backend = MemoryBackend.fresh()
        with lcstore.open(backend, durability="none") as store:
            for step in range(states):
                store.save(step, {"model": {"weight": np.full((8, 8), step + 1, np.float32)}})
        for key in backend.list(keys.DATA):
            backend.delete(key)
        before = next(looks)
        assert len(repair(backend, dry_run=True).lost) == states
        return next(looks) - before

    assert 0 < cost(40) < 2.5 * cost(20)


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_repair_holds_single_objects(tmp_path, dry_run):
    """Whatever is rebuilt and set aside: a store may be damaged in more places than memory has room for."""
    with lcstore.open(tmp_path / "run", policy="lossless") as store:
        for step in range(24):
            values = np.random.default_rng(step).normal(size=1 << 18).astype(np.float32)
            store.save(step, {"model": values})
    damaged = [path for path in (tmp_path / "run" / "data").rglob("c.0") if path.stat().st_size > 100_000]
    for path in damaged:
        data = bytearray(path.read_bytes())
        data[1000] ^= 1
        path.write_bytes(data)
    repair(LocalBackend(tmp_path / "run"), dry_run=True, level="structure")  # imports do not count
    tracemalloc.start()
    try:
        report = repair(LocalBackend(tmp_path / "run"), dry_run=dry_run)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    deeds = [action.deed for action in report.actions]
    assert (deeds.count("quarantine"), deeds.count("rebuild")) == (len(damaged), len(damaged))
    assert peak < sum(path.stat().st_size for path in damaged) / 2


@pytest.mark.parametrize("resumed", [False, True])
def test_the_latest_state_that_a_repair_leaves_is_not_let_go_of(resumed):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        for step in range(3 if resumed else 4):
            store.save(step, state(step))
    with lcstore.open(backend, durability="none") as store:
        if resumed:
            store.resume()
            store.save(3, state(3))
        folder = keys.edge_folder(store._index.record(store.info(3).node).edge.id)
    for key in backend.list(folder):
        if "weights" in key and "/c." in key:
            backend.delete(key)
    with lcstore.open(backend, "r+") as store:
        store.repair()
        assert store.steps() == [0, 1, 2]
        with pytest.raises(lcstore.InvalidInputError, match="step 2 is the latest state of run 1"):
            store.retire(2)
        store.retire(1)
        assert store.steps() == [0, 2]
        store.retain("every:1000")
        assert store.steps() == [0, 2]


def test_chunks_of_a_family_that_were_misread_stay():
    """Each is rebuilt from the other as it is stored; neither goes before there is one in its place."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, threads=1, policy="lossless") as store:
        for step in range(2):
            rng = np.random.default_rng(step)
            store.save(step, {"w": rng.standard_normal((1200, 1200)).astype(np.float32)})
        wanted = [store.restore(step)["w"] for step in range(2)]
    arrays = defaultdict(list)
    for key in backend.list(keys.DATA):
        if "/c." in key:
            arrays[key.rpartition("/")[0]].append(key)
    two = sorted(next(found for found in arrays.values() if len(found) > 1))[:2]

    class Flaky(FaultBackend):
        def get(self, key, start=None, end=None):
            data = bytearray(super().get(key, start, end))
            if key in two and misread[key] < 2:
                misread[key] += 1
                data[-1] ^= 1
            return bytes(data)

    for dry_run in (True, False):
        misread = dict.fromkeys(two, 0)
        report = repair(Flaky(backend), dry_run=dry_run)
        assert {action.key for action in report.actions if action.deed == "rebuild"} == {*two}
        assert losses(report) == []
    with lcstore.open(backend, "r") as reader:
        assert reader.verify("decode").ok
        for step, values in enumerate(wanted):
            assert same(reader.restore(step)["w"], values)


def test_what_cannot_be_made_again_leaves_what_is_there():
    below = MemoryBackend.fresh({"a": b"old"})
    overlay = Overlay(below)

    def fails() -> bytes:
        raise lcstore.StorageError("went away", key="b")

    overlay.move("a", "aside")
    overlay.put_made("a", fails)
    with pytest.raises(lcstore.StorageError, match="went away"):
        [*overlay.apply()]
    assert below.snapshot() == {"a": b"old", "aside": b"old"}


def test_an_exact_value_that_is_all_there_is_of_a_state_is_not_let_go_of_by_a_rule():
    rng, backend = np.random.default_rng(0), MemoryBackend.fresh()

    def tree(step: int) -> dict[str, object]:
        weight = rng.standard_normal((64, 64)).astype(np.float32)
        moments = {"step": np.float32(step), "exp_avg": weight * 1e-3, "exp_avg_sq": weight**2 * 1e-6}
        return {"model": {"a.weight": weight}, "optim": {"state": {"a.weight": moments}}}

    with lcstore.open(backend, grace=0, threads=1, durability="none") as store:
        store.save(0, tree(0))
        exact = tree(1)
        node = store.save(1, exact, exact=True).node
        store.save(2, tree(2), exact=True)
        edge = store._index.record(node).edge.id
    key = f"data/{edge}/0/second-float32.set/c.0"
    data = backend.get(key)
    backend.delete(key)
    backend.put(key, data[: len(data) // 2])
    with lcstore.open(backend, grace=0, threads=1) as store:
        assert not store.repair().lost
        assert same(store.restore(1), exact)
        for _ in range(2):
            report = store.retain("exact-only:latest:1")
            assert any("step 1 keeps its exact value" in note for note in report.notes)
            store.collect()
        assert same(store.restore(1), exact)
        assert store.verify("decode").ok
        store.save(3, tree(3))
        assert [one.step for one in store.retain("exact-only:latest:1").retired] == [2]
