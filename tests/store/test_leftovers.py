"""Files that killed processes left in the middle of a write: told, and freed once nobody writes to them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Lock

import numpy as np
import pytest
from kit.requests import FarBackend
from typer.testing import CliRunner

import lcstore
from lcstore import ConflictError, StorageError
from lcstore.cli.app import app
from lcstore.index.leftovers import left_over
from lcstore.repair.overlay import Overlay
from lcstore.storage import local
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.patient import Patience, PatientBackend
from lcstore.testing import Crash, FaultBackend

HOUR = 3600.0
#: Of a save that had stored nothing before: only this file is in the folder of its edge.
LEFT = "data/" + "5" * 32 + "/0/weights-float32.set/.tmp-" + "0" * 24


def state(step: int) -> dict[str, object]:
    return {"model": {"w.weight": np.full((8, 8), step, np.float32)}}


def leave(url: Path, ago: float, name: str = LEFT) -> Path:
    """Have a file be there as a process leaves it that was killed so many seconds ago."""
    left = url / name
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_bytes(b"of a killed writer")
    os.utime(left, (time.time() - ago,) * 2)
    return left


def saved(url: Path, grace: float) -> Path:
    with lcstore.open(url, grace=grace, threads=1) as store:
        store.save(0, state(0))
    return url


def test_it_is_counted_told_and_freed(tmp_path):
    url = saved(tmp_path / "run", grace=2)
    with lcstore.open(url, "r+", threads=1) as store:
        bare = store.forecast()
        left = leave(url, HOUR + 10)
        young = leave(url, HOUR - 60, "nodes/.tmp-" + "1" * 24)
        found, told = store.stats(), store.forecast()
        assert (found.orphans, found.orphan_bytes) == (2, 36)
        assert told.bytes_now == told.bytes_compacted == bare.bytes_now + 36
        assert told.bytes_collected == told.bytes_without == bare.bytes_collected
        shown = store.collect(dry_run=True)
        assert left.exists()
        done = store.collect()
        for report in (shown, done):
            assert report.deleted_leftovers == 1
            assert report.deleted_leftover_bytes == report.deleted_bytes == 18
            assert (report.waiting_leftovers, report.waiting_leftover_bytes) == (1, 18)
        assert not (url / "data" / ("5" * 32)).exists()
        assert young.exists()
        assert store.forecast().bytes_now == bare.bytes_now + 18
        assert store.verify("restore").ok


def test_what_a_killed_process_told_the_time_by_goes_once_it_is_old(tmp_path):
    url = saved(tmp_path / "run", grace=2)
    old = leave(url, HOUR + 10, "clock/" + "a" * 32)
    young = leave(url, HOUR - 60, "clock/" + "b" * 32)
    with lcstore.open(url, "r+", threads=1) as store:
        assert {found.severity for found in store.verify().findings} == {"info"}
        store.collect(dry_run=True)
        assert old.exists()
        store.collect()
        assert not old.exists()
        assert young.exists()


@pytest.mark.parametrize(("grace", "ago"), [(0, HOUR - 60), (2, HOUR - 60), (86_400, 86_400 + HOUR - 60)])
def test_a_living_writer_has_an_hour_besides_the_grace(tmp_path, grace, ago):
    url = saved(tmp_path / "run", grace=grace)
    left = leave(url, ago)
    with lcstore.open(url, "r+", threads=1) as store:
        assert store.collect(dry_run=True).deleted_leftovers == store.collect().deleted_leftovers == 0
        assert left.exists()
        leave(url, ago + 120)
        assert store.collect(dry_run=True).deleted_leftovers == store.collect().deleted_leftovers == 1


def test_the_clock_is_the_storages(tmp_path, monkeypatch):
    url, now = saved(tmp_path / "run", grace=0), time.time()
    left = leave(url, 0)
    with lcstore.open(url, "r+", threads=1) as store:
        monkeypatch.setattr(time, "time", lambda: now + 7 * 86_400)
        assert store.collect().deleted_leftovers == 0
    assert left.exists()


def test_of_a_run_that_is_declared_dead_it_goes_at_once(tmp_path):
    url = saved(tmp_path / "run", grace=86_400)
    for path in url.rglob("*"):
        os.utime(path, (time.time() - 5000,) * 2)
    left = leave(url, 30)
    with lcstore.open(url, "r+", threads=1) as store:
        with pytest.raises(ConflictError, match=r"may be alive: something was stored 3\d s ago"):
            store.collect(grace=0, run_is_dead=True)
        assert left.exists()
        leave(url, 90)
        assert store.collect(grace=0, run_is_dead=True).deleted_leftovers == 1
    assert not left.exists()


def test_where_no_grace_is_cut_short_a_dead_run_is_to_be_silent_for_a_minute(tmp_path):
    url = saved(tmp_path / "run", grace=0)
    left = leave(url, 30)
    with lcstore.open(url, "r+", threads=1) as store:
        assert store.collect(grace=0, run_is_dead=True).deleted_leftovers == 0
        assert left.exists()
        leave(url, 90)
        assert store.collect(grace=0, run_is_dead=True).deleted_leftovers == 1


def test_nothing_but_what_lcstore_writes_is_taken(tmp_path):
    url = saved(tmp_path / "run", grace=0)
    (tmp_path / "elsewhere").mkdir()
    (url / "edges").rmdir() if (url / "edges").exists() else None
    (url / "edges").symlink_to(tmp_path / "elsewhere")
    name = ".tmp-" + "0" * 24
    others = [
        leave(tmp_path / "elsewhere", 1e6, name),
        leave(url, 1e6, f"plots/{name}"),
        *(leave(url, 1e6, f"data/{other}") for other in (".tmp-0123", f"{name}0", ".DS_Store")),
    ]
    (url / "nodes" / name).mkdir()
    LocalBackend(url).leftovers(["nodes", "edges", "data"], time.time())
    assert all(other.exists() for other in others)
    assert (url / "nodes" / name).is_dir()


@pytest.mark.parametrize(
    "around",
    [
        lambda backend: PatientBackend(backend, Patience(30.0, 1)),
        FaultBackend,
        lambda backend: FarBackend(backend, 0.0),
    ],
)
def test_wrappers_pass_it_on(tmp_path, around):
    leave(tmp_path, 100)
    backend = around(LocalBackend(tmp_path))
    assert [one.nbytes for one in left_over(Overlay(backend))] == [18]
    assert [one.nbytes for one in left_over(backend)] == [18]
    now = time.time()
    assert len(Overlay(backend).leftovers(["data"], now)) == len(backend.leftovers(["data"], now)) == 1
    assert left_over(backend) == []


def test_a_save_whose_file_is_taken_away_all_the_same_fails_and_commits_nothing(tmp_path, monkeypatch):
    url = saved(tmp_path / "run", grace=0)
    rename, left, lock = os.replace, [], Lock()

    def replace(source: str, target: str) -> None:
        with lock:  # objects are written side by side
            if not left:
                LocalBackend(url).leftovers(["data", "nodes"], time.time() + 10)
                left.append(os.path.exists(source))
        rename(source, target)

    with lcstore.open(url, "r+", threads=1) as store:
        store.resume()
        monkeypatch.setattr(local.os, "replace", replace)
        with pytest.raises(StorageError, match=r"vanished .* save again") as caught:
            store.save(1, state(1))
        assert not caught.value.outcome_unknown
        assert left == [False]
        assert store.steps() == [0]
        store.save(2, state(2))
        assert store.steps() == [0, 2]
        assert store.verify("restore").ok
        assert left_over(store.backend) == []


def test_commands_tell_of_it(tmp_path):
    url = saved(tmp_path / "run", grace=2)
    leave(url, 10)

    def said(*words: str) -> str:
        return " ".join(CliRunner().invoke(app, [*words], catch_exceptions=False).stdout.split())

    waits = "1 file of writes that have not ended, 18 B, may be of a living process: collected once nobody"
    assert "of no record 1 object, 18 B (interrupted saves)" in said("stats", str(url))
    for command in (("collect", str(url)), ("maintain", str(url), "--keep", "latest:1")):
        leave(url, 10)
        assert waits in said(*command)
        leave(url, HOUR + 10)
        for apply in ([], ["--apply"]):
            told = said(*command, *apply)
            assert "of that, files of killed writes 1, 18 B" in told
            assert "bytes 18 B" in told
            assert waits not in told
        assert left_over(LocalBackend(url)) == []


def test_names_of_states_that_never_came_go_once_they_are_old_and_not_while_a_save_is_under_way(tmp_path):
    """A collection swept what tells where an anchor came from, and kept tags of killed saves for ever."""
    url = saved(tmp_path / "run", grace=60)
    with lcstore.open(url, threads=1) as store:
        for step in (1, 2):
            store.resume()
            store.save(step, state(step))
    with lcstore.open(url, threads=1) as store:
        store.resume()
        store._writer.sound = False  # as an interrupt may leave it: an anchor of its own comes next
        put = store._writer.backend.put

        def beside(key, data):
            if key.startswith("nodes/"):
                with lcstore.open(url, "r+", threads=1) as other:
                    assert other.backend.list("names")
                    other.collect()
            put(key, data)

        store._writer.backend.put = beside
        assert store.save(3, state(3), tags=["gold"]).kind == "anchor"
        del store._writer.backend.put
    with lcstore.open(url, "r") as store:
        assert [one[0] for one in store.history("model/w.weight", line="latest")] == [0, 1, 2, 3]
        assert store.restore("gold")["model"]["w.weight"][0, 0] == 3

    def fail(asked):
        return asked.name == "put" and asked.key.startswith("nodes/")

    with (
        lcstore.open(FaultBackend(LocalBackend(url), {fail: "crash_before"}), threads=1) as store,
        pytest.raises(Crash),
    ):
        store.save(4, state(4), tags=["silver"])
    old = time.time() - 2 * HOUR
    for path in url.rglob("*"):
        os.utime(path, (old, old))
    assert [name for name in os.listdir(url / "names") if "silver" in name]
    with lcstore.open(url, "r+", threads=1) as store:
        store.collect()
        assert [one[0] for one in store.history("model/w.weight", line="latest")] == [0, 1, 2, 3]
        assert store.at("gold").step == 3
    assert not [name for name in os.listdir(url / "names") if "silver" in name]


def test_pins_that_were_taken_away_leave_no_mark_of_states_that_are_gone():
    """A server that holds a snapshot for each evaluation left a mark each time, for ever."""
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, grace=0, threads=1) as store:
        for step in range(4):
            store.save(step, state(step))
            with store.at(step, hold=True):
                store.pin(step, "me")
            store.unpin(step, "me")
        last = store.info(3).node
        store.retain("latest:1")
        store.compact()
        store.collect()
    assert all(last in key for key in backend.list("names"))


def test_pins_that_were_taken_away_leave_little_of_states_that_stay(tmp_path):
    url = saved(tmp_path / "run", grace=2)
    with lcstore.open(url, "r+", threads=1) as store:
        for _ in range(3):
            with store.at(0, hold=True):
                store.pin(0, "me")
            store.unpin(0, "me")
        store.pin(0, "you")
        there = {*store.backend.list("names")}
        assert len(there) == 3 * 4 + 1
        store.collect()
        assert {*store.backend.list("names")} == there, "they are young"
        for left in (3 + 1 + 1, 1 + 1, 1 + 1):
            for path in (url / "names").iterdir():
                os.utime(path, (time.time() - 2 * HOUR,) * 2)
            store.collect()
            assert len(store.backend.list("names")) == left
            assert [one.pinned_by for one in store.states()] == [("you",)]
        store.unpin(0)
        assert [one.pinned_by for one in store.states()] == [()]
        store.pin(0, "me")
        assert [one.pinned_by for one in store.states()] == [("me",)]


def test_a_tag_of_a_save_under_way_stays_where_there_is_no_grace(tmp_path):
    """It is stored before the record, and a save that stores nothing else is nowhere condemned."""
    url = saved(tmp_path / "run", grace=0)
    with lcstore.open(url, threads=1) as store:
        store.resume()
        put = store._writer.backend.put

        def beside(key, data):
            if key.startswith("nodes/"):
                with lcstore.open(url, "r+", threads=1) as other:
                    assert [name for name in other.backend.list("names") if "gold" in name]
                    other.collect()
            put(key, data)

        store._writer.backend.put = beside
        store.save(1, state(0), tags=["gold"])
    with lcstore.open(url, "r") as store:
        assert store.at("gold").step == 1
