"""Letting go of states on a disk that is full to the last block: what is redundant of them makes the room."""

import contextlib

import numpy as np
import pytest
from conftest import Run
from kit.clocks import put_forward
from kit.fulldisk import Disk, left

import lcstore
from lcstore.durability import NAMED
from lcstore.format import keys
from lcstore.format.markkeys import WHOLE_STATE
from lcstore.maintain.redundant import redundant_of
from lcstore.testing import every_point

#: Each lets go of states in another way.
WAYS = {
    "retain": lambda store: store.retain("latest:2"),
    "retire a run's end": lambda store: store.retire_run(1, after=3, run_is_dead=True),
    "retire": lambda store: store.retire(5),
    "strip": lambda store: store.retain("latest:99 | strip:optim/**:latest:1 | exact-only:latest:1"),
}


def opened(backend, **options):
    return lcstore.open(backend, "r+", threads=1, **options)


@pytest.fixture(scope="module")
def objects():
    """A store with parity and second copies, of states some of which are exact."""
    disk, run = Disk.fresh(), Run()
    with lcstore.open(disk, grace=0, threads=1, durability="all") as store:
        for step in range(12):
            store.save(step, run.step(), exact=step % 4 == 1)
    return disk.snapshot()


def values(store):
    """Return of each state what it gives back, as bytes."""
    return {one.node: _bytes(store.restore(one.node, names="model")) for one in store.states()}


def _bytes(state):
    if isinstance(state, dict):
        return {name: _bytes(part) for name, part in state.items()}
    if isinstance(state, list):
        return [*map(_bytes, state)]
    return np.asarray(state).tobytes()


def found(store):
    """Return what `verify` finds wrong."""
    return [one for one in store.verify("checksum").findings if one.severity != "info"]


def marks_aside(backend):
    return {key for key in left(backend) if not key.startswith(("retired/", "names/"))}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("blocks", range(6))
def test_with_any_number_of_free_blocks_states_are_let_go_of_and_collected(objects, way, blocks):
    roomy, disk = Disk.fresh(objects), Disk.fresh(objects)
    with opened(roomy) as store:
        wanted = WAYS[way](store)
        store.collect()
        kept = values(store)
    disk.blocks = disk.used + blocks
    with opened(disk) as store:
        assert str(WAYS[way](store)) == str(wanted)
        assert disk.blocks - disk.used >= 2
        assert not found(store)
        assert values(store) == kept
        store.collect()
        assert marks_aside(disk) == marks_aside(roomy)
        assert values(store) == kept
        assert store.verify("restore").ok


@pytest.mark.parametrize("grace", [0, 3600])
@pytest.mark.parametrize("blocks", range(4))
def test_with_any_number_of_free_blocks_what_was_let_go_of_before_is_collected(objects, blocks, grace):
    roomy = Disk.fresh(objects)
    with opened(roomy) as store:
        store.retain("latest:2")
        kept = values(store)
    disk = Disk.fresh(roomy.snapshot())
    disk.blocks = disk.used + blocks
    reports = []
    for backend in (roomy, disk):
        with opened(backend) as store:
            reports.append(store.collect(grace=grace))
            assert values(store) == kept
            assert not found(store)
    wanted, report = reports
    assert (report.condemned, report.deleted_states) == (wanted.condemned, wanted.deleted_states)
    assert report.uncondemned == 0
    if not grace:
        assert marks_aside(disk) == marks_aside(roomy)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "strip"])
def test_a_crash_at_any_operation_leaves_states_that_restore_and_what_a_repair_makes_again(objects, way):
    with opened(Disk.fresh(objects)) as store:
        before = values(store)
        WAYS[way](store)
        after, kept = values(store), store.steps()

    def full():
        disk = Disk.fresh(objects)
        disk.blocks = disk.used
        return disk

    def let_go(backend):
        with opened(backend) as store:
            WAYS[way](store)

    lacking = 0
    for point in every_point(full, let_go):
        disk = point.backend
        if disk.snapshot() == objects:
            continue
        with opened(disk) as store:
            there = values(store)
            assert after.keys() <= there.keys()
            assert all(before[node] == value for node, value in there.items())
            lack = found(store)
            lacking += bool(lack)
            assert all(one.severity == "warning" for one in lack)
            disk.blocks += 100
            if lack:
                store.repair(dry_run=False)
            assert not found(store)
            disk.blocks = disk.used
            while store.steps() != kept:
                with contextlib.suppress(lcstore.StorageError):  # some of what the crash left takes room
                    WAYS[way](store)
                store.collect()
            assert values(store) == after
            assert not found(store)
    assert lacking


