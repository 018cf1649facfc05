"""Objects that someone renamed or moved are not lost: who looks for damage says where they are."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lcstore
from lcstore import CorruptionError
from lcstore.check.astray import likely, way_back
from lcstore.cli.app import app
from lcstore.repair.repair import repair
from lcstore.storage.targets import open_backend

EDGE, OTHER = "a" * 32, "b" * 32
KEY = f"data/{EDGE}/0/weights-float32.add/c.1"


@pytest.mark.parametrize(
    "name",
    [
        f"data/{EDGE}.bak/0/weights-float32.add/c.1",
        f"data/{EDGE} (copy)/0/weights-float32.add/c.1",
        f"data/Copy of {EDGE}/0/weights-float32.add/c.1",
        f"data/{EDGE}/0.old/weights-float32.add/c.1",
        f"data/{EDGE}/0/weights-float32.add~/c.1",
        f"data/{EDGE}/0/weights-float32.add/c.1.tmp",
        f"data/{EDGE}/0/weights-float32.add/c.1 (2)",
        f"data.old/{EDGE}/0/weights-float32.add/c.1",
        f"data/aside/of today/{EDGE}/0/weights-float32.add/c.1",
        f"{EDGE}/0/weights-float32.add/c.1",
    ],
)
def test_a_name_that_a_missing_object_may_have(name):
    assert likely([KEY, f"data/{OTHER}/0/weights-float32.add/c.1"], ["data/notes.txt", name]) == {KEY: name}


@pytest.mark.parametrize(
    "name",
    [
        "c.1",
        "data/notes.txt",
        f"data/{OTHER}.bak/0/weights-float32.add/c.1",
        f"data/{EDGE}.bak/0/weights-float32.add/c.10",
        f"data/{EDGE}.bak/0/weights-float32.add/c.11.bak",
        f"data/{EDGE}.bak/1/weights-float32.add/c.1",
        f"data/{EDGE}.bak/0/weights-float32.add",
    ],
)
def test_a_name_that_no_missing_object_can_have(name):
    assert likely([KEY], [name]) == {}


def test_the_store_s_own_files_may_be_renamed_too():
    layout = f"layouts/{'c' * 64}.json"
    assert likely([layout, "lcstore.json"], [f"{layout}.bak", "lcstore.json.old"]) == {
        layout: f"{layout}.bak",
        "lcstore.json": "lcstore.json.old",
    }


def test_of_a_path_that_is_told_which_changed():
    def back(name):
        return way_back(likely([KEY, KEY.replace("c.1", "c.2")], [name, name.replace("c.1", "c.2")]))

    assert f"move data/{EDGE}.bak to data/{EDGE}" in back(KEY.replace(EDGE, f"{EDGE}.bak"))
    assert f"move aside/{EDGE} to data/{EDGE}" in back(KEY.replace("data", "aside"))
    assert f"move '{KEY} (2)' to {KEY}, '" in back(f"{KEY} (2)")


def filled(url: Path) -> Path:
    """Save some steps; return the folder of an edge in the middle."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((64, 64)).astype(np.float32)
    folders = []
    with lcstore.open(url) as store:
        for step in range(6):
            weights = weights + random.standard_normal((64, 64)).astype(np.float32) * np.float32(0.01)
            store.save(step, {"model": {"w.weight": weights}})
            folders.append({*(url / "data").iterdir()})
    (edge,) = folders[2] - folders[1]
    return edge


def rename(edge: Path) -> None:
    edge.rename(f"{edge}.bak")


def move(edge: Path) -> None:
    (edge.parent.parent / "my backup").mkdir()
    edge.rename(edge.parent.parent / "my backup" / edge.name)


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 1
    return " ".join(result.output.split())


@pytest.mark.parametrize("change", [rename, move])
def test_nothing_is_let_go_of_that_may_be_there_under_another_name(change, tmp_path):
    url, backend = str(tmp_path / "run"), open_backend(str(tmp_path / "run"))
    edge = filled(tmp_path / "run")
    change(edge)
    names = {path for path in (tmp_path / "run").rglob("*") if path.is_file()}
    with lcstore.open(url, "r") as store:
        found = store.verify()
    assert found.lost == (2, 3, 4, 5)
    assert {*found.astray} == {key for key in found.astray if key.startswith(f"data/{edge.name}/0/")}
    told = {one.message for one in found.findings if one.key in found.astray.values()}
    assert told == {f"it may be {key}, which is missing: move it back there" for key in found.astray}
    planned = repair(backend, dry_run=True)
    for report, command in ((found, "verify"), (planned, "repair")):
        assert f"to data/{edge.name}" in report.way_back
        assert f"{report.way_back}, before any repair" in call(command, url)
    assert "--apply" not in call("repair", url)
    for _ in range(2):
        with pytest.raises(CorruptionError, match=r"nothing was repaired.* or out of the store"):
            repair(backend)
    assert "lcstore verify" in call("repair", url, "--apply")
    assert {path for path in (tmp_path / "run").rglob("*") if path.is_file()} == names
    for key, name in found.astray.items():
        (tmp_path / "run" / key).parent.mkdir(parents=True, exist_ok=True)
        os.rename(tmp_path / "run" / name, tmp_path / "run" / key)
    with lcstore.open(url, "r") as store:
        assert store.verify("restore").ok


def test_what_was_moved_out_of_the_store_is_let_go_of(tmp_path):
    url, backend = str(tmp_path / "run"), open_backend(str(tmp_path / "run"))
    edge = filled(tmp_path / "run")
    rename(edge)
    shutil.move(f"{edge}.bak", tmp_path / "elsewhere")
    assert "another name" not in call("verify", url) + call("repair", url)
    assert [loss.step for loss in repair(backend).lost] == [2, 3, 4, 5]


def test_what_can_be_made_again_stands_in_no_way(tmp_path):
    """A lone chunk that was renamed is rebuilt from its parity, whatever became of it."""
    edge = filled(tmp_path / "run")
    (chunk,) = edge.glob("0/weights-float32.add/c.0")
    chunk.rename(f"{chunk}.old")
    report = repair(open_backend(str(tmp_path / "run")))
    assert (report.lost, report.way_back) == ((), "")
    assert chunk.exists()
