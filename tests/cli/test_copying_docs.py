"""The commands and examples of docs/copying.md run as they stand, from the top to the bottom."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
from kit.pages import blocks_of
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app


def test_the_page_holds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for base, steps in ((None, (100, 200)), (100, (150, 200))):
        with lcstore.open("runs/gpt", threads=1) as store:
            if base is not None:
                store.go_on_from(base)
            for step in steps:
                weight = rng.standard_normal((32, 32)).astype(np.float32)
                state = {"model": {"w.weight": weight}, "optim": {"exp_avg": weight}, "step": step}
                store.save(step, state, metrics={"loss": 1 / step}, metadata={"base": base}, tags=["shown"])
    with lcstore.open("runs/gpt", threads=1) as store:
        store.tag("shown", 100)
        wanted = store.restore(200, to="numpy")["model"]["w.weight"]
    space: dict[str, Any] = {}
    for block in blocks_of("docs/copying.md"):
        if block.language == "python":
            block.run(space)
            continue
        for line in block.code.splitlines():
            result = CliRunner().invoke(app, shlex.split(line)[1:])
            assert result.exit_code == 0, (line, result.output)
    assert {path.name for path in Path().iterdir()} == {
        "backup",
        "step200",
        "step200.npz",
        "runs",
        "moved",
        "archive",
        "published",
    }
    assert not list(Path("runs").iterdir())
    with lcstore.open("backup/gpt", "r") as store, lcstore.open("published", "r") as copy:
        for ours, theirs in zip(store.states(), copy.states(), strict=True):
            assert (ours.step, ours.run, ours.tags) == (theirs.step, theirs.run, theirs.tags)
            assert (ours.info.metrics, ours.info.metadata) == (theirs.info.metrics, theirs.info.metadata)
            found = copy.restore(theirs.node, to="numpy")
            assert found.keys() == {"model"}
            kept = store.restore(ours.node, to="numpy")["model"]["w.weight"]
            assert np.array_equal(found["model"]["w.weight"], kept)
        assert (copy.info("shown").step, copy.info(150).base) == (100, copy.info(100).node)
    assert np.array_equal(np.load("step200.npz")["w.weight"], wanted)
    with lcstore.open("step200", "r") as store:
        assert np.array_equal(store.restore()["model"]["w.weight"], wanted)
