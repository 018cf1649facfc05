"""`lcstore cp` of a folder of stores."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from kit.commands import call, document
from kit.looks import contents

import lcstore
from lcstore.places import below
from lcstore.storage.memory import MemoryBackend

NAMES = ("a", "sweep/b 1", "sweep/b 2")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        save(tmp_path / "runs" / name, number, 0, 1)
    return tmp_path / "runs"


def save(place: Path, *values: int) -> None:
    with lcstore.open(place, threads=1) as store:
        start = store.latest_step() or 0
        for step, value in enumerate(values, start + 1):
            store.save(step, {"w": np.full((8, 8), value, np.float32)})


def test_each_goes_to_its_name_below_the_other_place(runs, tmp_path):
    result = call("cp", f"{runs}/", str(tmp_path / "backup"))
    assert result.exit_code == 0, result.output
    assert contents(tmp_path / "backup") == contents(runs)
    assert f"3 stores below {runs}/: 3 good, 0 not." in result.stdout
    assert call(*shlex.split(result.stdout.rpartition("lcstore ")[2])).exit_code == 0


def test_the_next_copy_brings_what_is_new_and_leaves_the_rest(runs, tmp_path):
    backup = tmp_path / "backup"
    assert call("cp", str(runs), str(backup)).exit_code == 0
    before = contents(backup)
    save(runs / "a", 5)
    save(runs / "new", 6)
    shutil.rmtree(runs / "sweep/b 1")
    stores = document("cp", str(runs), str(backup))["stores"]
    assert [Path(one["url"]).name for one in stores] == ["a", "new", "b 2"]
    assert [one["report"]["objects"] > 0 for one in stores] == [True, True, False]
    after = contents(backup)
    assert before.items() <= after.items()
    assert {name: data for name, data in after.items() if "b 1" not in name} == contents(runs)


def test_one_that_fails_stops_no_other_and_is_told(runs, tmp_path):
    (chunk, *_) = [one for one in (runs / "a/data").rglob("*") if one.is_file()]
    chunk.write_bytes(bytes(chunk.stat().st_size))
    save(tmp_path / "backup" / "sweep/b 1", 7)  # another store in its place
    result = call("cp", str(runs), str(tmp_path / "backup"))
    assert result.exit_code == 1
    assert "1 good, 2 not." in result.stdout
    assert f"Next: lcstore verify --level checksum {runs}/a" in result.stdout
    stores = document("cp", str(runs), str(tmp_path / "backup"), status=1)["stores"]
    assert [one["ok"] for one in stores] == [False, False, True]
    assert "another store" in stores[1]["problem"]
    assert contents(tmp_path / "backup/sweep/b 2") == contents(runs / "sweep/b 2")


def test_damage_to_copies_is_mended(runs, tmp_path):
    backup = tmp_path / "backup"
    assert call("cp", str(runs), str(backup)).exit_code == 0
    before = contents(backup)
    (chunk, *_) = [one for one in (backup / "sweep/b 2/data").rglob("*") if one.is_file()]
    chunk.write_bytes(bytes(chunk.stat().st_size))
    assert [one["report"]["replaced"] for one in document("cp", str(runs), str(backup))["stores"]] == [
        0,
        0,
        0,
    ]
    stores = document("cp", str(runs), str(backup), "--check")["stores"]
    assert [one["report"]["replaced"] for one in stores] == [0, 0, 1]
    after = contents(backup)
    assert {name: data for name, data in after.items() if "quarantine" not in name} == before


def test_places_that_lie_in_each_other_and_places_without_stores(runs, tmp_path):
    for target in (runs, runs / "backup", tmp_path):
        result = call("cp", str(runs), str(target))
        assert result.exit_code == 1
        assert "lie in each other" in result.stderr
    with pytest.raises(lcstore.NotFoundError, match="no store"):
        lcstore.copy_below(tmp_path / "nothing", tmp_path / "backup")
    assert call("cp", str(tmp_path / "nothing"), str(tmp_path / "backup")).exit_code == 1
    assert not (tmp_path / "backup").exists()


def test_a_target_that_takes_nothing_is_not_laid_to_the_source(runs, tmp_path):
    (tmp_path / "backup").mkdir()
    for name in ("a", "sweep"):
        (tmp_path / "backup" / name).write_text("in the way")
    result = call("cp", str(runs), str(tmp_path / "backup"))
    assert result.exit_code == 1
    assert "0 good, 3 not." in result.stdout
    assert "Next:" not in result.stdout
    assert "To look at them" not in result.stdout


def test_a_store_is_no_place_for_others(runs, tmp_path):
    save(tmp_path / "other", 1)
    result = call("cp", str(runs), str(tmp_path / "other"))
    assert result.exit_code == 1
    assert "other is a store, and no store lies in another" in result.stderr


def test_a_target_that_does_not_answer_is_waited_for_once(runs, tmp_path, monkeypatch):
    asked = []

    class Silent(MemoryBackend):
        def _get(self, key, start, end):
            asked.append(key)
            raise PermissionError("closed")

    monkeypatch.setattr(below, "open_backend", lambda url, options: Silent(str(url)))
    with pytest.raises(lcstore.StorageError, match="closed"):
        lcstore.copy_below(runs, "memory://silent")
    assert asked == ["lcstore.json"]


def test_between_a_folder_and_memory(runs, tmp_path):
    there = lcstore.copy_below(runs, "memory://copied/many")
    back = lcstore.copy_below("memory://copied/many/", tmp_path / "back")
    assert [one.ok for one in (*there, *back)] == [True] * 6
    assert [one.url for one in back] == [f"memory://copied/many/{name}" for name in NAMES]
    assert contents(tmp_path / "back") == contents(runs)


def test_what_the_source_let_go_of_is_told_without_a_rule_that_lets_go_of_more(tmp_path):
    run, backup = tmp_path / "run", tmp_path / "backup"
    with lcstore.open(run, durability="none") as store:
        for step in range(4):
            store.save(step, {"w": np.full(8, step, np.float32)})
    call("cp", str(run), str(backup))
    call("retain", str(run), "--keep", "every:2 | latest:1", "--apply")
    said = " ".join(call("cp", str(run), str(backup)).stdout.split())
    assert f"1 state stay there that {run} does not keep: it let go of them since an earlier copy" in said
    assert f"lcstore maintain {backup} --keep RULE" in said
    with lcstore.open(backup, "r") as store:
        assert store.steps() == [0, 1, 2, 3]