def test_a_night_on_a_full_disk_makes_room_and_the_run_goes_on(objects):
    disk, run = Disk.fresh(objects), Run()
    disk.blocks = disk.used
    with opened(disk) as store, pytest.raises(lcstore.StorageError, match="no room"):
        store.save(20, run.step())
    with opened(disk) as store:
        report = store.maintain("latest:2")
        assert "retain" not in report.problems
        assert store.steps() == [10, 11]
        store.collect()
    with lcstore.CheckpointManager(disk, every=1) as manager:
        manager.save(20, run.step())
    with lcstore.open(disk, "r") as store:
        assert store.steps() == [10, 11, 20]


@pytest.mark.filterwarnings("ignore::lcstore.FallbackWarning")
def test_a_night_that_finds_too_little_room_asks_for_room_and_for_no_repair(monkeypatch):
    """Parity of states that there was no record for in the end was taken to make room, too."""
    disk, random = Disk.fresh(), np.random.default_rng(0)
    weights = random.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(disk, threads=1, durability="all") as store:
        for step in range(18):
            weights = weights + random.standard_normal((64, 64)).astype(np.float32) * np.float32(0.01)
            store.save(step, {"model": {"w": weights}, "optim": {"state": {0: {"exp_avg": weights}}}})
    disk.blocks = disk.used
    with opened(disk) as store:
        report = store.maintain("latest:3", max_bytes=0)
        assert report.verified.mendable
        assert list(report.problems) == ["retain"]
        assert report.next == f"lcstore collect {disk.url} --grace 0 --run-is-dead --apply"
        assert "damage" not in str(report)
    key = next(key for key in disk.snapshot() if key.startswith(f"nodes/{17:019d}"))
    disk.put(key, b"x")  # other damage is told beside it
    put_forward(monkeypatch, 24 * 3600)
    with opened(disk) as store:
        report = store.maintain("latest:3", max_bytes=0)
        assert list(report.problems) == ["collect", "verify"]
        assert report.next == f"lcstore cp {disk.url} TO"  # what is condemned is too new


def test_a_store_that_made_room_of_parity_is_copied_also_once_its_states_are_back(objects):
    """A copy was refused as of a damaged store, and is what all say that helps on a full disk."""
    disk, target = Disk.fresh(objects), Disk.fresh()
    disk.blocks = disk.used
    with opened(disk) as store:
        assert store.retain("latest:2").retired
        kept = values(store)
        lcstore.copy(disk, target)
        with opened(target) as copied:
            assert values(copied) == kept
            assert not found(copied)
        disk.blocks += 8
        assert store.unretire()
        back = values(store)
    assert len(back) > len(kept)
    target = Disk.fresh()
    lcstore.copy(disk, target)
    with opened(target) as store:
        assert values(store) == back
        store.repair(dry_run=False)
        assert not found(store)


@pytest.mark.parametrize("blocks", range(4))
def test_what_was_brought_back_is_let_go_of_again_on_a_full_disk(objects, blocks):
    """The pin by which it came back counted as one of a user: no later night let go of anything."""
    disk = Disk.fresh(objects)
    with opened(disk) as store:
        store.retain("latest:2")
        assert store.unretire().brought_back
        store.pin(3)
        disk.blocks = disk.used + blocks
        store.retain("latest:2")
        assert store.steps() == [3, 10, 11]
        assert not found(store)


def test_what_was_pinned_meanwhile_and_what_is_kept_keeps_all_that_is_redundant_of_it(objects):
    disk = Disk.fresh(objects)
    with opened(disk) as store:
        nodes = [store.info(step).node for step in store.steps()]
        pinned = nodes[8]
        store.pin(pinned)
        going = [(node, WHOLE_STATE) for node in nodes[4:]]
        spare = redundant_of(disk, store._index, store.durability, going)
        edge = keys.edge_folder(store._index.record(pinned).edge.id)
        assert spare
        assert not [key for key in spare if key.startswith(edge) or pinned in key]
        disk.delete_many(spare)
        store.retire_run(1, after=3, run_is_dead=True)
        assert store.steps() == [0, 1, 2, 3, 8]
        assert not found(store)


def test_of_a_damaged_store_nothing_counts_as_redundant(objects):
    disk = Disk.fresh(objects)
    with opened(disk) as store:
        nodes = [store.info(step).node for step in store.steps()]
        own = store._index.record(nodes[0]).edge
        disk.delete_many(disk.list(keys.edge_folder(own.id)))
        assert redundant_of(disk, store._index, NAMED["default"], [(nodes[5], WHOLE_STATE)]) == []
