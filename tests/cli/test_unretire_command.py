"""`lcstore unretire`: a night with a wrong rule is made up for, in one store or in all below a folder."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest
from kit.commands import call, document
from kit.looks import steps

import lcstore


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, random = tmp_path_factory.mktemp("unretire") / "all runs", np.random.default_rng(0)
    for name in "ab":
        weights = random.standard_normal((16, 16)).astype(np.float32)
        with lcstore.open(folder / name, threads=1) as store:
            for step in range(0, 80, 10):
                weights = weights + random.standard_normal((16, 16)).astype(np.float32) * np.float32(0.01)
                store.save(step, {"model": {"w.weight": weights}})
    return folder


@pytest.fixture
def runs(saved: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(saved, tmp_path / "all runs"))


def named_in(said: str, command: str) -> list[str]:
    """Return the arguments of the first such command that a text names."""
    line = next(line for line in said.splitlines() if f"lcstore {command}" in line)
    return shlex.split(line[line.index(f"lcstore {command}") :])[1:]


EVERY = [*range(0, 80, 10)]


def test_a_night_over_a_folder_is_made_up_for_by_the_command_that_it_names(runs):
    night = call("maintain", runs, "--keep", "latest:1", "--apply")
    assert night.exit_code == 0, night.output
    assert steps(f"{runs}/a") == steps(f"{runs}/b") == [70]
    shown = call(*named_in(night.stdout, "unretire"))
    assert shown.exit_code == 0, shown.output
    assert "14 states would come back in all" in shown.stdout
    assert steps(f"{runs}/a") == [70]
    done = call(*named_in(shown.stdout, "unretire"))
    assert done.exit_code == 0, done.output
    assert "14 states brought back in all. The next rule decides about them anew" in done.stdout
    assert steps(f"{runs}/a") == steps(f"{runs}/b") == EVERY
    assert "There are no pins" in call("pin", f"{runs}/a").stdout
    assert call("maintain", runs, "--keep", "every:20", "--apply").exit_code == 0
    assert steps(f"{runs}/a") == [0, 20, 40, 60, 70]
    assert call("maintain", runs, "--keep", "every:20", "--apply").exit_code == 0
    found = call("unretire", runs)
    assert found.exit_code == 0


def test_what_a_night_left_out_is_left_out_by_the_command_that_makes_up_for_it(runs):
    """What a store's own rule let go of is none of that night."""
    assert call("maintain", f"{runs}/b", "--keep", "latest:1", "--apply").exit_code == 0
    night = call("maintain", runs, "--keep", "latest:2", "--leave-out", "b", "--apply")
    shown = call(*named_in(night.stdout, "unretire"))
    assert "6 states would come back in all" in shown.stdout, shown.output
    assert call(*named_in(shown.stdout, "unretire")).exit_code == 0
    assert (steps(f"{runs}/a"), steps(f"{runs}/b")) == (EVERY, [70])
    assert "is called 'c'" in document("unretire", runs, "--leave-out", "c", status=1)["error"]["message"]


@pytest.mark.parametrize("command", ["maintain", "retain"])
def test_in_one_store_it_tells_what_went_when_and_why(runs, command):
    url = f"{runs}/a"
    said = call(command, url, "--keep", "latest:1", "--apply").stdout
    shown = call(*named_in(said, "unretire"))
    assert "not kept by LatestN(1)" in shown.stdout
    assert "0 to 60" in shown.stdout
    done = call(*named_in(shown.stdout, "unretire"))
    assert "7 states brought back. The next rule decides about them anew" in done.stdout
    assert steps(url) == EVERY
    assert "brought back" in call("ls", url).stdout
    facts = document("show", f"{url}@30")
    assert (facts["pinned"], facts["pinned_by"], facts["brought_back"]) == (False, [], True)
    assert call(*named_in(done.stdout, "pin")).exit_code == 0
    assert len(document("pin", url)["pins"]) == 1
    assert "hidden again" in call("unpin", f"{url}@30").stdout
    assert 30 not in steps(url)


def test_one_state_comes_back_as_retire_says(runs):
    url = f"{runs}/a"
    said = call("retire", f"{url}@30", "--apply").stdout
    assert call(*named_in(said, "unretire")).exit_code == 0
    assert steps(url) == EVERY
    again = document("unretire", f"{url}@30")
    assert (again["brought_back"], again["notes"]) == ([], ["step 30 is not retired"])
    assert call("retire", f"{url}@30", "--apply").exit_code == 0
    assert steps(url) == [step for step in EVERY if step != 30]


def test_what_comes_too_late_is_told(runs):
    url = f"{runs}/a"
    call("retain", url, "--keep", "latest:2", "--apply")
    call("compact", url)
    call("collect", url, "--apply")
    call("retain", url, "--keep", "latest:1", "--apply")
    found = document("unretire", url, "--apply")
    assert [one["step"] for one in found["brought_back"]] == [60]
    assert [one["step"] for one in found["too_late"]] == [*range(0, 60, 10)]
    assert found["ok"]
    assert document("unretire", url, "--since", "1h", status=1)["ok"] is False
    assert "Too late: 6 states" in call("unretire", url).stdout
    below = document("unretire", runs, "--since", "1h", status=1)
    assert [one["ok"] for one in below["stores"]] == [False, True]
    assert call("unretire", runs).exit_code == 0
    one = call("unretire", f"{url}@30", "--apply")
    assert one.exit_code == 1
    assert "too late" in one.stderr


def test_a_store_that_fails_stops_no_other(runs):
    call("maintain", runs, "--keep", "latest:1", "--apply")
    (Path(runs) / "a" / "lcstore.json").write_text("{")
    shutil.rmtree(Path(runs) / "a" / "copies", ignore_errors=True)
    result = call("unretire", runs, "--apply")
    assert result.exit_code == 1
    assert steps(f"{runs}/b") == EVERY


def test_what_cannot_be_meant_is_wrong_usage(runs):
    assert call("unretire", f"{runs}/a@30", "--since", "1h").exit_code == 2
    assert call("unretire", f"{runs}/a", "--since", "soon").exit_code == 2
    assert call("unretire", f"{runs}/none").exit_code == 1
    assert call("unretire", f"{runs}/a@30", "--leave-out", "a").exit_code == 2
    assert call("unretire", f"{runs}/a", "--leave-out", "a").exit_code == 1
