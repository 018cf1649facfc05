"""The simulated disk loses what POSIX lets it lose, and nothing else; a local store outlives power cuts."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections import Counter

import numpy as np
import pytest
from kit import power_loss
from runs import RUNS, Recorded, record

import lcstore
from lcstore.errors import InvalidInputError
from lcstore.format import markkeys
from lcstore.format.marks import RetiredRecord, TagRecord
from lcstore.format.records import utc_now
from lcstore.storage import local
from lcstore.storage.local import LocalBackend
from lcstore.testing import Crash

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux only")]

SEEDS = range(400)


@pytest.fixture
def top(tmp_path):
    path = tmp_path / "top"
    path.mkdir()
    return path


def write(path, data, *, sync=False):
    fd = local.os.open(path, os.O_WRONLY | os.O_CREAT)
    local.os.write(fd, data)
    if sync:
        local.os.fsync(fd)
    local.os.close(fd)


def sync_folder(path):
    fd = local.os.open(path, os.O_RDONLY)
    local.os.fsync(fd)
    local.os.close(fd)


def found(disk, at=None):
    """Everything that may be found, and how often."""
    return Counter(repr(sorted(disk.found(seed, at).items())) for seed in SEEDS)


def paths(disk, at=None):
    return {path for seed in SEEDS for path in disk.found(seed, at)}


def always(disk, path, at=None):
    return all(path in disk.found(seed, at) for seed in SEEDS)


def test_nothing_is_certain_without_fsync(top):
    with power_loss(top) as disk:
        write(top / "a", b"12345678")
    contents = {disk.found(seed).get("a") for seed in SEEDS}
    assert {None, b"", b"12345678", bytes(8)} < contents
    assert any(b"12345678".startswith(data) and 0 < len(data) < 8 for data in contents if data)


def test_fsync_of_a_file_keeps_its_bytes_but_not_its_name(top):
    with power_loss(top) as disk:
        write(top / "a", b"12345678", sync=True)
    assert {disk.found(seed).get("a") for seed in SEEDS} == {None, b"12345678"}


def test_fsync_of_a_folder_keeps_its_names_but_no_bytes(top):
    with power_loss(top) as disk:
        write(top / "a", b"12345678")
        sync_folder(top)
    assert always(disk, "a")
    assert len({disk.found(seed)["a"] for seed in SEEDS}) > 5


def test_a_rename_may_outlive_the_bytes_and_never_halves(top):
    with power_loss(top) as disk:
        write(top / "old", b"before", sync=True)
        sync_folder(top)
        write(top / "new", b"after")
        sync_folder(top)
        local.os.replace(top / "new", top / "old")
    seen = {(disk.found(seed).get("old"), "new" in disk.found(seed)) for seed in SEEDS}
    assert (b"before", True) in seen
    assert (b"after", False) in seen
    assert (b"", False) in seen  # the rename survived, the bytes did not
    assert not any(data is None or (data == b"before" and not new) for data, new in seen)


def test_with_both_syncs_a_rename_is_certain(top):
    with power_loss(top) as disk:
        write(top / "new", b"after", sync=True)
        local.os.replace(top / "new", top / "a")
        sync_folder(top)
        write(top / "b", b"b")
    assert {disk.found(seed).get("a") for seed in SEEDS} == {b"after"}


def test_names_survive_in_any_order_and_any_number(top):
    with power_loss(top) as disk:
        for name in "abc":
            write(top / name, b"", sync=True)
    seen = {"".join(sorted(disk.found(seed))) for seed in SEEDS}
    assert seen == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}


def test_a_removed_name_may_come_back_until_the_folder_is_synced(top):
    (top / "a").write_bytes(b"a")
    with power_loss(top) as disk:
        local.os.unlink(top / "a")
        removed = disk.now
        sync_folder(top)
    assert {disk.found(seed, removed).get("a") for seed in SEEDS} == {None, b"a"}
    assert paths(disk) == set()


def test_what_is_below_a_lost_folder_is_lost(top):
    with power_loss(top) as disk:
        local.os.makedirs(top / "x" / "y")
        write(top / "x" / "y" / "a", b"a", sync=True)
        sync_folder(top / "x" / "y")
        lost = disk.now
        sync_folder(top / "x")
        sync_folder(top)
    seen = {tuple(sorted(disk.found(seed, lost))) for seed in SEEDS}
    assert seen == {(), ("x",), ("x", "x/y", "x/y/a")}
    assert always(disk, "x/y/a")


def test_every_moment_of_the_past_can_be_asked_for(top):
    with power_loss(top) as disk:
        moments = []
        for number in range(5):
            write(top / str(number), b"x", sync=True)
            sync_folder(top)
            moments.append(disk.now)
    for number, moment in enumerate(moments):
        assert all(always(disk, str(earlier), moment) for earlier in range(number + 1))
        assert str(number + 1) not in paths(disk, moment)
    assert set(disk.found(3, 0)) == set()


def test_the_same_seed_finds_the_same(top, tmp_path):
    (top / "old" / "deep").mkdir(parents=True)
    (top / "old" / "deep" / "file").write_bytes(b"old")
    with power_loss(top) as disk:
        for number in range(6):
            write(top / str(number), bytes([number]) * 2000)
    assert len(found(disk)) > 100
    for seed in range(20):
        where = disk.crash(seed, tmp_path / f"{seed}")
        real = {
            str(path.relative_to(where)): path.read_bytes() for path in where.rglob("*") if path.is_file()
        }
        expected = disk.found(seed)
        assert real == {path: data for path, data in expected.items() if data is not None}
        assert expected["old/deep/file"] == b"old"


def test_the_process_can_die_at_a_change(top):
    with power_loss(top) as disk:
        backend = LocalBackend(top / "store")
        disk.die_at = 4
        with pytest.raises(Crash):
            backend.put("a/b", b"b")
        with pytest.raises(Crash):
            backend.put("a/c", b"c")
        assert disk.now == 4
        disk.die_at = None
        backend.put("a/b", b"b")
        assert backend.list("") == ["a/b"]


def test_changes_that_were_not_seen_are_noticed(top):
    with pytest.raises(AssertionError, match="without being recorded"), power_loss(top):
        (top / "a").write_bytes(b"a")
    assert local.os is os
    with power_loss(top), pytest.raises(NotImplementedError):
        local.os.link(top / "a", top / "b")
    with power_loss(top), pytest.raises(InvalidInputError), power_loss(top):
        pass


def test_an_object_that_put_returned_for_is_there_after_any_cut(top):
    data = os.urandom(3000)
    with power_loss(top) as disk:
        backend = LocalBackend(top / "not" / "yet" / "there")
        backend.put("a/b/c", data)
        put = disk.now
        backend.put("a/b/d", b"d")
        backend.delete("a/b/c")
    for at in range(disk.now + 1):
        for seed in range(30):
            left = disk.found(seed, at)
            contents = left.get("not/yet/there/a/b/c")
            assert contents in (None, data)  # at no moment is there anything else under its name
            assert at != put or contents == data
    assert "not/yet/there/a/b/c" not in paths(disk)


@pytest.mark.parametrize("made", ["not", "not/yet", "not/yet/there"])
def test_what_is_put_is_there_after_a_cut_though_who_made_the_folders_was_killed(top, made):
    with power_loss(top) as disk:
        local.os.makedirs(top / made)
        LocalBackend(top / "not" / "yet" / "there").put("a/b", b"b")
    assert always(disk, "not/yet/there/a/b")


@pytest.mark.parametrize("what", ["state", "exact", "pin"])
def test_what_a_killed_process_let_go_of_is_let_go_of_once_it_is_collected(top, tmp_path, what):
    """Its record was not durable, and what it had let go of was deleted for good."""
    random = np.random.default_rng(0)
    weight, moment = (random.standard_normal((256, 64)).astype(np.float32) for _ in "wm")
    with lcstore.open(top / "run", grace=0, durability="none") as store:
        for step in range(4):
            moments = {0: {"exp_avg": moment * (step + 1), "exp_avg_sq": moment**2}}
            state = {"model": {"w.weight": weight * (1 + step / 1000)}, "optim": {"state": moments}}
            store.save(step, state, exact=step == 1)
        node = store.info(1).node
        store.tag("first", 0)
        store.retire(0)
        if what == "pin":
            store.retire(1)
            store.pin(node, by="the paper")
    backend = LocalBackend(top / "run")
    pins = (key for key in backend.list("names") if key.startswith("names/pin"))
    mark = RetiredRecord(node, "it was killed then", utc_now(), "exact" if what == "exact" else "state")
    if what == "pin":
        pin = markkeys.parse_tag_key(next(pins))
        mark = TagRecord(pin.name, None, pin.seq + 1, utc_now(), "pin")
    with power_loss(top) as disk:
        path = backend._path(mark.key())
        write(path, mark.to_bytes(), sync=True)  # and then its folder would have been made durable
        with lcstore.open(top / "run", "r+") as store:
            assert store.collect().deleted_objects
    for seed in range(12):
        disk.crash(seed, tmp_path / str(seed))
        with lcstore.open(tmp_path / str(seed) / "run", "r") as store:
            assert (1 in store.steps()) is (what == "exact")
            assert store.verify("restore").ok


def test_a_pin_that_is_set_again_outlives_a_power_cut(top, tmp_path):
    """Who had set it died before that was durable; it was there already, and nothing was stored."""
    with lcstore.open(top / "run", durability="none", threads=1) as store:
        node = store.save(0, {"step": 0}).node
        store.save(1, {"step": 1})
    for died in range(1, 20):
        with power_loss(top) as disk:
            disk.die_at = died
            with contextlib.suppress(Crash), lcstore.open(top / "run", threads=1) as store:
                store.pin(node, by="me")
            disk.die_at = None
            with lcstore.open(top / "run", threads=1) as store:
                store.pin(node, by="me")
            for seed in range(6):
                into = disk.crash(seed, tmp_path / f"{died}-{seed}")
                assert [*(into / "run" / "names").glob("pin*")]
        shutil.rmtree(top / "run" / "names")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    return [record(run, folder / name) for name, run in RUNS.items()]


def cut_all(recorded: list[Recorded], seeds, folder):
    for seed in seeds:
        problems = recorded[seed % len(recorded)].cut(seed, folder)
        assert not problems, (seed, problems)


def test_no_acknowledged_save_is_lost_in_a_power_cut(recorded, tmp_path):
    cut_all(recorded, range(100), tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(10))
def test_no_acknowledged_save_is_lost_in_two_thousand_power_cuts(recorded, tmp_path, block):
    cut_all(recorded, range(200 * block, 200 * (block + 1)), tmp_path)
