"""`lcstore ls --best`: which store of a place is the best, or which run of a store, and what it was given."""

from __future__ import annotations

import math
import re
import shlex
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kit.commands import call, document

import lcstore
from lcstore.storage.local import LocalBackend
from lcstore.terminal import printing

STATE = {"model": {"w.weight": np.ones((4, 4), np.float32)}}
NAN = math.nan
#: By run: metadata, and by step the loss and the accuracy.
SWEEP: dict[str, tuple[dict[str, Any], dict[int, tuple[float, float]]]] = {
    "a": ({"seed": 1, "optim": {"lr": 0.01}, "mixed": True}, {0: (0.9, 0.1), 1: (0.3, 0.9), 2: (0.5, 0.8)}),
    "b": ({"seed": 1, "optim": {"lr": 0.001}, "note": "x" * 99}, {1: (NAN, NAN), 2: (0.4, 0.7)}),
    "c": ({"seed": 1, "optim": {"lr": 0.1}}, {0: (0.2, 0.5), 1: (-math.inf, math.inf)}),
    "d": ({"seed": 2, "optim": {"lr": 0.2}}, {0: (NAN, NAN)}),
}  # fmt: skip


def save(url: str, metadata: dict[str, Any], metrics: dict[int, dict[str, float]]) -> None:
    with lcstore.open(url, policy="lossless", durability="none", threads=1) as store:
        for step, measured in metrics.items():
            store.save(step, STATE, metrics=measured, metadata=metadata)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("best") / "sweep"
    for name, (metadata, steps) in SWEEP.items():
        metrics = {step: {"val_loss": loss, "val_acc": acc} for step, (loss, acc) in steps.items()}
        save(str(folder / name), metadata, metrics)
    save(str(folder / "e"), {}, {0: {"reward": 1.0}})
    return str(folder)


def names_of(found: dict[str, Any]) -> str:
    return "".join(one["url"][-1] for one in found["stores"])


def test_the_best_store_by_the_least_or_the_greatest_value_comes_first(sweep):
    least = document("ls", sweep, "--best", "val_loss")
    assert names_of(least) == "cabde"
    told = [one["best"] and (one["best"]["value"], one["best"]["step"]) for one in least["stores"]]
    assert told == [(0.2, 0), (0.3, 1), (0.4, 2), None, None]
    assert names_of(document("ls", sweep, "--best", "val_acc:max")) == "abcde"
    assert document("ls", sweep, "--best", "best:val_acc:max") == document(
        "ls", sweep, "--best", "val_acc:max"
    )
    best = least["stores"][1]["best"]
    assert best["metrics"] == {"val_loss": 0.3, "val_acc": 0.9}
    assert best["metadata"] == SWEEP["a"][0]
    assert lcstore.open(f"{sweep}/a", "r").info("best:val_loss").node == best["node"]
    assert [one["best"] for one in document("ls", sweep)["stores"]] == [None] * 5


def test_what_differs_of_metadata_is_shown_and_what_is_alike_is_not(sweep):
    result = call("ls", sweep, "--best", "val_loss")
    header, *rows = result.stdout.splitlines()
    assert header.split() == ["store", "val_loss", "step", "mixed", "optim.lr", "note"]
    assert rows[0].split() == [f"{sweep}/c", "0.2", "0", "0.1"]
    assert rows[1].split() == [f"{sweep}/a", "0.3", "1", "True", "0.01"]
    assert rows[2].split()[:4] == [f"{sweep}/b", "0.4", "2", "0.001"]
    assert "x" * 30 not in result.stdout
    assert rows[4].strip() == f"{sweep}/e"
    assert result.exit_code == 0
    assert result.stderr.count("no state has the metric 'val_loss' as a finite number") == 1
    assert f"{sweep}/d, {sweep}/e" in result.stderr
    (command,) = re.findall(r": lcstore (show .+)$", result.stdout, re.MULTILINE)
    assert command == f"show {sweep}/c@best:val_loss"
    assert document(*shlex.split(command))["step"] == 0


def test_names_of_metadata_that_are_those_of_other_columns_are_told_apart(tmp_path):
    for value in (1, 2):
        save(f"{tmp_path}/{value}", {"step": value, "loss": 7 * value}, {5: {"loss": value}})
    header, first, *_ = call("ls", str(tmp_path), "--best", "loss").stdout.splitlines()
    assert re.split(r"  +", header) == ["store", "loss", "step", "metadata loss", "metadata step"]
    assert first.split() == [f"{tmp_path}/1", "1", "5", "7", "1"]


