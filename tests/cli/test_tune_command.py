"""`lcstore tune`: the user's function, the tables, the files, and wrong usage."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from kit.jsonpage import fields_said
from tune.tuned_runs import states
from typer.testing import CliRunner, Result

import lcstore
from lcstore.cli.app import app

PROBE = """
import numpy as np

def loss(state):
    first, head = state["model"]["first.weight"], state["model"]["head.weight"]
    return float(np.square(first).mean() * 30 + np.square(head).mean())

def nothing(state):
    return 1.0

number = 3
"""


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("tune") / "run")
    with lcstore.open(url, policy="lossless") as store:
        for step, state in enumerate(states(7)):
            store.save(step, state)
    return url


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_probe.py").write_text(PROBE)
    (tmp_path / "broken_probe.py").write_text("import no_such_module_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "a_probe", raising=False)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tune", *arguments])


def test_tables_and_files(saved):
    result = call(saved, "a_probe:loss", "--evaluations", "21", "--output", "tuned.json")
    assert result.exit_code == 0, result.output
    for word in ("model/first.weight", "preset", "tuned", "times fewer bytes", "Written: tuned.json"):
        assert word in result.stdout
    told = next(line for line in result.stdout.splitlines() if "does not see" in line)
    assert "model/layers" in told
    assert "first" not in told
    with lcstore.open("memory://from-a-tuned-file", policy="tuned.json") as store:
        assert store.policy.name == "tuned-balanced"


def test_json_and_a_choice_of_steps(saved):
    steps = [word for step in (0, 1, 2, 3, 4) for word in ("--step", str(step))]
    result = call(saved, "a_probe:loss", "--evaluations", "17", "--like", "small", "--json", *steps)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found.keys() == fields_said("lcstore tune URL PROBE")
    assert found["states"] == 5
    assert found["evaluations"] <= 17
    assert found["policy"]["name"] == "tuned-small"
    assert found["tuned"]["cost"]["even"] <= found["tolerance"]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["a_probe"], 2, "MODULE:FUNCTION"),
        (["a_probe:"], 2, "MODULE:FUNCTION"),
        (["no_probe:loss"], 2, "no module"),
        (["a_probe:lost"], 2, "no function"),
        (["a_probe:number"], 2, "no function"),
        (["a_probe:loss", "--output", "tuned.txt"], 2, ".json"),
        (["a_probe:loss", "--step", "99"], 1, "no step 99"),
        (["a_probe:nothing"], 1, "depend on the state"),
        (["a_probe:loss", "--like", "lossless"], 1, "nothing to tune"),
    ],
)
def test_wrong_usage_and_what_cannot_be_done(saved, arguments, status, message):
    result = call(saved, *arguments)
    assert result.exit_code == status
    assert message in result.stderr.replace("\n", " ")


def test_what_is_wrong_in_the_users_module_is_shown_as_it_is(saved):
    result = call(saved, "broken_probe:loss")
    assert isinstance(result.exception, ModuleNotFoundError)
    assert os.getcwd() in sys.path


def test_a_store_that_is_not_there():
    assert call("nowhere", "a_probe:loss").exit_code == 1


def test_a_search_that_finds_nothing_says_so(saved, monkeypatch):
    monkeypatch.setattr("lcstore.tune.search._Search._tries_allowed", lambda search: 0)
    result = call(saved, "a_probe:loss", "--evaluations", "21", "--output", "same.json")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    assert "times fewer bytes" not in said
    assert "stay with the preset, which same.json is, too." in said
