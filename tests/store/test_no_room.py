"""Collecting on a disk that is full: room is made on the way, and where that cannot be it is said."""

import contextlib
import errno
import re
import traceback

import numpy as np
import pytest
from conftest import Run
from kit.clocks import put_forward
from kit.fulldisk import BLOCK, Disk, left

import lcstore
from lcstore.compaction import compact
from lcstore.storage.memory import MemoryBackend


@pytest.fixture
def disk():
    """A disk with a store that collects at once, of which all but the last state were let go."""
    disk = Disk.fresh()
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(disk, grace=0, durability="none", threads=1) as store:
        for step in range(8):
            weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(0.01)
            store.save(step, {"model": {"weight": weight}}, exact=True)
        store.retain("latest:1")
        store.compact()
    return disk


@pytest.fixture
def wanted(disk):
    with lcstore.open(disk, "r") as store:
        return store.restore("latest")["model"]["weight"]


def collected(backend):
    with lcstore.open(backend, "r+", threads=1) as store:
        return store.collect(), store.restore("latest")["model"]["weight"], store.verify("restore").ok


@pytest.mark.parametrize("blocks", [1, 2, 5])
def test_a_block_is_enough_to_collect_what_goes(disk, wanted, blocks):
    roomy = Disk.fresh(disk.snapshot())
    all_of_it, _, _ = collected(roomy)
    disk.blocks = disk.used + blocks
    report, value, sound = collected(disk)
    assert np.array_equal(value, wanted)
    assert sound
    assert left(disk) == left(roomy)
    for name in ("condemned", "deleted_objects", "deleted_bytes", "deleted_states", "kept_states"):
        assert getattr(report, name) == getattr(all_of_it, name), name


def test_no_room_at_all_is_said_and_nothing_is_lost(disk, wanted):
    disk.blocks = disk.used
    before = disk.snapshot()
    with lcstore.open(disk, "r+", threads=1) as store:
        with pytest.raises(lcstore.StorageError, match=r"there is no room on .* delete anything else there"):
            store.collect()
        assert disk.snapshot() == before
        assert np.array_equal(store.restore("latest")["model"]["weight"], wanted)


