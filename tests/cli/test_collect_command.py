"""`lcstore collect` of a place: a sweep that is over is freed in all stores below a folder."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from kit.commands import call, document

import lcstore

OVER = ("--grace", "0", "--run-is-dead")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("collect") / "all runs", np.random.default_rng(0)
    for name in "abc":
        weights = random.standard_normal((64, 64)).astype(np.float32)
        with lcstore.open(folder / name, threads=1) as store:
            for step in range(0, 80, 10):
                weights = weights + random.standard_normal((64, 64)).astype(np.float32) * np.float32(0.01)
                store.save(step, {"model": {"w.weight": weights}}, metrics={"loss": abs(step - 30)})
    return folder


@pytest.fixture
def runs(saved: Path, tmp_path: Path) -> Path:
    """Return a folder of runs that have been over for long."""
    return age(shutil.copytree(saved, tmp_path / "all runs"))


def age(folder: Path) -> Path:
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))
    return folder


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def taken(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def steps(url: Path) -> list[int]:
    with lcstore.open(url, "r") as store:
        return [one.step for one in store.states(records=False, retired=True)]


def test_a_sweep_that_is_over_is_freed_by_two_commands(runs):
    """What an earlier night condemned goes, and what this one lets go of a moment before."""
    before = taken(runs)
    assert call("maintain", str(runs), "--keep", "latest:4 | best:1:loss", "--apply").exit_code == 0
    assert call("collect", str(runs), "--apply").exit_code == 0
    condemned = document("stats", str(runs))["bytes_condemned"]
    assert condemned > 0
    assert call("maintain", str(runs), "--keep", "latest:1", "--apply").exit_code == 0
    shown = call("collect", str(runs), *OVER)
    assert shown.exit_code == 0, shown.output
    assert f"`lcstore unretire {shlex.quote(str(runs))}` can bring back" in shown.stdout
    assert {len(steps(runs / name)) for name in "abc"} == {8}
    line = next(line for line in shown.stdout.splitlines() if "To do it: lcstore " in line)
    done = call(*shlex.split(line.partition("To do it: lcstore ")[2]))
    assert done.exit_code == 0, done.output
    assert "3 good, 0 not" in done.stdout
    assert "21 states." in done.stdout
    assert [steps(runs / name) for name in "abc"] == [[70]] * 3
    found = document("stats", str(runs))
    assert (found["bytes_condemned"], [one["stats"]["retired"] for one in found["stores"]]) == (0, [0, 0, 0])
    assert taken(runs) < before - condemned
    assert call("verify", str(runs), "--level", "restore").exit_code == 0
    assert "Nothing to collect" in call("collect", str(runs), *OVER).stdout


def test_each_store_is_told_and_all_together(runs):
    call("maintain", str(runs), "--keep", "latest:1", "--apply")
    found = document("collect", str(runs), *OVER, "--apply")
    assert (found["url"], found["ok"]) == (str(runs), True)
    assert [Path(one["url"]).name for one in found["stores"]] == ["a", "b", "c"]
    assert [one["report"]["deleted_states"] for one in found["stores"]] == [7, 7, 7]
    assert all(one["ok"] and one["problem"] is None for one in found["stores"])


def test_a_collection_by_the_grace_condemns_and_names_what_frees(runs):
    call("maintain", str(runs), "--keep", "latest:1", "--apply")
    before = {steps(runs / name)[0] for name in "abc"}
    shown = call("collect", str(runs))
    assert "more go a grace after they are condemned" in shown.stdout, shown.output
    done = call("collect", str(runs), "--apply")
    assert done.exit_code == 0
    assert "Freed: 0 B in all" in done.stdout
    assert "more go a grace after they were condemned" in done.stdout
    assert f"Then: lcstore collect {shlex.quote(str(runs))} --apply" in done.stdout
    assert {steps(runs / name)[0] for name in "abc"} == before


def test_a_run_that_is_alive_loses_nothing_and_stops_no_other(runs):
    call("maintain", str(runs), "--keep", "latest:1", "--apply")
    with lcstore.open(runs / "b", "r+", threads=1) as store:
        store.save(80, store.resume())
        there = files(runs / "b")
        shown = call("collect", str(runs), *OVER)
        assert shown.exit_code == 0
        assert "b: now --apply would be refused: the run may be alive" in shown.stdout
        done = call("collect", str(runs), *OVER, "--apply")
        assert done.exit_code == 1
        assert "2 good, 1 not" in done.stdout
        assert "may be alive" in done.stdout
        assert files(runs / "b") == there
        again = lcstore.collect_below(runs, grace=0, run_is_dead=True)
        assert [(Path(one.url).name, one.ok) for one in again] == [("a", True), ("b", False), ("c", True)]
        assert isinstance(again[1].problem, lcstore.ConflictError)
    assert (steps(runs / "a"), steps(runs / "c")) == ([70], [70])


def test_a_grace_that_is_too_short_is_told_with_the_command_that_takes_it(runs):
    refused = call("collect", str(runs), "--grace", "0", "--apply")
    assert refused.exit_code == 1
    named = f"Next: lcstore collect {shlex.quote(str(runs))} --grace 0 --run-is-dead --apply"
    assert named in refused.stdout
    assert call("collect", str(runs), "--run-is-dead").exit_code == 2


def test_what_is_left_out_is_not_collected(runs):
    call("maintain", str(runs), "--keep", "latest:1", "--apply")
    shown = call("collect", str(runs), *OVER, "--leave-out", "b")
    assert "--leave-out b --apply" in shown.stdout
    assert call("collect", str(runs), *OVER, "--leave-out", "b", "--apply").exit_code == 0
    assert [len(steps(runs / name)) for name in "abc"] == [1, 8, 1]
    for none in ("d", ""):  # the second as of a variable of a script that is not set
        error = document("collect", str(runs), "--leave-out", none, status=1)["error"]
        assert f"is called {none!r}" in error["message"]
    assert call("collect", str(runs / "a"), "--leave-out", "a").exit_code == 1
    reports = lcstore.collect_below(runs, leave_out=["a", "c"], grace="0s", run_is_dead=True, dry_run=True)
    assert [one.report.deleted_states for one in reports if one.report] == [7]


def test_what_only_a_compaction_frees_is_told(runs):
    """Kept states are deltas to what was let go of: a collect by itself frees nothing."""
    for name in "abc":
        call("retain", str(runs / name), "--keep", "latest:1", "--apply")
    said = call("collect", str(runs), *OVER, "--apply").stdout
    assert f"compaction frees of that: lcstore maintain {shlex.quote(str(runs))} --keep RULE" in said


def test_a_damaged_store_stops_no_other(runs):
    call("maintain", str(runs), "--keep", "latest:1", "--apply")
    shutil.rmtree(runs / "a" / "copies")
    for path in (runs / "a" / "nodes").iterdir():
        path.write_bytes(b"{")
    done = call("collect", str(runs), *OVER, "--apply")
    assert done.exit_code == 1
    assert f"Next: lcstore verify {shlex.quote(str(runs / 'a'))}" in done.stdout
    assert (steps(runs / "b"), steps(runs / "c")) == ([70], [70])
