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
    with lcstore.open("runs/gpt", threads=1) as store:
        for step in (100, 200):
            rng = np.random.default_rng(step)
            store.save(step, {"model": {"w.weight": rng.standard_normal((32, 32)).astype(np.float32)}})
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
    }
    assert not list(Path("runs").iterdir())
    assert np.array_equal(np.load("step200.npz")["w.weight"], wanted)
    with lcstore.open("step200", "r") as store:
        assert np.array_equal(store.restore()["model"]["w.weight"], wanted)
