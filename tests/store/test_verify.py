"""`verify` finds every kind of damage, names the object, and says what it costs."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from blake3 import blake3
from meetings import Meanwhile

import lcstore
from lcstore.check.findings import VerifyReport
from lcstore.check.verify import verify
from lcstore.format import keys
from lcstore.format.marks import CondemnedRecord, RetiredRecord, TagRecord
from lcstore.storage.memory import MemoryBackend

CREATED = "2026-01-01T00:00:00Z"


def state(step: int) -> dict[str, object]:
    rng = np.random.default_rng(7)
    w, moved = rng.standard_normal((2, 64, 32), dtype=np.float32)
    w = w + np.float32(step / 100) * moved
    return {
        "model": {"w": w, "bias": w[0]},
        "adam": {"m": {"w": w / 10}, "v": {"w": w * w}},
        "log": "long " * 20_000 if step == 20 else "short",
        "step": step,
    }


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    """Five states: an exact one in the middle, one with many plain values, tags, and a second run."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="none") as store:
        store.save(0, state(0), tags=["first"])
        store.save(10, state(10), exact=True)
        store.save(20, state(20), tags=["big"])
        store.save(30, state(30))
    with lcstore.open(backend, durability="none") as store:
        store.resume(20)
        store.save(40, state(40))
    return {key: backend.get(key) for key in backend.list("")}


def node_at(objects: dict[str, bytes], step: int) -> str:
    return next(key for key in objects if key.startswith(f"nodes/{step:019d}"))


def look(objects: dict[str, bytes], level: str = "checksum") -> VerifyReport:
    backend = MemoryBackend.fresh(objects)
    before = {key: backend.get(key) for key in backend.list("")}
    report = verify(backend, level)
    assert {key: backend.get(key) for key in backend.list("")} == before, "verify changed the store"
    return report


def named(report: VerifyReport) -> set[str | None]:
    return {finding.key for finding in report.findings}


@pytest.mark.parametrize("level", ["structure", "checksum"])
def test_a_whole_store_is_good(objects, level):
    report = look(objects, level)
    assert report.ok
    assert report.findings == ()
    assert (report.states, report.lost, report.good) == (5, (), 40)
    assert (report.bytes_read > 0) == (level == "checksum")


