"""Every document that a command prints has the fields that docs/json.md says, and no others."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from kit.jsonpage import PAGE, fields_of, fields_said, rows
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app

#: A row's command and how it is called here, in order: each may build on the one before.
CALLS = {
    "lcstore ls URL": "ls runs/a",
    "lcstore ls URL --runs": "ls runs/a --runs",
    "lcstore ls URL --best METRIC": "ls runs/a --best loss",
    "lcstore ls PREFIX": "ls runs",
    "lcstore show URL@STEP": "show runs/a@10",
    "lcstore diff URL@STEP @STEP": "diff runs/a@0 @10",
    "lcstore stats URL": "stats runs/a",
    "lcstore stats PREFIX": "stats runs",
    "lcstore plot URL": "plot runs/a",
    "lcstore report URL": "report runs/a",
    "lcstore maintain URL --keep RULE": "maintain runs/a --keep latest:3",
    "lcstore retain URL --keep RULE": "retain runs/a --keep latest:3",
    "lcstore compact URL": "compact runs/a --dry-run",
    "lcstore collect URL": "collect runs/a",
    "lcstore retire URL@STEP": "retire runs/a@10",
    "lcstore retire URL --run RUN": "retire runs/a --run 1 --after 20 --run-is-dead",
    "lcstore unretire URL": "unretire runs/a",
    "lcstore tag URL@STEP NAME": "tag runs/a@10 good",
    "lcstore tag URL": "tag runs/a",
    "lcstore untag URL NAME": "untag runs/a good",
    "lcstore pin URL@STEP": "pin runs/a@10",
    "lcstore pin URL": "pin runs/a",
    "lcstore pin PREFIX": "pin runs",
    "lcstore unpin URL@STEP": "unpin runs/a@10",
    "lcstore cp URL TO": "cp runs/a copy",
    "lcstore rm URL": "rm copy",
    "lcstore export URL@STEP FILE": "export runs/a@10 step-10.npz",
    "lcstore import FILES URL": "import step-10.npz imported",
    "lcstore verify URL": "verify runs/a",
    "lcstore repair URL": "repair runs/a",
    "lcstore doctor": "doctor",
    "lcstore doctor URL": "doctor runs/a",
    "lcstore warm": "warm",
    "lcstore bench FILES": "bench step-10.npz step-20.npz",
    "lcstore maintain PREFIX --keep RULE": "maintain runs --keep latest:3",
    "lcstore collect PREFIX": "collect runs",
    "lcstore unretire PREFIX": "unretire runs",
    "lcstore verify PREFIX": "verify runs",
    "lcstore cp PREFIX/ TO": "cp runs/ copies",
}
#: They take long, or a model: tests of their own run them, and compare their documents.
NOT_HERE = {"lcstore demo URL", "lcstore tune URL PROBE"}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of each call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("json"))
        rng = np.random.default_rng(0)
        for name in "ab":
            with lcstore.open(f"runs/{name}") as store:
                weight = rng.standard_normal((64, 64), np.float32)
                for step in range(0, 60, 10):
                    weight += np.float32(1e-3) * rng.standard_normal(weight.shape, np.float32)
                    store.save(step, {"model": {"w.weight": weight}, "epoch": step}, metrics={"loss": 1.0})
        found = {}
        lcstore.export(lcstore.open("runs/a", "r").at(20), "step-20.npz")
        for command, call in CALLS.items():
            result = CliRunner().invoke(app, [*call.split(), "--json"])
            assert result.exit_code == 0, (call, result.output)
            found[command] = json.loads(result.stdout)
        return found


def test_each_row_is_tried_and_each_command_has_one():
    commands = [command for command, _, _ in rows()]
    assert {*commands} == CALLS.keys() | NOT_HERE
    assert len(commands) == len({*commands})
    every = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    with_json = {name for name, one in every.items() if any("--json" in p.opts for p in one.params)}
    assert with_json == {command.split()[1] for command in commands}


@pytest.mark.parametrize("command", CALLS)
def test_a_document_has_the_fields_of_its_row(documents, command):
    assert documents[command].keys() == fields_said(command)


@pytest.mark.parametrize(
    ("command", "inner", "title"),
    [
        ("lcstore ls URL", "states", "`states` of `ls`"),
        ("lcstore ls URL --runs", "runs", "`runs` of `ls --runs`"),
        ("lcstore ls PREFIX", "stores", "`stores` of `ls`"),
        ("lcstore stats PREFIX", "stores", "`stores` of `stats`"),
        (
            "lcstore maintain PREFIX --keep RULE",
            "stores",
            "`stores` of `maintain`, `collect`, `unretire`, `verify` and `cp`",
        ),
        ("lcstore diff URL@STEP @STEP", "tensors", "`tensors` of `diff`"),
        ("lcstore plot URL", "states", "`states` of `plot` and `report`"),
        ("lcstore stats URL", "compaction", "`compaction` of `stats`"),
        ("lcstore pin URL", "pins", "`tags` and `pins`"),
        ("lcstore doctor URL", "target", "`versions`, `machine` and `target` of `doctor`"),
        ("lcstore doctor", "machine", "`versions`, `machine` and `target` of `doctor`"),
    ],
)
def test_what_lies_in_a_document_is_told_too(documents, command, inner, title):
    """In the paragraph of that title, by its name or as a field of a class that is named there."""
    part = documents[command][inner]
    assert part
    paragraph = PAGE[PAGE.index(f"- **{title}**") :].split("\n- ")[0]
    words = set(re.findall(r"`(\w+)`", paragraph))
    for cls in words & {"TensorDiff", "SavedState"}:
        words |= fields_of(cls)
    assert (part[0] if isinstance(part, list) else part).keys() <= words


#: In the paragraphs of lists: classes, commands, and texts that fields may have.
NO_FIELDS = {"Listed", "StepInfo", "Stats", "TensorDiff", "SavedState", "CompactReport", "null"}
NO_FIELDS |= {
    "ls",
    "stats",
    "maintain",
    "collect",
    "unretire",
    "verify",
    "cp",
    "diff",
    "plot",
    "report",
    "doctor",
    "kept",
    "retired",
}
#: Those of what is not there in these stores: a record that cannot be read, values that differ, other stores.
NOT_THERE = {"kind", "message", "before", "after", "stores_inside"}


def test_no_field_is_told_that_is_in_no_document(documents):
    def inside(value: Any) -> set[str]:
        if isinstance(value, dict):
            return {*value, *(name for one in value.values() for name in inside(one))}
        return {name for one in value for name in inside(one)} if isinstance(value, list) else set()

    there = {name for one in documents.values() for name in inside(one)}
    told = set(re.findall(r"`(\w+)`", PAGE[PAGE.index("## The lists") :]))
    assert told - there - NO_FIELDS <= NOT_THERE


def test_an_error_is_a_document_with_the_fields_that_are_said(tmp_path: Path):
    result = CliRunner().invoke(app, ["show", str(tmp_path / "none"), "--json"])
    found = json.loads(result.stdout)
    said = re.search(r'\{"ok": false, "error": \{(.*?)\}\}', PAGE)
    assert said is not None
    assert found.keys() == {"ok", "error"}
    assert found["error"].keys() == set(re.findall(r'"(\w+)"', said[1]))
