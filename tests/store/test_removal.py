"""Deleting a store: all of it and nothing else, in an order that may be interrupted anywhere."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import lcstore
from lcstore import ConflictError, NotFoundError, StorageError
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, FaultBackend


def fill(backend: MemoryBackend | Path) -> None:
    with lcstore.open(backend, threads=1, grace=0) as store:
        for step in range(0, 60, 10):
            store.save(step, {"w": np.full((8, 8), step, np.float32)}, tags=["t"])
        store.pin(20)
        store.retire(30)
        store.compact()


def test_all_of_it_goes_with_its_folder(tmp_path):
    fill(tmp_path / "run")
    left = tmp_path / "run" / "data" / (".tmp-" + "0" * 24)
    left.write_bytes(b"of a writer that died")
    there = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    shown = lcstore.remove(tmp_path / "run", dry_run=True)
    assert (shown.states, shown.first, shown.last, shown.foreign) == (6, 0, 50, ())
    assert shown.nbytes == there - len(b"of a writer that died")
    assert (tmp_path / "run" / "lcstore.json").exists()
    done = lcstore.remove(tmp_path / "run")
    assert (done.objects, done.nbytes) == (shown.objects, shown.nbytes)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFoundError):
        lcstore.remove(tmp_path / "run")


def test_what_somebody_wanted_to_keep_is_told_before_it_goes(tmp_path):
    fill(tmp_path / "run")
    with lcstore.open(tmp_path / "run", "r+") as store:
        store.pin(40, by="alice")
        store.tag("paper", 10)
    report = lcstore.remove(tmp_path / "run", dry_run=True)
    assert (report.pinned, report.pinned_by, report.tags) == ((20, 40), ("alice",), ("paper", "t"))
    assert report.marked == "2 pinned states, by 'alice'; tags 'paper', 't'"


def test_nothing_goes_where_not_all_can_be_deleted(tmp_path, monkeypatch):
    root = tmp_path / "run"
    fill(root)
    before = {path: path.stat().st_size for path in root.rglob("*")}
    closed = str(next(path for path in (root / "data").iterdir() if path.is_dir()) / "0")
    assert os.path.isdir(closed)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != closed and access(path, mode))
    for dry_run in (True, False):
        with pytest.raises(StorageError, match=f"may not delete what is in {closed}, so nothing"):
            lcstore.remove(root, dry_run=dry_run)
    assert {path: path.stat().st_size for path in root.rglob("*")} == before


def test_a_directory_that_is_waited_for_goes_with_its_folder_too(tmp_path):
    fill(tmp_path / "run")
    lcstore.remove(tmp_path / "run", timeout=30)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_its_own_is_named_and_left(tmp_path):
    fill(tmp_path)
    mine = ["notes.txt", "nodes/desktop.ini", "data/mine", "plots/loss.png", "other/lcstore.json", ".hidden"]
    for name in mine:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    (tmp_path / "empty").mkdir()
    report = lcstore.remove(tmp_path)
    assert set(report.foreign) == set(mine) - {".hidden"}
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == set(mine)
    assert (tmp_path / "empty").is_dir()


def test_a_link_is_not_followed(tmp_path):
    fill(tmp_path / "run")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "x").write_text("mine")
    (tmp_path / "run" / "data" / "link").symlink_to(tmp_path / "precious")
    assert lcstore.remove(tmp_path / "run").foreign == ("data/link",)
    assert (tmp_path / "precious" / "x").read_text() == "mine"


def test_states_go_before_their_data_and_the_store_last():
    backend = MemoryBackend.fresh()
    fill(backend)
    watched = FaultBackend(backend)
    lcstore.remove(watched)
    gone = [asked.key for asked in watched.log if asked.name == "delete"]
    folders = list(dict.fromkeys(key.partition("/")[0] for key in gone))
    assert folders == [
        "copies", "nodes", "edges", "names", "retired", "layouts", "data", "lcstore.json",
    ]  # fmt: skip
    assert backend.snapshot() == {}


@pytest.mark.parametrize("stride", [9, pytest.param(1, marks=pytest.mark.soak)])
def test_interrupted_anywhere_and_run_again_it_is_done(stride):
    start = MemoryBackend.fresh()
    fill(start)
    number, struck, seen = 0, True, set()
    while struck:
        backend = MemoryBackend.fresh(start.snapshot())
        dying = FaultBackend(backend, {number: "crash_before"})
        try:
            lcstore.remove(dying)
        except Crash:
            with lcstore.open(backend, "r") as store:
                seen.add(len(store.steps()))
                assert 30 not in store.steps()  # what was let go of does not come back
            lcstore.remove(backend)
        assert backend.snapshot() == {}
        struck = bool(dying.struck)
        number += stride
    assert seen >= {0, 5}


def test_a_run_that_goes_on_is_told_of():
    backend = MemoryBackend.fresh()
    fill(backend)

    class Beside(FaultBackend):
        def delete_many(self, keys):
            keys = list(keys)
            super().delete_many(keys)
            if keys[0].startswith("layouts/"):
                self.inner.put(
                    "nodes/" + "0" * 19 + "-000009.00000000-00000000-" + "a" * 32 + "-root-0.json", b""
                )

    with pytest.raises(ConflictError, match="still writing"):
        lcstore.remove(Beside(backend))
    assert "lcstore.json" in backend.snapshot()
    lcstore.remove(backend)
    assert backend.snapshot() == {}


def test_a_damaged_store_goes_too(tmp_path):
    fill(tmp_path / "run")
    for path in (tmp_path / "run" / "nodes").iterdir():
        path.write_bytes(b"{")
    (tmp_path / "run" / "lcstore.json").unlink()
    shutil.rmtree(tmp_path / "run" / "copies")
    there = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*") if path.is_file())
    assert lcstore.remove(tmp_path / "run").nbytes == there
    assert not (tmp_path / "run").exists()


def test_where_there_is_no_store_nothing_is_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NotFoundError):
        lcstore.remove(tmp_path)
    with pytest.raises(NotFoundError):
        lcstore.remove(LocalBackend(tmp_path / "none"))
    assert (tmp_path / "notes.txt").read_text() == "mine"