def test_every_flipped_bit_is_found(objects):
    rng = random.Random(1)
    for key, data in objects.items():
        for _ in range(6):
            at = rng.randrange(len(data) * 8)
            bad = bytearray(data)
            bad[at // 8] ^= 1 << (at % 8)
            report = look(objects | {key: bytes(bad)})
            assert key in named(report), (key, at)


def test_every_byte_of_the_store_record_counts(objects):
    data = objects[keys.STORE_KEY]
    for at in range(len(data)):
        bad = bytearray(data)
        bad[at] ^= 1
        assert keys.STORE_KEY in named(look(objects | {keys.STORE_KEY: bytes(bad)}, "structure")), at


@pytest.mark.parametrize("level", ["structure", "checksum"])
def test_every_wrong_length_is_found(objects, level):
    for key, data in objects.items():
        for bad in (b"", data[:-1], data[: len(data) // 2], data + b"x"):
            assert key in named(look(objects | {key: bad}, level)), (key, len(bad))


@pytest.mark.parametrize("level", ["structure", "checksum"])
def test_every_deleted_object_is_missed(objects, level):
    for key in objects:
        report = look({k: v for k, v in objects.items() if k != key}, level)
        said = " ".join(f"{finding.key} {finding.message}" for finding in report.findings)
        if not key.startswith("nodes/"):
            assert key in named(report), key
            continue
        # A name that is gone is told by those that point to it, or by what it left.
        node = keys.parse_node_key(key)
        names = [keys.parse_node_key(k) for k in objects if k.startswith("nodes/")]
        stands_below = any(name.base == node.node for name in names)
        assert report.ok != stands_below, key
        assert node.node in said if stands_below else "of no record" in said


def test_what_speaks_of_a_state_whose_record_and_copy_are_lost_is_noted():
    """A shortcut that leads to it, and a pin: it was neither let go of nor never saved."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="default") as store:
        for step in range(0, 200, 10):
            store.save(step, state(step))
        store.maintain(lcstore.LatestN(1) | lcstore.EveryNSteps(50))
        assert "lost" not in noted_of(backend)
        merged = next(key for key in backend.list("edges") if store.at(100).node in key[:40])
        for step in (100, 190):
            store.pin(step, by="paper")
        store.pin(50)
        store.unpin(50)
        gone = [store.at(step).node for step in (50, 100, 190)]
    for node in gone:
        key = next(key for key in backend.list("nodes") if keys.parse_node_key(key).node == node)
        backend.delete_many([key, f"copies/{node}.json"])
    said = noted_of(backend)
    assert f"{merged} it leads to a state that is not there any more: collected as this was made, or" in said
    lost = "is of no state that is there; the record of that state and its second copy are lost, or the pin"
    for node in gone[1:]:
        assert f"pin '{node} paper' {lost}" in said
    assert f"pin '{gone[0]}' is of no state that is there; it was taken away" in said
    assert "of no record: left by an interrupted save, or of one under way; or the record of that" in said


def test_a_pinned_state_whose_record_is_lost_is_missed_until_it_is_unpinned():
    """It was a note, and a night ended with status 0: nobody heard that what was held is not there."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, durability="default") as store:
        for step in (0, 10):
            store.save(step, state(step))
        node = store.pin(10, by="paper")
    key = next(key for key in backend.list("nodes") if keys.parse_node_key(key).node == node)
    backend.delete_many([key, f"copies/{node}.json"])
    report = verify(backend)
    assert (report.ok, report.is_sound, report.next) == (True, False, "lcstore cp COPY {url} --check")
    assert f"lcstore unpin URL@{node}" in report.wrong
    with lcstore.open(backend, "r+") as store:
        assert store.maintain("latest:3").problems.keys() == {"verify"}
    with lcstore.open(backend, "r+") as store:
        with pytest.raises(lcstore.NotFoundError):
            store.unpin(node, by="eve")
        assert store.unpin(node) == 1
        with pytest.raises(lcstore.NotFoundError):
            store.unpin(node)
    assert verify(backend).is_sound


def noted_of(backend: MemoryBackend) -> str:
    """Return what is noted of a store, one note a line."""
    return "\n".join(f"{one.key} {one.message}" for one in verify(backend).findings)


def test_every_two_objects_that_change_places_are_found(objects):
    names = sorted(objects)
    for first, second in pairwise(names):
        if objects[first] == objects[second]:
            continue
        report = look(objects | {first: objects[second], second: objects[first]})
        assert {first, second} <= named(report)


def test_damage_is_told_with_what_it_costs(objects):
    chunk = next(k for k in objects if k.endswith("weights-float32.add/c.0") and _edge(objects, 20) in k)
    report = look(objects | {chunk: b"?" * len(objects[chunk])})
    assert not report.ok
    assert report.lost == (20, 30, 40)
    assert report.good == 10
    [finding] = report.findings
    assert (finding.severity, finding.key, finding.step) == ("error", chunk, 20)
    assert finding.next == f"lcstore show {report.url}@10"
    assert look(objects | {chunk: b"?" * len(objects[chunk])}, "structure").ok  # the length is right


def test_a_lost_base_is_one_finding_for_all_that_stand_on_it(objects):
    report = look({k: v for k, v in objects.items() if k != node_at(objects, 0)}, "structure")
    paths = [(f.severity, f.key) for f in report.findings if f.check == "path"]
    # Of step 10 the exact value is there: that it stands on nothing costs it nothing but its future.
    assert paths == [("error", node_at(objects, 20)), ("warning", node_at(objects, 10))]
    assert "2 states" in next(f.message for f in report.findings if f.check == "path")
    assert report.lost == (20, 30, 40)
    assert report.good == 10


def test_what_is_lost_is_what_restore_refuses(objects):
    for key in objects:
        if not key.startswith("data/") or key.endswith("zarr.json"):
            continue
        damaged = objects | {key: b"?" * len(objects[key])}
        lost = set(look(damaged).lost)
        with lcstore.open(MemoryBackend.fresh(damaged), "r") as store:
            for step in store.steps():
                if step not in lost:
                    store.restore(step)
                else:
                    with pytest.raises(lcstore.CorruptionError):
                        store.restore(step)


def test_foreign_names_are_told(objects):
    report = look(objects | {"notes/mine.txt": b"x", "data/mine": b"x"})
    assert report.ok
    found = {(f.severity, f.key) for f in report.findings}
    assert found == {("warning", "notes/mine.txt"), ("warning", "data/mine")}


@pytest.mark.parametrize("folder", ["nodes", "edges", "layouts", "names", "retired", "condemned"])
def test_a_foreign_name_among_records_is_an_error(objects, folder):
    report = look(objects | {f"{folder}/mine.json": b"{}"})
    assert [(f.severity, f.key) for f in report.findings] == [("error", f"{folder}/mine.json")]
    assert "repair" not in (report.findings[0].next or "")


@pytest.mark.parametrize("left", [0, -1])
@pytest.mark.parametrize("what", [TagRecord, RetiredRecord, CondemnedRecord])
def test_a_damaged_mark_is_told_with_the_repair_that_writes_it_again(objects, what, left):
    node = keys.parse_node_key(node_at(objects, 10)).node
    mark = {
        TagRecord: TagRecord("good", node, 1, CREATED),
        RetiredRecord: RetiredRecord(node, "old", CREATED),
        CondemnedRecord: CondemnedRecord("3" * 32, None, "edge", CREATED),
    }[what]
    damaged = objects | {mark.key(): mark.to_bytes()[:left]}
    (found,) = [one for one in look(damaged).findings if one.key == mark.key()]
    assert (found.severity, str(found.next).partition(" mem")[0]) == ("error", "lcstore repair")
    backend = MemoryBackend.fresh(damaged)
    with lcstore.open(backend) as store:
        store.repair()
    assert verify(backend).ok
    assert mark.key() not in {one.key for one in verify(backend).findings if one.severity == "error"}


def test_what_an_interrupted_save_leaves_is_harmless(objects):
    edge = "0" * 32
    tag = TagRecord("never", "1" * 32, 1, CREATED)
    left = {f"data/{edge}/0/zarr.json": b"{}", f"data/{edge}/0/a.set/c.0": b"", tag.key(): tag.to_bytes()}
    report = look(objects | left)
    assert report.ok
    assert {(f.severity, f.key) for f in report.findings} == {("info", f"data/{edge}"), ("info", tag.key())}
    assert "2 objects" in next(f.message for f in report.findings if f.check == "orphan")


def test_what_a_record_accounts_for_is_not_missed(objects):
    leaf = node_at(objects, 30)
    edge = _edge(objects, 30)
    condemned = CondemnedRecord(edge, None, "edge", CREATED)
    rest = {key: data for key, data in objects.items() if edge not in key}
    assert not look(rest).ok
    rest[condemned.key()] = condemned.to_bytes()
    report = look(rest)
    assert [(f.severity, f.check, f.key) for f in report.findings] == [("error", "state", leaf)]
    assert report.lost == (30,)
    let_go = RetiredRecord(keys.parse_node_key(leaf).node, "old", CREATED)
    report = look(rest | {let_go.key(): let_go.to_bytes()})
    assert report.findings == ()
    assert (report.states, report.lost) == (4, ())
    # A retired node whose record went first: nobody is missing it.
    gone = keys.parse_node_key(node_at(objects, 20)).node
    retired = RetiredRecord(gone, "old", CREATED)
    without = {key: data for key, data in objects.items() if key != node_at(objects, 20)}
    report = look(without | {retired.key(): retired.to_bytes()})
    assert "parent" not in {finding.check for finding in report.findings}


def test_two_writers_of_one_run_are_told():
    backend = MemoryBackend.fresh()
    first, second = (lcstore.open(backend, durability="none") for _ in range(2))
    with first, second:
        first._writer.run = second._writer.run = 1
        first.save(1, {"x": 1})
        second.save(1, {"x": 2})
        report = first.verify()
    assert report.ok
    assert [(f.severity, f.check) for f in report.findings] == [("warning", "run")]


def test_no_store_is_not_a_good_store():
    with pytest.raises(lcstore.NotFoundError):
        verify(MemoryBackend.fresh())


def test_a_newer_format_says_upgrade(objects):
    rest = b'"features":[],"format":9,"grace_seconds":86400,"kind":"store"}'
    newer = b'{"_hash":"%s",%s' % (blake3(rest).hexdigest().encode(), rest)
    with pytest.raises(lcstore.UnsupportedFormatError, match="upgrade lcstore"):  # it is no damage
        look(objects | {keys.STORE_KEY: newer})


def test_progress_counts_up_to_all(objects):
    seen: dict[str, list[tuple[int, int]]] = {}

    def on_progress(phase: str, done: int, total: int) -> None:
        seen.setdefault(phase, []).append((done, total))

    verify(MemoryBackend.fresh(objects), "checksum", on_progress)
    for counts in seen.values():
        assert [done for done, _ in counts] == list(range(1, len(counts) + 1))
        assert counts[-1] == (len(counts), len(counts))
    assert {"nodes", "layouts", "objects"} <= set(seen)


def test_stats_count_every_byte(objects):
    with lcstore.open(MemoryBackend.fresh(objects), "r") as store:
        stats = store.stats()
    assert stats.bytes_stored["total"] == sum(map(len, objects.values()))
    assert (stats.states, stats.steps, stats.runs, stats.anchors, stats.deltas) == (5, 5, 2, 1, 4)
    assert sum(stats.pools.values()) == sum(len(v) for k, v in objects.items() if k.startswith("data/"))
    assert stats.bytes_raw["total"] == 5 * (3 * 64 * 32 + 32) * 4
    assert (stats.orphans, stats.unreadable) == (0, {})


def test_stats_tell_what_they_could_not_count(objects):
    key = node_at(objects, 30)
    orphan = f"data/{'0' * 32}/0/zarr.json"
    with lcstore.open(MemoryBackend.fresh(objects | {key: b"?", orphan: b"12345"}), "r") as store:
        stats = store.stats()
    assert set(stats.unreadable) == {key}
    assert stats.orphans > 1
    assert stats.orphan_bytes >= 5


def test_states_are_listed_with_what_cannot_be_read(objects):
    key = node_at(objects, 10)
    with lcstore.open(MemoryBackend.fresh(objects | {key: b"?"}), "r") as store:
        states = store.states()
        names = store.states(records=False)
        last = store.states(limit=2)
    assert [s.step for s in states] == [s.step for s in names] == [0, 10, 20, 30, 40]
    assert [s.problem is not None for s in states] == [False, True, False, False, False]
    assert [s.info is None for s in names] == [True] * 5
    assert [s.tags for s in states] == [("first",), (), ("big",), (), ()]
    assert [s.step for s in last] == [30, 40]
    assert [s.latest for s in last] == [False, True]


def _edge(objects: dict[str, bytes], step: int) -> str:
    from lcstore.format.records import NodeRecord

    key = node_at(objects, step)
    return NodeRecord.from_bytes(objects[key], key=key).edge.id


def test_what_a_run_stood_on_that_was_let_go_of_is_no_error():
    """A run whose state another's rewind took the place of goes on: what it saved first stands on nothing.

    That state was there when the run looked for it, and went before the record that names it came.
    """
    backend = MemoryBackend.fresh()

    def collect() -> None:
        with lcstore.open(backend, durability="none") as other:
            for _ in range(3):
                other.collect()

    with lcstore.open(backend, grace=0, durability="none") as one:
        for step in range(3):
            one.save(step, state(step))
        with lcstore.open(backend, durability="none") as other:
            other.rewind(0)
            other.save(100, state(50))
            other.retain("latest:1")
            other.compact()
        one._writer.backend = Meanwhile(backend, "put", keys.NODES, collect, after=False)
        with pytest.warns(lcstore.BesideWarning):
            one.save(3, state(3))
        one.save(4, state(4))
    with lcstore.open(backend, "r") as reader:
        report = reader.verify("checksum")
        assert report.ok, report
        assert [found.severity for found in report.findings if found.check == "parent"] == ["info"]