def test_what_was_condemned_before_makes_room(disk, wanted, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(Disk, "delete_many", fail)
        with lcstore.open(disk, "r+", threads=1) as store, pytest.raises(lcstore.StorageError, match="gone"):
            store.collect()
    disk.blocks = disk.used
    report, value, sound = collected(disk)
    assert report.deleted_objects > 0
    assert np.array_equal(value, wanted)
    assert sound


def fail(self, keys):
    raise lcstore.StorageError("the target is gone")


def test_a_loop_on_a_full_disk_is_told_what_to_do_in_few_lines(disk):
    disk.blocks = disk.used
    with lcstore.CheckpointManager(disk, every=1) as manager:
        manager.save(10, {"model": {"weight": np.ones((64, 64), np.float32)}})
        with pytest.raises(lcstore.StorageError) as caught:
            manager.save(11, {"model": {"weight": np.ones((64, 64), np.float32)}})
    url = disk.url
    assert f"there is no room left on {url} (No space left on device)" in str(caught.value)
    assert f"which always helps, copy the store to another disk: `lcstore cp {url} TO`" in str(caught.value)
    assert "silent for twice as long as its saves were apart (a minute at least)" in str(caught.value)
    commands = re.findall("`lcstore ([^`]+)`", str(caught.value))
    assert commands == [
        f"cp {url} TO",
        f"retain {url} --keep latest:3 --apply",
        f"collect {url} --grace 0 --run-is-dead --apply",
    ]
    assert sum(text.count("\n") for text in traceback.format_exception(caught.value)) < 30


def test_a_copy_to_a_full_disk_is_told_what_to_do_with_the_half_of_it(disk, tmp_path):
    full = Disk(str(tmp_path))
    full.blocks = 3
    for name in ("copy", "remove"):
        with pytest.raises(lcstore.StorageError, match="what was copied so far is no store yet") as caught:
            lcstore.copy(disk, full)
        assert re.findall("`lcstore ([^`]+)`", str(caught.value)) == [f"rm {full.url} --apply"]
        if name == "remove":
            lcstore.remove(full)
            assert not full.snapshot()
        full.blocks = 1 << 30
        lcstore.copy(disk, full)
        assert full.snapshot() == disk.snapshot()
        full.delete_many(full.snapshot())
        full.blocks = 3


def test_maintaining_on_a_full_disk_tells_what_to_do(disk):
    with lcstore.open(disk, "r+", threads=1) as store:
        for step in range(10, 12):
            store.save(step, {"model": {"weight": np.ones((64, 64), np.float32)}})
        store.collect()
        disk.blocks = disk.used
        report = store.maintain("latest:1")
    assert "`lcstore collect " in str(report.problems["retain"])
    assert report.verified.ok


def test_letting_go_leaves_room_to_collect_and_both_in_turn_come_to_an_end():
    """The records of what is let go of take blocks too: they must not take the last one."""
    disk, rng = Disk.fresh(), np.random.default_rng(0)
    with lcstore.open(disk, grace=0, durability="none", threads=1) as store:
        for step in range(20):
            tensors = {name: rng.standard_normal((64, 64)).astype(np.float32) for name in "ab"}
            store.save(step, {"model": {"weight": tensors["a"]}, "more": tensors["b"]}, exact=True)
    roomy = Disk.fresh(disk.snapshot())
    disk.blocks = disk.used + 6
    told = []
    for _ in range(20):
        with lcstore.open(disk, "r+", threads=1) as store:
            try:
                store.retain("latest:2")
                break
            except lcstore.StorageError as error:
                told.append(str(error))
            assert disk.blocks - disk.used >= 2
            assert store.collect().deleted_objects > 0
    assert told[0].startswith("4 of 18 are let go of; there is no room on ")
    assert "do the same again" in told[0]
    assert re.findall("`lcstore ([^`]+)`", told[0]) == [f"collect {disk.url} --grace 0 --run-is-dead --apply"]
    assert not any("/clock/" in key or key.startswith("clock/") for key in disk.snapshot())
    with lcstore.open(roomy, "r+", threads=1) as store:
        store.retain("latest:2")
    assert [s.step for s in store_states(disk)] == [s.step for s in store_states(roomy)]


def test_of_plain_deltas_the_newest_states_make_room_and_older_ones_make_none():
    disk, rng = Disk.fresh(), np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(disk, grace=0, durability="none", threads=1) as store:
        for step in range(20):
            weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(0.01)
            store.save(step, {"weight": weight})
    disk.blocks = disk.used + 6
    older = Disk.fresh(disk.snapshot())
    older.blocks = disk.blocks
    with lcstore.open(older, "r+", threads=1) as store:
        with pytest.raises(lcstore.StorageError, match="4 of 18 are let go of"):
            store.retain("latest:2")
        assert store.collect().deleted_objects == 0
    with lcstore.open(disk, "r+", threads=1) as store:
        values = {step: store.restore(step)["weight"] for step in range(6)}
        for turn in range(20):
            with contextlib.suppress(lcstore.StorageError):
                store.retire_run(1, after=5, run_is_dead=True)
                break
            assert store.collect().deleted_objects > 0, turn
        assert turn > 0
        assert store.steps() == [*values]
        assert all(np.array_equal(store.restore(step)["weight"], values[step]) for step in values)
        assert store.verify("restore").ok


def store_states(backend):
    with lcstore.open(backend, "r") as store:
        return store.states()


def test_no_room_to_let_go_of_anything_is_said(disk):
    with lcstore.open(disk, "r+", threads=1) as store:
        for step in range(10, 12):
            store.save(step, {"model": {"weight": np.ones((64, 64), np.float32)}})
        disk.blocks, before = disk.used + 1, disk.snapshot()
        with pytest.raises(lcstore.StorageError, match=r"no room on .* that let go of .*delete any"):
            store.retain("latest:1")
    assert disk.snapshot() == before


def test_other_failures_are_raised_as_they_are(disk, monkeypatch):
    def refuse(self, key, data):
        raise PermissionError(errno.EACCES, "Permission denied")

    with lcstore.open(disk, "r+", threads=1) as store:
        monkeypatch.setattr(Disk, "_put", refuse)
        with pytest.raises(lcstore.StorageError, match="Permission denied"):
            store.collect()


@pytest.mark.parametrize(("url", "kept_free"), [("file:///nowhere/run", 1), ("s3://bucket/run", 0)])
def test_room_is_kept_free_where_a_target_can_be_full(url, kept_free):
    class Target(MemoryBackend):
        stored = 0

        def _put(self, key, data):
            self.stored += key.startswith("clock/") and data.nbytes > 0
            super()._put(key, data)

    target = Target.fresh()
    target._url = url
    with lcstore.open(target, durability="none", threads=1) as store:
        for step in range(3):
            store.save(step, {"a": np.arange(3.0) + step})
        store.retain("latest:1")
        assert target.stored == kept_free
        assert store.steps() == [2]


def test_a_copy_to_a_full_disk_that_has_one_is_not_told_to_delete_it(disk, tmp_path):
    full = Disk(str(tmp_path))
    lcstore.copy(disk, full)
    with lcstore.open(disk, "r+", threads=1) as store:
        store.pin("latest")
    full.blocks = full.used
    with pytest.raises(lcstore.StorageError, match="there is no room left") as caught:
        lcstore.copy(disk, full)
    assert "lcstore rm" not in str(caught.value)


class Clocked(Disk):
    """A disk whose clock can be put forward."""

    ahead = 0.0

    def _put(self, key, data):
        super()._put(key, data)
        with self._space.lock:
            kept, at = self._space.objects[key]
            self._space.objects[key] = kept, at + self.ahead


HOUR = 3600.0


@pytest.fixture
def waiting():
    """A full disk: what a first collect condemned waits for a grace, and more is let go of since."""
    disk, rng = Clocked.fresh(), np.random.default_rng(0)
    with lcstore.open(disk, grace="1h", durability="none", threads=1) as store:
        weight = np.zeros((64, 64), np.float32)
        for step in range(12):
            weight = weight + rng.standard_normal((64, 64)).astype(np.float32)
            store.save(step, {"model": {"weight": weight}}, exact=True)
        store.retain("latest:9")
        store.compact()
        assert store.collect().condemned
        store.retain("latest:1")
        store.compact()
    disk.blocks = disk.used
    return disk


def test_what_is_due_goes_though_there_is_no_room_to_condemn_more(waiting, monkeypatch):
    waiting.ahead = 2 * HOUR
    with lcstore.open(waiting, "r+", threads=1) as store:
        due = sum(1 for key in waiting.snapshot() if key.startswith("condemned/"))
        report = store.collect()
        assert report.deleted_objects >= due
        assert report.condemned > 0  # as far as what went makes room
        assert report.uncondemned > 0
        assert "no room to condemn" in str(report)
        for _night in range(2, 12):
            waiting.ahead += 2 * HOUR
            put_forward(monkeypatch, waiting.ahead)
            more = store.maintain("latest:1")
            if not more.collected.uncondemned and not more.collected.waiting:
                break
        assert more.ok
        assert store.verify("restore").is_sound
    assert len(store_states(waiting)) == 1
    assert not more.collected.waiting
    assert waiting.used < waiting.blocks


def test_where_nothing_is_due_the_ways_to_make_room_are_told(waiting):
    before = waiting.snapshot()
    with lcstore.open(waiting, "r+", threads=1) as store:
        with pytest.raises(lcstore.StorageError, match="there is no room on") as caught:
            store.collect()
        assert "deletes at once what was condemned before" in str(caught.value)
        assert re.findall("`lcstore ([^`]+)`", str(caught.value)) == [
            f"cp {waiting.url} TO",
            f"collect {waiting.url} --grace 0 --run-is-dead --apply",
        ]
    assert waiting.snapshot() == before


@pytest.mark.parametrize(("free", "done"), [(20, False), (130, False), (600, True)])
def test_a_compaction_leaves_room_to_let_go_of_states(monkeypatch, free, done):
    disk, run = Disk.fresh(), Run()
    with lcstore.open(disk, grace=0, threads=1) as store:
        for step in range(60):
            store.save(step, run.step())
        disk.blocks = disk.used + free
        monkeypatch.setattr(compact, "bytes_free", lambda at: BLOCK * (at.blocks - at.used))
        assert store.forecast().has_room is done
        if done:
            assert store.compact().skipped == ()
        else:
            with pytest.raises(lcstore.StorageError, match=f"lcstore retain {disk.url}"):
                store.compact()
        left = disk.blocks - disk.used
        assert left == free if free < 60 else 60 <= left < free
        while store.steps() != [59]:
            with contextlib.suppress(lcstore.StorageError):
                store.retain("latest:1")
            assert store.collect().deleted_objects
