"""`lcstore diff`: the table, its JSON, and how the two states are named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import lcstore
from lcstore.cli.app import app


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("diff") / "run")
    ones = np.ones((4, 8), np.float32)
    with lcstore.open(url, policy="lossless") as store:
        store.save(1, {"model": {"a": ones, "b": ones, "[c]": ones}, "lr": 0.5})
        store.save(2, {"model": {"a": ones * 2, "b": ones * 1.5, "d": ones}, "lr": 0.25}, tags=["good"])
    return url


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["diff", *arguments])


def document(*arguments: str) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_most_changed_come_first(saved):
    result = call(f"{saved}@1", f"{saved}@2")
    assert result.exit_code == 0
    for word in ("model/a", "[c]", "removed", "added", "4x8", "float32", "100.00%", "lr", "0.25", "all 4"):
        assert word in result.stdout
    found = document(f"{saved}@1", "@2")
    assert document(f"{saved}@1", "2") == found
    assert [one["path"] for one in found["tensors"]] == ["model/[c]", "model/d", "model/a", "model/b"]
    assert [one["relative"] for one in found["tensors"]] == [None, None, 1.0, 0.5]
    assert [one["growth"] for one in found["tensors"]] == [None, None, 2.0, pytest.approx(1.5)]
    assert "growth" in result.stdout
    assert found["total"]["growth"] == pytest.approx(3.125**0.5)
    assert found["total"]["largest"] == 1.0
    assert (found["a"]["step"], found["b"]["step"], found["count"]) == (1, 2, 4)
    assert found["values"] == {"lr": {"before": 0.5, "after": 0.25}}


def test_a_part_of_it(saved):
    found = document(f"{saved}@2", "@good", "model/?", "--limit", "1", "--sort", "path")
    assert [one["path"] for one in found["tensors"]] == ["model/a"]
    assert found["count"] == 3
    assert found["total"]["status"] == "same"
    assert found["values"] == {}
    assert "2 not shown" in call(f"{saved}@1", "@2", "model/?", "--limit", "1").stdout
    assert document(saved, "@1")["a"]["step"] == 2
    wrong = call(f"{saved}@1", "@2", "nothing")
    assert (wrong.exit_code, wrong.stdout) == (1, "")


def test_what_is_the_same_is_counted_and_not_listed(tmp_path):
    with lcstore.open(tmp_path / "run", policy="lossless") as store:
        for step in (1, 2):
            kept = {name: np.ones(8, np.float32) for name in ("kept", "still")}
            store.save(step, {"model": kept | {"moved": np.full(8, step, np.float32)}})
    first = f"{tmp_path / 'run'}@1"
    shown = call(first, "@2", "--sort", "path").stdout
    assert "model/moved" in shown
    assert "model/kept" not in shown
    assert "Same in both: 2 of 3 tensors." in shown
    assert call(first, "@1").stdout.splitlines()[1:] == ["Same in both: 3 of 3 tensors."]
    statuses = {one["path"]: one["status"] for one in document(first, "@2")["tensors"]}
    assert statuses == {"model/kept": "same", "model/still": "same", "model/moved": "changed"}


def test_what_may_differ_by_its_error_is_told_beside_what_is_the_same(tmp_path):
    comes = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    with lcstore.open(tmp_path / "run") as store:
        for step in range(8):
            moved = np.float32(0.1 * (-1) ** step) * np.sign(comes)
            store.save(step, {"model": {"comes.weight": comes + moved}, "rests": np.ones(3)})
    first = f"{tmp_path / 'run'}@5"
    same, unsure = call(first, "@6").stdout.splitlines()[1:]
    assert same == "Same in both: 2 of 2 tensors."
    assert unsure.startswith("1 of these may truly differ")
    assert "model/comes.weight the most" in unsure
    told = {one["path"]: one["may_differ"] for one in document(first, "@6")["tensors"]}
    assert told == {"model/comes.weight": True, "rests": False}


def test_two_stores(saved, tmp_path):
    with lcstore.open(tmp_path / "other", policy="lossless") as store:
        store.save(7, {"model": {"a": np.full((4, 8), 3, np.float32)}})
    found = document(f"{saved}@1", f"{tmp_path / 'other'}@7", "model/a")
    assert found["tensors"][0]["largest"] == 2.0
    assert found["b"]["url"].endswith("other")
    result = call(f"{saved}@1", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "none" in result.stderr


def test_states_that_are_not_there_and_wrong_usage(saved):
    result = call(f"{saved}@1", "@3")
    assert result.exit_code == 1
    assert "2 steps from 1 to 2" in result.stderr
    for arguments in ([f"{saved}@1"], [f"{saved}@1", "@"], [f"{saved}@1", "@2", "--sort", "no"]):
        assert call(*arguments).exit_code == 2
    assert "--json" in call("--help").stdout


def test_names_do_not_steer_the_terminal(tmp_path: Path):
    with lcstore.open(tmp_path / "run") as store:
        for step in (1, 2):
            store.save(step, {"\x1b[31mred": np.full(3, step), "\x1b]0;t\x07": "\x1b" * step})
    result = call(f"{tmp_path / 'run'}@1", "@2")
    assert result.exit_code == 0
    assert "\x1b" not in result.output


def test_two_bare_steps_are_told_how_to_be_written(saved):
    result = call(saved, "1", "2")
    assert result.exit_code == 2
    assert "@1 @2" in " ".join(result.stderr.split())


def test_what_differs_of_metrics_and_metadata_is_told(tmp_path):
    given = [
        ({"loss": 0.5, "nan": np.nan}, {"optim": {"lr": 0.01, "wd": 0}, "seed": 3}),
        ({"loss": 0.4, "nan": np.nan, "acc": 0.75}, {"optim": {"lr": 0.003, "wd": 0}, "seed": 3}),
    ]
    with lcstore.open(tmp_path / "run", policy="lossless") as store:
        for step, (metrics, metadata) in enumerate(given):
            store.save(step, {"model": {"a": np.ones(8)}}, metrics=metrics, metadata=metadata)
        found = store.diff(0, 1)
        assert not found
        assert store.diff(0, 0).a == store.diff(0, 0).b
    said = ["metric loss: 0.5 to 0.4", "metric acc: none to 0.75", "metadata optim.lr: 0.01 to 0.003"]
    assert str(found).splitlines()[-3:] == said
    assert call(f"{tmp_path}/run@0", "@1").stdout.splitlines()[-3:] == said
    sides = document(f"{tmp_path}/run@0", "@1")
    assert [sides[name]["metadata"] for name in "ab"] == [metadata for _, metadata in given]
    assert [sides[name]["metrics"]["loss"] for name in "ab"] == [0.5, 0.4]


def test_integers_of_more_digits_than_python_writes_are_shown(tmp_path):
    """They ended commands in a traceback: how far a counter has come may be packed into one."""
    url, huge = str(tmp_path / "run"), 10**5000
    with lcstore.open(url) as store:
        for step in range(2):
            store.save(step, {"n": huge + step, "some": {1: huge + step}})
    for command in (["show", f"{url}@0"], ["diff", f"{url}@0", "@1"]):
        shown = CliRunner().invoke(app, command)
        assert shown.exit_code == 0, shown.output
        assert hex(huge)[:20] in shown.stdout
        told = CliRunner().invoke(app, [*command, "--json"])
        assert hex(huge) in json.dumps(json.loads(told.stdout))
