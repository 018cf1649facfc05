"""The loops of docs/quickstart.md: each is killed, and goes on when it is started again."""

from __future__ import annotations

from pathlib import Path

import pytest
from kit import programs
from kit.pages import LOOP, Block, blocks_of, run_blocks
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app

PAGE = "docs/quickstart.md"
LOOPS = {block.words[0]: block for block in blocks_of(PAGE, "python") if LOOP in block.words}


def start(folder: Path, name: str) -> programs.Program:
    """Start the loop in a process of its own; on one thread, since others run tests beside."""
    using = {"torch": programs.TORCH, "jax": ("jax",)}.get(name, ())
    return programs.start(folder / "train.py", using=using, cwd=folder, env={"OMP_NUM_THREADS": "1"})


def test_there_is_a_loop_for_each_library():
    assert LOOPS.keys() == {"torch", "jax", LOOP}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_is_killed_goes_on(name, tmp_path, monkeypatch):
    block: Block = LOOPS[name]
    if block.missing:
        pytest.skip(f"{block.missing} is not installed")
    (tmp_path / "train.py").write_text(block.code, encoding="utf-8")
    with start(tmp_path, name) as process:
        last = next(line for line in process.stdout if line.startswith("step 30:"))
        process.kill()
    assert last
    with start(tmp_path, name) as process:
        told = process.stdout.read().splitlines()
    assert process.returncode == 0
    resumed = int(told[0].removeprefix("resumed after step "))
    assert 30 <= resumed < 200
    assert told[1].startswith(f"step {resumed + 10}: loss ")
    with lcstore.open(next((tmp_path / "runs").iterdir()), "r") as store:
        assert store.steps()[-1] == 200
        losses = [store.info(step).metrics["loss"] for step in store.steps()]
        assert losses[-1] < losses[0]  # it learned over the kill
    if name == "torch":
        monkeypatch.chdir(tmp_path)
        look_at_it()


def look_at_it() -> None:
    """Run what the page says after the loop."""
    space = run_blocks([block for block in blocks_of(PAGE, "python") if "torch" in block.words])
    assert space["bias"].shape == (256,)
    (commands,) = (block.code for block in blocks_of(PAGE, "sh") if "lcstore ls" in block.code)
    for command in commands.splitlines():
        result = CliRunner().invoke(app, command.split()[1:])
        assert result.exit_code == 0, (command, result.output)
