"""Copying a store: the same bytes, whatever happens meanwhile; never mixed with another, never damage."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path

import fsspec
import numpy as np
import pytest
from states import same

import lcstore
from lcstore import ConflictError, CorruptionError, InvalidInputError, NotFoundError, StorageError
from lcstore.errors import UnknownOutcomeError
from lcstore.format import keys, markkeys
from lcstore.repair.repair import repair
from lcstore.storage.backend import Backend
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import FsspecBackend
from lcstore.testing import Crash, Fault, FaultBackend, Operation

pytestmark = pytest.mark.once


def weights_of(step: int) -> np.ndarray:
    base = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    return base + np.random.default_rng(step + 1).standard_normal((64, 64)).astype(np.float32) * np.float32(
        0.01
    )


def state(step: int) -> dict[str, object]:
    return {"model": {"w.weight": weights_of(step)}, "text": "x" * 20_000, "n": step}


def fill(backend: Backend | Path, steps: range = range(8), grace: float = 0) -> None:
    with lcstore.open(backend, threads=1, grace=grace) as store:
        if store.latest_step() is not None:
            store.resume()
        for step in steps:
            store.save(step, state(step), tags=["even"] if step % 2 == 0 else ())


@pytest.fixture
def source() -> MemoryBackend:
    """A store that was maintained: with shortcuts, and states that were let go of, tagged and pinned."""
    backend = MemoryBackend.fresh()
    fill(backend)
    with lcstore.open(backend, "r+", threads=1) as store:
        store.retain("latest:3 | every:3")
        store.compact()
        store.collect()
        store.pin(3, by="paper")
        store.retire(5)
    return backend


def values(backend: Backend) -> dict[int, object]:
    with lcstore.open(backend, "r", threads=1) as store:
        assert store.verify("restore").ok
        return {step: store.restore(step) for step in store.steps()}


def test_it_is_the_same_bytes(source):
    target = MemoryBackend.fresh()
    report = lcstore.copy(source, target)
    assert target.snapshot() == source.snapshot()
    assert (report.states + report.retired, report.passed_over) == (len(source.list("nodes")), 0)
    assert (report.objects, report.nbytes) == (
        len(source.snapshot()), sum(map(len, source.snapshot().values())),
    )  # fmt: skip
    again = lcstore.copy(source, target)
    assert (again.objects, again.passed_over) == (0, report.objects)


def test_between_targets_of_all_kinds(tmp_path, source):
    memory = FsspecBackend(*fsspec.url_to_fs("memory://copied"))
    first, last = LocalBackend(tmp_path / "run"), MemoryBackend.fresh()
    for before, after in ((source, first), (first, memory), (memory, last)):
        lcstore.copy(before, after)
    assert last.snapshot() == source.snapshot()
    memory._fs.rm("/copied", recursive=True)


def test_no_copy_is_spread_among_other_files(tmp_path, source):
    """As over a USB disk, where every other store was refused from then on."""
    stick = tmp_path / "stick"
    (stick / "lost+found").mkdir(parents=True)
    (stick / ".Trash").mkdir()
    (stick / "photo.jpg").touch()
    with pytest.raises(InvalidInputError, match=r"holds other files, such as 'photo.jpg', .* as .*/stick/"):
        lcstore.copy(source, stick)
    assert len(list(stick.iterdir())) == 3
    (stick / "photo.jpg").unlink()
    for _ in range(2):  # a disk that was just formatted is empty; and a copy goes on beside what came since
        lcstore.copy(source, stick)
        (stick / "photo.jpg").touch()


@pytest.mark.parametrize("name", ["data", "nodes", "copies"])
def test_folders_that_only_have_the_name_of_one_of_a_store_are_no_beginning_of_a_copy(tmp_path, source, name):
    place = tmp_path / "project"
    (place / name / "raw").mkdir(parents=True)
    (place / name / "raw" / "x.csv").touch()
    (place / "README.md").touch()
    with pytest.raises(InvalidInputError, match=r"holds other files, such as 'README.md'"):
        lcstore.copy(source, place)
    assert {one.name for one in place.iterdir()} == {name, "README.md"}


def test_a_copy_that_was_begun_goes_on_beside_what_came_since(tmp_path, source):
    place = LocalBackend(tmp_path / "begun")
    with pytest.raises(Crash):
        lcstore.copy(source, FaultBackend(place, {40: "crash_before"}))
    assert not place.list("nodes")
    (tmp_path / "begun" / "photo.jpg").touch()
    lcstore.copy(source, place)
    assert values(place).keys() == values(source).keys()


def test_a_target_that_may_not_be_listed_is_told_as_a_problem_of_its_storage(tmp_path, source, monkeypatch):
    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(StorageError, match="Permission denied"):
        lcstore.copy(source, tmp_path)


def test_what_is_no_part_of_the_store_stays(tmp_path, source):
    source.put("quarantine/nodes/x.json", b"{}")
    source.put("notes", b"mine")
    target = MemoryBackend.fresh({"other": b"theirs"})
    lcstore.copy(source, target)
    assert "notes" not in target.snapshot()
    assert not target.list("quarantine")
    assert target.get("other") == b"theirs"


@pytest.mark.parametrize("kind", ["crash_before", "lost_reply", "eio"])
@pytest.mark.parametrize("stride", [13, pytest.param(1, marks=pytest.mark.soak)])
def test_interrupted_anywhere_it_is_no_store_and_goes_on(source, kind, stride):
    wanted, number, struck = source.snapshot(), 0, True
    while struck:
        target = MemoryBackend.fresh()
        failing = FaultBackend(target, {number: kind})
        try:
            lcstore.copy(source, failing)
        except (Crash, StorageError):
            # The second copy of the store's own record is stored once all is there, before a last look.
            if wanted.keys() - target.snapshot().keys() - {"copies/lcstore.json"}:
                with pytest.raises(NotFoundError):
                    lcstore.open(target, "r")
        struck = bool(failing.struck) or number < 40
        there = len(target.snapshot())
        report = lcstore.copy(source, target)
        assert report.objects <= len(wanted) - there
        assert target.snapshot() == wanted
        number += stride


@pytest.mark.parametrize("how", ["flip", "cut", "grow", "gone"])
@pytest.mark.parametrize("folder", ["data/", "nodes/", "edges/", "layouts/"])
def test_damage_is_not_copied(how, folder):
    source, target = MemoryBackend.fresh(), MemoryBackend.fresh()
    with lcstore.open(source, threads=1, grace=0, durability="none") as store:
        for step in range(8):
            store.save(step, state(step))
        store.compact()
    key = min(source.list(folder.rstrip("/")), key=lambda key: (-source.size(key), key))
    data = source.get(key)
    if how == "gone":
        source.delete(key)
    else:
        changed = {"flip": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-1], "grow": data + b"0"}
        source.put(key, changed[how])
    if how == "gone" and folder in ("nodes/", "edges/"):
        return  # then nothing says that it was there
    with pytest.raises(CorruptionError, match=f"cp COPY {source.url} --check`, before any") as caught:
        lcstore.copy(source, target)
    assert caught.value.key == key
    with pytest.raises(NotFoundError):
        lcstore.open(target, "r")


def test_a_layout_that_is_lost_of_a_state_that_kept_ones_stand_on_is_damage():
    """Of one that nothing stands on it is none: a save that was not acknowledged has no layout."""
    backend, weight = MemoryBackend.fresh(), weights_of(0)
    with lcstore.open(backend, durability="none") as store:
        store.save(0, {"model": {"w": weight}})
        first = {*backend.list("layouts")}
        for step in (1, 2):
            store.save(step, {"model": {"w": weight, "more": np.full(weight.shape, step, np.float32)}})
        assert store.retire(0)
    for key in first:
        backend.delete(key)
    with pytest.raises(CorruptionError, match="a damaged store is not copied"):
        lcstore.copy(backend, MemoryBackend.fresh())


@pytest.mark.filterwarnings("ignore::lcstore.errors.FallbackWarning")
@pytest.mark.parametrize("folder", ["nodes", "layouts"])
def test_a_record_that_is_known_by_its_copy_is_there_again(source, folder):
    wanted = source.snapshot()
    source.delete(source.list(folder)[-1])
    target = MemoryBackend.fresh()
    lcstore.copy(source, target)
    assert target.snapshot() == wanted


def test_another_store_is_refused(source):
    other = MemoryBackend.fresh()
    fill(other, range(2))
    before = other.snapshot()
    with pytest.raises(ConflictError, match="holds another store"):
        lcstore.copy(source, other)
    assert other.snapshot() == before


def test_a_copy_that_went_on_by_itself_is_refused(source):
    target = MemoryBackend.fresh()
    lcstore.copy(source, target)
    fill(source, range(8, 10))
    lcstore.copy(source, target)
    assert same(values(target), values(source))
    fill(target, range(10, 11))
    before = target.snapshot()
    with pytest.raises(ConflictError, match="went on by itself"):
        lcstore.copy(source, target)
    assert target.snapshot() == before


@pytest.mark.parametrize("to_the_old_place", [False, True])
def test_what_a_run_saved_while_its_store_was_moved_comes_together(tmp_path, to_the_old_place):
    """Of what the run acknowledged nothing is let go of, in neither place."""
    old, moved = tmp_path / "old", tmp_path / "moved"
    with lcstore.open(old, policy="lossless", threads=1) as store:
        for step in range(3):
            store.save(step, state(step))
        old.rename(moved)
        with pytest.warns(lcstore.DamageWarning, match=r"was moved or deleted.*`lcstore cp .*old MOVED`"):
            store.save(3, state(3))
        store.save(4, state(4))
    with lcstore.open(old, "r+") as store:
        assert store.verify().ok
        assert store.repair(dry_run=True).actions == ()
        store.collect(dry_run=True)  # nor does it stop maintenance
    report = lcstore.copy(moved, old) if to_the_old_place else lcstore.copy(old, moved)
    assert (report.states, report.older, report.let_go) == ((3, 2, 0) if to_the_old_place else (2, 3, 0))
    with lcstore.open(old if to_the_old_place else moved, "r") as store:
        assert store.steps() == [0, 1, 2, 3, 4]
        assert all(same(store.restore(step), state(step)) for step in store.steps())
        assert store.verify("restore").ok


def test_a_copy_goes_on_though_the_source_was_collected_since(source):
    target = MemoryBackend.fresh()
    fill(source, range(8, 12))
    assert lcstore.copy(source, target).older == 0
    before = values(target)
    for night in range(2):  # the runs of before are gone altogether
        fill(source, range(20 + 3 * night, 23 + 3 * night))
        _maintained(source)()
        report = lcstore.copy(source, target)
        found, wanted = values(target), values(source)
        assert report.older >= len(found) - len(wanted) > 0
        assert all(same(found[step], value) for step, value in (before | wanted).items() if step in found)
        assert found.keys() >= wanted.keys()
    before = len(values(target))
    _maintained(target)()
    found = values(target)
    assert len(found) < before
    assert all(same(found[step], value) for step, value in values(source).items())
    fill(target, range(30, 31))
    with pytest.raises(ConflictError, match="went on by itself"):
        lcstore.copy(source, target)


def test_what_the_source_has_collected_stays_shown_in_a_copy():
    source, target = MemoryBackend.fresh(), MemoryBackend.fresh()
    fill(source, range(20))
    lcstore.copy(source, target)
    with lcstore.open(source, "r+", threads=1) as store:
        for _ in range(3):
            store.maintain("latest:3 | every:5")
        assert store.steps() == [0, 5, 10, 15, 17, 18, 19]
        nodes = store._index.refresh(full=True).nodes.keys()
        assert store._index.marks.hidden - nodes  # of what kept states stood on, marks are left
    assert lcstore.copy(source, target).older == 13
    found = values(target)
    assert [*found] == [*range(20)]
    assert all(same(found[step], value) for step, value in values(source).items())
    with lcstore.open(target, "r+", threads=1) as store:
        store.retain("latest:3 | every:5")
    assert lcstore.copy(source, target).older == 0  # all that is older is let go of there too
    fresh = MemoryBackend.fresh()
    lcstore.copy(source, fresh)
    assert [*values(fresh)] == [*values(source)]


@pytest.mark.parametrize("turns", ["copy", "collect copy", "copy collect copy collect copy"])
def test_what_a_rule_of_the_source_lets_go_of_stays_in_a_copy_by_the_rule_of_the_copy(turns):
    source, target = MemoryBackend.fresh(), MemoryBackend.fresh()
    with lcstore.open(source, threads=1, grace=0) as store:
        for step in range(12):
            moments = {"state": {0: {"exp_avg": weights_of(step), "exp_avg_sq": weights_of(step) ** 2}}}
            store.save(step, {**state(step), "optim": moments}, exact=step == 10)
    lcstore.copy(source, target)
    wanted = values(target)
    with lcstore.open(source, "r+", threads=1) as store:
        store.retain("latest:3 | strip:optim/**:latest:1 | exact-only:tagged:never")
        assert store.steps() == [9, 10, 11]
        assert [bool(one.without) for one in store.states()] == [True, True, False]
        for turn in turns.split():
            if turn == "copy":
                report = lcstore.copy(source, target)
            else:
                store.compact()
                store.collect()
    assert (report.states, report.older, report.kept, report.let_go) == (3, 9, 0, 0)
    for _ in range(3):
        with lcstore.open(target, "r+", threads=1) as store:
            store.maintain("latest:100")
        assert same(values(target), wanted)
    with lcstore.open(target, "r+", threads=1) as store:
        store.retain("latest:5")
    assert lcstore.copy(source, target).older == 2
    assert [*values(target)] == [7, 8, 9, 10, 11]


def test_what_was_let_go_of_by_its_name_is_let_go_of_in_a_copy(source):
    target = MemoryBackend.fresh()
    lcstore.copy(source, target)
    with lcstore.open(source, "r+", threads=1) as store:
        store.retire(6, reason="diverged")
        wanted = store.steps()
    report = lcstore.copy(source, target)
    assert (report.states, report.older) == (len(wanted), 0)
    assert [*values(target)] == wanted


def test_a_store_of_runs_that_the_source_has_no_more_is_refused(source):
    other = MemoryBackend.fresh()
    fill(other, range(2))
    for first in (20, 30):
        fill(source, range(first, first + 3))
    with lcstore.open(source, "r+", threads=1) as store:
        store.unpin(3, by="paper")
        for run in (1, 2):
            store.retire_run(run, run_is_dead=True)
    _maintained(source)()
    assert {state.run for state in lcstore.open(source, "r").states(retired=True)} == {3}
    before = other.snapshot()
    with pytest.raises(ConflictError, match="holds another store"):
        lcstore.copy(source, other)
    assert other.snapshot() == before


def test_a_copy_that_was_cut_off_and_repaired_can_go_on():
    """It lacks what makes it a store, and a repair writes that without knowing the grace."""
    source, target = MemoryBackend.fresh(), MemoryBackend.fresh()
    fill(source, range(3), grace=60)
    lcstore.copy(source, target)
    made_of = (keys.STORE_KEY, keys.copy_key(keys.STORE_KEY))
    for key in made_of:
        target.delete(key)
    with pytest.raises(
        lcstore.NotFoundError, match=r"copy to here was cut off, the same `lcstore cp` goes on"
    ):
        lcstore.open(target, "r").steps()
    repair(target)
    with pytest.raises(
        ConflictError, match=r"where a repair made its lcstore\.json anew, delete that and copies/"
    ):
        lcstore.copy(source, target)
    for key in made_of:
        target.delete(key)
    lcstore.copy(source, target)
    assert target.get(keys.STORE_KEY) == source.get(keys.STORE_KEY)


def test_a_place_with_another_grace_is_refused(source):
    target = MemoryBackend.fresh()
    fill(target, range(1), grace=60)
    for key in target.list("nodes") + target.list("copies"):
        target.delete(key)
    with pytest.raises(ConflictError, match="another grace"):
        lcstore.copy(source, target)


class Busy(MemoryBackend):
    """A store in which something happens at the n-th time that bytes of data are read."""

    number, happens = 0, None

    def get(self, key, start=None, end=None):
        if key.startswith("data/") and self.happens is not None:
            self.number -= 1
            if self.number < 0:
                happens, self.happens = self.happens, None
                happens()
        return super().get(key, start, end)


@pytest.mark.parametrize("number", [0, 3, 11])
def test_beside_a_writer_it_is_what_was_committed_when_it_began(number):
    source, target = Busy.fresh(), MemoryBackend.fresh()
    fill(source)
    before = values(source)
    source.number, source.happens = number, lambda: fill(source, range(8, 11))
    lcstore.copy(source, target)
    assert source.happens is None
    assert same(values(target), before)
    lcstore.copy(source, target)
    assert same(values(target), values(source))
    assert len(values(target)) == 11


def _maintained(backend: Backend) -> Callable[[], None]:
    def maintain() -> None:
        with lcstore.open(backend, "r+", threads=1) as store:
            store.retain("latest:2")
            store.compact()
            while store.collect().deleted_objects:
                pass

    return maintain


@pytest.mark.parametrize("number", range(0, 24, 4))
def test_beside_a_collector_that_waits_for_nothing_it_is_sound(number):
    source, target = Busy.fresh(), MemoryBackend.fresh()
    fill(source)
    source.number, source.happens = number, _maintained(source)
    lcstore.copy(source, target)
    assert source.happens is None
    found, wanted = values(target), values(source)
    assert found.keys() >= wanted.keys()
    assert all(same(found[step], value) for step, value in wanted.items())
    with lcstore.open(target, "r+", threads=1) as store:
        store.retain("latest:2")
        while store.collect().deleted_objects:
            pass
    assert same(values(target), wanted)


def test_a_mark_that_is_swept_after_it_was_listed_is_left_out(source):
    ghost = f"retired/{'a' * 32}-{'b' * 32}-state.json"

    class Sweeping(FaultBackend):
        def list(self, prefix, foreign=None):
            return [*super().list(prefix, foreign), *[ghost] * (not prefix)]

    target = MemoryBackend.fresh()
    lcstore.copy(Sweeping(source), target)
    assert target.snapshot() == source.snapshot()


def test_a_store_is_not_copied_into_itself(tmp_path):
    fill(tmp_path / "run")
    for target in (tmp_path / "run", tmp_path / "run" / "copy", tmp_path):
        with pytest.raises(InvalidInputError, match="lie in each other"):
            lcstore.copy(tmp_path / "run", target)
    lcstore.copy(tmp_path / "run", tmp_path / "run2")
    shutil.rmtree(tmp_path / "run")
    assert len(values(LocalBackend(tmp_path / "run2"))) == 8


def test_no_folder_of_stores_becomes_a_store(tmp_path):
    fill(tmp_path / "run")
    pool = tmp_path / "pool"
    fill(pool / "deep" / "as" / "can" / "be")
    (tmp_path / "far").symlink_to(pool)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "x").symlink_to(tmp_path / "run")
    for place in (pool, tmp_path / "far", pool / "deep", tmp_path / "links"):
        with pytest.raises(InvalidInputError, match="lie in each other"):
            lcstore.copy(tmp_path / "run", place)
        with pytest.raises(InvalidInputError, match="lie in each other"):
            lcstore.open(place)
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "up").symlink_to(tmp_path)
    (tmp_path / "beside" / "notes").mkdir()
    lcstore.copy(tmp_path / "run", tmp_path / "beside")
    assert not list(pool.glob("*.json"))


def test_nothing_to_copy(tmp_path):
    with pytest.raises(NotFoundError):
        lcstore.copy(tmp_path / "none", tmp_path / "target")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("durability", ["none", "default"])
@pytest.mark.parametrize("kind", [MemoryBackend.fresh, "local"])
def test_check_puts_back_what_was_damaged_in_the_copy_and_nothing_else(tmp_path, kind, durability):
    source = MemoryBackend.fresh()
    target = LocalBackend(tmp_path) if kind == "local" else kind()
    with lcstore.open(source, threads=1, grace=0, durability=durability) as store:
        for step in range(8):
            store.save(step, state(step), tags=["t"])
        store.compact()
        store.pin(0, by="paper")
        store.retire(1)
    lcstore.copy(source, target)
    wanted = source.snapshot()
    first = {key.partition("/")[0]: key for key in wanted}
    flipped = {key: bytearray(wanted[key]) for key in first.values()}
    for data in flipped.values():
        data[-3] ^= 1
    damaged = {key: bytes(data) for key, data in flipped.items()}
    assert {"data", "edges", "layouts", "lcstore.json", "names", "nodes", "retired"} <= first.keys()
    for key, data in damaged.items():
        target.delete(key)
        target.put(key, data)
    with pytest.raises(CorruptionError, match="--check` replaces it"):
        lcstore.copy(source, target)
    report = lcstore.copy(source, target, check=True)
    assert (report.replaced, report.objects) == (len(damaged), len(damaged))
    assert report.passed_over == len(wanted) - len(damaged)
    there = {key: target.get(key) for key in target.list("")}
    assert there == wanted | {f"quarantine/{key}": data for key, data in damaged.items()}
    again = lcstore.copy(source, target, check=True)
    assert (again.replaced, again.objects, again.passed_over) == (0, 0, len(wanted))


def test_without_check_only_what_has_another_length_is_replaced(source):
    target = MemoryBackend.fresh()
    lcstore.copy(source, target)
    short, flipped = source.list("data")[:2]
    data = source.get(flipped)
    for key, other in ((short, source.get(short)[:-1]), (flipped, bytes([data[0] ^ 1]) + data[1:])):
        target.delete(key)
        target.put(key, other)
    report = lcstore.copy(source, target)
    assert (report.checked, report.replaced) == (False, 1)
    assert target.get(short) == source.get(short)
    assert target.get(flipped) != data
    assert lcstore.copy(source, target, check=True).replaced == 1
    assert target.get(flipped) == data


class Strict(MemoryBackend):
    """A target as the contract has it: nothing is ever put in the place of other bytes."""

    def put(self, key, data):
        assert self.snapshot().get(key, bytes(data)) == bytes(data)
        super().put(key, data)


def _is_write(writes: Iterator[int], number: int, operation: Operation) -> bool:
    return operation.name in ("put", "delete") and next(writes) == number


@pytest.mark.parametrize("kind", ["crash_before", "lost_reply", "eio"])
def test_check_interrupted_anywhere_goes_on(source, kind):
    number, struck = 0, True
    while struck:
        target = Strict.fresh()
        lcstore.copy(source, target)
        key = target.list("data")[-1]
        target.delete(key)
        target.put(key, bytes(source.size(key)))
        failing = FaultBackend(target, {partial(_is_write, count(), number): kind})
        with suppress(Crash, StorageError):
            lcstore.copy(source, failing, check=True)
        struck = bool(failing.struck)
        lcstore.copy(source, target, check=True)
        assert set(target.snapshot().items()) - set(source.snapshot().items()) <= {
            (f"quarantine/{key}", bytes(source.size(key)))
        }
        assert source.snapshot().items() <= target.snapshot().items()
        number += 1


def test_states_that_a_repair_of_the_copy_let_go_of_are_not_counted_as_copied():
    source, target = MemoryBackend.fresh(), MemoryBackend.fresh()
    with lcstore.open(source, threads=1, grace=0, durability="none") as store:
        for step in range(4):
            store.save(step, state(step))
    wanted = values(source)
    lcstore.copy(source, target)
    key = max(target.list("data"), key=target.size)
    target.delete(key)
    target.put(key, bytes(source.size(key)))
    with lcstore.open(target, "r+", threads=1) as store:
        store.repair()
        let_go = len(wanted) - len(store.steps())
    assert let_go == 4
    report = lcstore.copy(source, target, check=True)
    assert (report.states, report.let_go, report.ok) == (0, let_go, False)
    # What brings them back: an empty place, or the same one once a collect has deleted them.
    place = MemoryBackend.fresh()
    assert lcstore.copy(source, place).ok
    with lcstore.open(target, "r+", threads=1) as store:
        while store.collect().deleted_objects:
            pass
    report = lcstore.copy(source, target)
    assert (report.states, report.let_go, report.ok) == (4, 0, True)
    assert same(values(place), wanted)
    assert same(values(target), wanted)


def test_what_the_copy_let_go_of_by_itself_a_pin_brings_back(source):
    target = MemoryBackend.fresh()
    first = lcstore.copy(source, target)
    with lcstore.open(target, "r+", threads=1) as store:
        store.retire(6)
        report = lcstore.copy(source, target)
        assert (report.states, report.let_go, report.let_go_in_part) == (first.states - 1, 1, 0)
        store.pin(6)
        parts = store.retain("exact-only:tagged:never").retired
    report = lcstore.copy(source, target)
    assert (report.states, report.let_go) == (first.states, 0)
    assert report.let_go_in_part == len(parts) > 0


def lose(backend: Backend, key: str) -> None:
    """Lose an object, and have a repair let go of what needs it."""
    backend.delete(key)
    with lcstore.open(backend, "r+", threads=1) as store:
        store.repair()


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.soak), 4])
def test_what_a_repair_of_the_source_let_go_of_stays_in_a_backup(stride):
    source = MemoryBackend.fresh()
    with lcstore.open(source, threads=1, grace=0, durability="none") as store:
        for step in range(6):
            moments = {"state": {0: {"exp_avg": weights_of(step), "exp_avg_sq": weights_of(step) ** 2}}}
            store.save(step, {**state(step), "optim": moments}, exact=step == 4)
    wanted, told = values(source), 0
    for key in source.list("data")[::stride]:
        run, backup = (MemoryBackend.fresh(source.snapshot()) for _ in range(2))
        lose(run, key)
        with lcstore.open(run, threads=1, grace=0) as store:
            whole = sum(not one.without for one in store.states())
            store.save(9, state(9), exact=True)
            store.compact()
            shown = len(store.states())
        report = lcstore.copy(run, backup)
        told += report.kept
        assert report.kept >= len(wanted) - whole
        assert report.states == shown
        with lcstore.open(backup, "r+", threads=1) as store:  # nor does its own maintenance lose them
            store.compact()
            while store.collect().deleted_objects:
                pass
        there = values(backup)
        assert same({step: there[step] for step in wanted}, wanted)
        assert same(there[9], state(9))
        again = MemoryBackend.fresh()
        lcstore.copy(backup, again)
        assert same(values(again), there)
    assert told


def test_a_backup_that_is_not_read_for_a_moment_lets_go_of_nothing():
    source, backup = MemoryBackend.fresh(), MemoryBackend.fresh()
    with lcstore.open(source, threads=1, grace=0, durability="none") as store:
        for step in range(4):
            store.save(step, state(step))
        edge = store._index.record(store.info(3).node).edge.id
    lcstore.copy(source, backup)
    for key in source.list(f"data/{edge}"):
        source.delete(key)
    assert [loss.step for loss in repair(source).lost] == [3]
    before, log = backup.snapshot(), FaultBackend(MemoryBackend.fresh(backup.snapshot()))
    lcstore.copy(source, log)
    for op in {(op.name, op.key) for op in log.log if op.name in ("get", "size", "list")}:
        target = MemoryBackend.fresh(before)
        with suppress(StorageError):
            lcstore.copy(source, FaultBackend(target, {lambda o, op=op: (o.name, o.key) == op: Fault("eio")}))
        assert len(values(target)) == 4, op


def sound(backend: Backend) -> list[int]:
    """Return the steps of a store, of which all are whole, also once it is collected."""
    with lcstore.open(backend, "r+", threads=1) as store:
        store.compact()
        while store.collect().deleted_objects:
            pass
    return [*values(backend)]


def test_what_a_backup_has_not_whole_it_lets_go_of_too():
    """Nothing tells that a record without a second copy is gone: the copy lacks it as well."""
    source, backup = MemoryBackend.fresh(), MemoryBackend.fresh()
    with lcstore.open(source, threads=1, grace=0, durability="none") as store:
        for step in range(6):
            store.save(step, state(step))
        node = store.info(2).node
    source.delete(next(key for key in source.list("nodes") if node in key))
    lcstore.copy(source, backup)
    with lcstore.open(source, "r+", threads=1) as store:
        store.repair()
    report = lcstore.copy(source, backup)
    assert (report.kept, report.states) == (0, 2)
    assert sound(backup) == sound(source) == [0, 1]


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.soak), 9])
def test_a_repair_that_is_cut_off_between_two_copies(stride):
    source = MemoryBackend.fresh()
    with lcstore.open(source, threads=1, grace=0, durability="none") as store:
        for step in range(6):
            store.save(step, state(step))
    key = sorted(source.list("data"))[-1]
    source.delete(key)
    for number in count(0, stride):
        run, backup = MemoryBackend.fresh(source.snapshot()), MemoryBackend.fresh()
        failing = FaultBackend(run, {number: "crash_before"})
        with suppress(Crash), lcstore.open(failing, "r+", threads=1) as store:
            store.repair()
        if not failing.struck:
            break
        with suppress(CorruptionError):
            lcstore.copy(run, backup)
        with lcstore.open(run, "r+", threads=1) as store:
            store.repair()
        lcstore.copy(run, backup)
        assert sound(backup) == sound(run)


def test_a_pinned_state_that_the_source_lost_stays_pinned_in_a_backup():
    source, backup = MemoryBackend.fresh(), MemoryBackend.fresh()
    fill(source, range(6))
    with lcstore.open(source, "r+", threads=1) as store:
        store.retain("latest:1")
        store.pin(3, by="paper")
    lcstore.copy(source, backup)
    wanted = values(backup)
    for key in source.list("data"):
        source.delete(key)
    with lcstore.open(source, "r+", threads=1) as store:
        store.repair()
    report = lcstore.copy(source, backup)
    assert (report.states, report.kept, report.let_go, report.ok) == (0, len(wanted), 0, True)
    assert 3 in sound(backup)
    assert same(values(backup), wanted)


def test_what_repair_has_set_aside_is_left_out(source):
    backend = MemoryBackend.fresh()
    fill(backend, grace=86_400)  # so that nothing that is condemned goes
    chunks = (key for key in backend.list("data") if key.rpartition("/")[2].startswith("c"))
    damaged = next(key for key in chunks if "exact" in key)
    data = bytearray(backend.get(damaged))
    data[len(data) // 2] ^= 1
    backend.delete(damaged)
    backend.put(damaged, bytes(data))
    with pytest.raises(CorruptionError, match="repair"):
        lcstore.copy(backend, MemoryBackend.fresh())
    with lcstore.open(backend, "r+") as store:
        store.repair()
    copy = MemoryBackend.fresh()
    lcstore.copy(backend, copy)
    there = set(copy.list("data"))
    assert damaged not in there or copy.get(damaged) != bytes(data)
    with lcstore.open(copy, "r") as store, lcstore.open(backend, "r") as first:
        assert store.verify("restore").ok
        assert [*store.steps()] == [*first.steps()]
        for step in store.steps():
            assert same(store.restore(step), first.restore(step))


def test_a_delta_is_copied_or_refused_though_its_exact_value_is_condemned():
    source = MemoryBackend.fresh()
    with lcstore.open(source, threads=1, durability="none") as store:
        for step in range(3):
            store.save(step, state(step), exact=step == 1)
        store.retain("every:1 | exact-only:tagged:never")
        store.collect()
        edge = store._index.record(store.info(1).node).edge
    condemned = {markkeys.parse_condemned_key(key) for key in source.list(keys.CONDEMNED)}
    assert {(name.edge, name.scope) for name in condemned} == {(edge.id, markkeys.EXACT_VALUE)}
    chunks = [key for key in source.list(keys.edge_folder(edge.id)) if "/c." in key]
    for key in chunks:
        damaged = MemoryBackend.fresh(source.snapshot())
        damaged.delete(key)
        if ".exact" in key:
            copy = MemoryBackend.fresh()
            lcstore.copy(damaged, copy)
            assert same(values(copy), values(source))
        else:
            with pytest.raises(CorruptionError, match="a damaged store is not copied"):
                lcstore.copy(damaged, MemoryBackend.fresh())
    assert len({".exact" in key for key in chunks}) == 2


def test_a_backup_puts_back_what_is_missing():
    run, backup = MemoryBackend.fresh(), MemoryBackend.fresh()
    with lcstore.open(run, threads=1) as store:
        for step in range(6):
            store.save(step, state(step))
        lcstore.copy(run, backup)
        wanted = values(backup)
        for step in range(6, 9):
            store.save(step, state(step))
    later = values(run)
    for key in run.list("data"):
        if key in backup.snapshot():
            run.delete(key)
    assert lcstore.copy(backup, run).objects > 0
    assert same(values(run), later)
    assert wanted.keys() < later.keys()


def test_a_target_that_does_not_answer_is_told_as_that_of_a_copy(source, monkeypatch):
    def put_record(backend, key, data):
        raise UnknownOutcomeError("the record was sent: save again, which settles it first", key=key)

    monkeypatch.setattr("lcstore.copying.receiving.put_record", put_record)
    with pytest.raises(UnknownOutcomeError, match="the same copy goes on once it does") as caught:
        lcstore.copy(source, MemoryBackend.fresh())
    assert "save" not in str(caught.value)


class Hooked(MemoryBackend):
    """Does something, once, before a key of some beginning is stored."""

    beginning = ""

    def before(self) -> None:
        raise NotImplementedError

    def put(self, key: str, data: bytes) -> None:
        if self.beginning and key.startswith(self.beginning):
            self.beginning = ""
            self.before()
        super().put(key, data)


def test_what_a_collect_of_the_copy_takes_away_meanwhile_is_copied_again():
    source, target = MemoryBackend.fresh(), Hooked.fresh()
    fill(source, range(6))
    lcstore.copy(source, target)
    with lcstore.open(target, "r+") as store:
        store.retain("latest:1")
        store.compact()
    with lcstore.open(source) as store:
        store.resume(3)
        store.save(103, state(103))

    def collect() -> None:
        with lcstore.open(target, "r+") as store:
            assert store.collect().deleted_objects

    target.before, target.beginning = collect, "nodes/"
    report = lcstore.copy(source, target)
    assert not target.beginning
    with lcstore.open(target, "r") as store, lcstore.open(source, "r") as first:
        assert store.verify("checksum").ok
        assert 103 in store.steps()
        assert report.states == len(store.steps())
        for step in store.steps():
            assert same(store.restore(step), first.restore(step))


@pytest.mark.parametrize("failing", range(4))
def test_a_copy_to_a_store_that_is_cut_off_shows_no_state_before_what_it_stands_on(failing):
    source, target = MemoryBackend.fresh(), Hooked.fresh()
    fill(source, range(90, 91))
    lcstore.copy(source, target)
    with lcstore.open(source) as store:
        store.resume()
        for step in (100, 101, 3, 4):  # a counter of steps began anew
            store.save(step, state(step))

    def fail() -> None:
        raise StorageError("the target is gone")

    nodes = sorted((keys.parse_node_key(key) for key in source.list(keys.NODES)), key=lambda name: name.order)
    target.before, target.beginning = fail, keys.node_key(nodes[1 + failing])
    with pytest.raises(StorageError):
        lcstore.copy(source, target)
    with lcstore.open(target, "r") as store:
        assert sorted(store.steps()) == sorted([90, 100, 101, 3, 4][: 1 + failing])
        for step in store.steps():
            store.restore(step)
    lcstore.copy(source, target)
    assert target.snapshot() == source.snapshot()


class Deleting(MemoryBackend):
    """Does something, once, before objects or layouts are deleted."""

    def then(self) -> None: ...

    def delete_many(self, some: Iterable[str]) -> None:
        gone = list(some)
        then, self.then = self.then, lambda: None
        if any(key.startswith((keys.DATA, keys.LAYOUTS)) for key in gone):
            then()
        else:
            self.then = then
        super().delete_many(gone)

    def age(self, seconds: float) -> None:
        """Make all that is there so much older."""
        for key, (data, at) in list(self._space.objects.items()):
            self._space.objects[key] = data, at - seconds


@pytest.mark.parametrize("later", [state, lambda step: {"epoch": step, f"at{step}": "no object"}])
def test_a_copy_is_not_called_done_while_a_collection_deletes_what_it_passed_over(later):
    """What a copy that was cut off had left was condemned; and gone once the next one had called it there."""
    source, target = MemoryBackend.fresh(), Hooked.fresh()
    fill(source, range(4))
    lcstore.copy(source, target)
    with lcstore.open(source) as store:
        store.resume()
        for step in (4, 5):
            store.save(step, later(step))

    def fail() -> None:
        raise StorageError("the target is gone")

    target.before, target.beginning = fail, "nodes/"
    with pytest.raises(StorageError):
        lcstore.copy(source, target)
    target = Deleting.fresh(target.snapshot())
    refused: list[ConflictError] = []

    def copied() -> None:
        target.put(f"{keys.CONDEMNED}/notes.txt", b"somebody else's")
        with pytest.raises(ConflictError, match="copy again") as told:
            lcstore.copy(source, target)
        refused.append(told.value)
        target.delete(f"{keys.CONDEMNED}/notes.txt")

    target.age(7200)  # younger ones may be those of a copy under way
    with lcstore.open(target, "r+") as store:
        target.then = copied
        store.collect()
    assert refused
    with lcstore.open(target, "r") as store:
        assert later is not state or not store.verify().ok
    lcstore.copy(source, target)
    assert sound(target) == [0, 1, 2, 3, 4, 5]


def test_what_the_source_let_go_of_stays_so_in_a_copy_that_is_collected_meanwhile():
    """The marks are stored first, and a collection swept them, as what they are about was not there."""
    source, target = MemoryBackend.fresh(), Hooked.fresh()
    fill(source, range(3), grace=3600)
    lcstore.copy(source, target)
    with lcstore.open(source) as store:
        store.resume()
        for step in range(3, 8):
            store.save(step, state(step))
        store.retire(5)

    def collect() -> None:
        with lcstore.open(target, "r+") as store:
            store.collect()

    target.before, target.beginning = collect, "nodes/"
    lcstore.copy(source, target)
    assert not target.beginning
    assert sound(target) == [0, 1, 2, 3, 4, 6, 7]
