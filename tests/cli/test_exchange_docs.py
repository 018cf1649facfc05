"""The commands and examples of docs/exchange.md run as they stand, from the top to the bottom."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from kit.pages import blocks_of
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app


def test_the_page_holds(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    Path("checkpoints").mkdir()
    torch.manual_seed(0)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in (100, 200, 300):
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        state = {"model": model.state_dict(), "optim": optimizer.state_dict(), "step": step}
        torch.save(state, f"checkpoints/checkpoint-{step}.pt")
    space: dict[str, Any] = {}
    for block in blocks_of("docs/exchange.md"):
        if block.language == "python":
            block.run(space)
            continue
        for line in block.code.splitlines():
            if "best:loss" in line:
                with lcstore.open("runs/gpt", "r+") as store:
                    store.save(400, {"model": model}, metrics={"loss": 1.0})
            result = CliRunner().invoke(app, shlex.split(line)[1:])
            assert result.exit_code == 0, (line, result.output)
    written = {"model.safetensors", "again.safetensors", "whole.safetensors", "whole.pt", "best.zarr"}
    assert {path.name for path in Path().iterdir()} == {"checkpoints", "runs", "base.pt", *written}
    assert torch.load("whole.pt", weights_only=True)["step"] == 300
    with lcstore.open("runs/gpt", "r") as store:
        assert store.steps() == [100, 200, 300, 400]
    with lcstore.open("runs/tuned", "r") as store:
        assert [state.kind for state in store.states(records=False)].count("anchor") == 1