@pytest.mark.parametrize("width", [30, 80, 120])
def test_the_widest_metadata_is_left_out_of_a_narrow_terminal(width, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in (1, 2):
        metadata = {f"a{count}": f"some-long-value-{value}" for count in range(9)} | {"zeta": value}
        save(f"runs/{value}", metadata, {5: {"loss": value}})
    monkeypatch.setattr(printing, "width_of", lambda _: width)
    table, _, left_out = call("ls", "runs", "--best", "loss").stdout.partition("Not shown: ")
    header, first, *rows = table.splitlines()
    assert header.split()[:3] == ["store", "loss", "step"]
    assert header.split()[3] == "zeta"
    assert first.split()[:3] == ["runs/1", "1", "5"]
    assert "a8" in left_out
    assert all(len(line) <= width for line in [header, first, *rows])


def test_a_metric_of_no_store_is_an_error_that_names_those_there_are(sweep):
    failed = document("ls", sweep, "--best", "val_los", status=1)["error"]
    assert failed["kind"] == "not-found"
    assert failed["next"] == f"lcstore ls {sweep}"
    assert "'reward', 'val_acc', 'val_loss'" in failed["message"]
    wrong = call("ls", sweep, "--best", "val_acc")
    assert wrong.exit_code == 2
    assert "best:val_acc:max" in wrong.stderr
    alone = document("ls", sweep, "--best", "val_loss", "--run", "1", status=1)["error"]
    assert "a place of 5 stores: --run goes with one" in alone["message"]
    for more in (["--fast"], ["--retired"], ["--limit", "1"]):
        assert call("ls", sweep, "--best", "val_loss", *more).exit_code == 2


def test_a_damaged_store_does_not_stop_the_others(tmp_path):
    for name, loss in (("gone", 1), ("part", 2), ("whole", 3)):
        save(f"{tmp_path}/{name}", {}, {0: {"loss": loss}, 1: {"loss": loss + 10}})
    (tmp_path / "gone" / "lcstore.json").write_text("{")
    with lcstore.open(tmp_path / "part", "r") as store:
        worst = store.info(1).node
    (record,) = (path for path in (tmp_path / "part").rglob(f"*{worst}*") if "nodes" in path.parts)
    record.write_bytes(b"{")
    result = call("ls", str(tmp_path), "--best", "loss")
    assert result.exit_code == 1
    assert "stores that could not be listed whole: 2" in result.stderr
    assert re.search(r"part +2 +0 +not all of it\n", result.stdout)
    assert re.search(r"gone +cannot be listed\n", result.stdout)
    assert names_of(document("ls", str(tmp_path), "--best", "loss", status=1)) == "tee"


def test_a_store_that_has_not_saved_yet_has_no_runs(tmp_path):
    save(f"{tmp_path}/begun", {}, {0: {"loss": 1}})
    (tmp_path / "new").mkdir()
    shutil.copy(tmp_path / "begun" / "lcstore.json", tmp_path / "new")
    told = document("ls", f"{tmp_path}/new", "--best", "loss")
    assert (told["runs"], "states" in told) == ([], False)


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("forks") / "base")
    save(url, {"rate": 0.1, "seed": 0}, {0: {"loss": 0.9}, 1: {"loss": 0.5}})
    save(url, {"rate": 0.2, "seed": 0}, {1: {"loss": 0.4}, 2: {"loss": 0.6}})
    save(url, {"rate": 0.3, "seed": 0}, {1: {"loss": 0.7}})
    return url


def test_of_one_store_the_runs_are_told_the_best_first(forks):
    told = document("ls", forks, "--best", "loss")["runs"]
    assert [(one["run"], one["best"]["step"], one["best"]["value"]) for one in told] == [
        (2, 1, 0.4),
        (1, 1, 0.5),
        (3, 1, 0.7),
    ]
    header, first, *_, last = call("ls", forks, "--best", "loss").stdout.splitlines()
    assert header.split() == ["run", "loss", "step", "rate"]
    assert first.split() == ["2", "0.4", "1", "0.2"]
    assert last.endswith(f": lcstore show {forks}@best:loss")
    of_one = call("ls", forks, "--best", "loss", "--run", "3").stdout
    assert of_one.splitlines()[-1].endswith(f": lcstore show {forks}@best:loss --run 3")
    assert document("ls", f"{forks}/..", "--best", "loss")["stores"][0]["best"]["value"] == 0.4
    assert document("ls", forks, "--best", "lost", status=1)["error"]["kind"] == "not-found"


def noted(do: Callable[..., Any], asked: list[str]) -> Callable[..., Any]:
    def noting(*args: Any, **more: Any) -> Any:
        asked.append(str(args))
        return do(*args, **more)

    return noting


def test_a_look_for_the_best_asks_for_each_record_besides_what_names_take(sweep, monkeypatch):
    asked: list[str] = []
    for request in ("get", "list", "size"):
        monkeypatch.setattr(LocalBackend, request, noted(getattr(LocalBackend, request), asked))
    call("ls", sweep, "--fast")
    by_names = len(asked)
    asked.clear()
    call("ls", sweep, "--best", "val_loss")
    states = sum(len(steps) for _, steps in SWEEP.values()) + 1
    assert len(asked) == by_names + states


def test_who_would_sort_is_told_what_has_the_best_first(sweep):
    said = document("ls", sweep, "--sort", "val_loss", status=2)["error"]["message"]
    assert f"lcstore ls {sweep} --best METRIC" in said
