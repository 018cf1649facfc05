"""The recipes of docs/preemption.md: a loop that is told to end ends as they say, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit import programs
from kit.pages import ROOT, blocks_of

import lcstore

PAGE = "docs/preemption.md"
(LOOP,) = (block.code for block in blocks_of(PAGE, "python"))
SLURM, TORCHRUN, SPOT = (block.code for block in blocks_of(PAGE, "sh"))
TOLD = 128 + signal.SIGTERM


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the loop is, slowed down, and commands that stand in for those of a cluster."""
    slow = "train(model, rng)\n        import time; time.sleep(0.001 if resumed else 0.2)"
    code = LOOP.replace("    train(model, rng)", f"    {slow}").replace("=25)", '=25, policy="lossless")')
    assert code.count("sleep") == code.count("lossless") == 1
    (tmp_path / "train.py").write_text(code)
    (tmp_path / "job.sh").write_text(SLURM)
    (tmp_path / "spot.sh").write_text(SPOT.replace("sleep 5", "sleep 0.2"))
    return tmp_path


def stand_in(folder: Path, name: str, lines: str) -> None:
    bin_ = folder / "bin"
    bin_.mkdir(exist_ok=True)
    (bin_ / name).write_text(f"#!/bin/sh\n{lines}\n")
    (bin_ / name).chmod(0o755)


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    path = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PATH": os.pathsep.join(path), "SLURM_JOB_ID": "17"}
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)


def trains(folder: Path) -> None:
    """Wait until the first state is there."""
    nodes, until = folder / "runs/preemptible/nodes", time.monotonic() + 120
    while time.monotonic() < until:
        if nodes.is_dir() and any(nodes.iterdir()):
            return
        time.sleep(0.05)
    raise AssertionError("nothing is saved")


def latest(folder: Path) -> int:
    with lcstore.open(folder / "runs/preemptible", "r") as store:
        step = store.latest_step()
    assert step is not None
    return step


def ends(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


def trained() -> np.ndarray:
    """What the weights are after all steps, never interrupted."""
    space: dict[str, Any] = {}
    exec(LOOP[LOOP.index("def train") : LOOP.index("with ")], {"np": np}, space)
    for _ in range(200):
        space["train"](space["model"], space["rng"])
    return space["model"]["head.weight"]


def test_the_loop_goes_on_where_it_was_told_to_end(folder):
    process = programs.start(folder / "train.py", cwd=folder)
    trains(folder)
    process.kill(signal.SIGTERM)
    told = process.ended()
    assert (told.returncode, told.stdout) == (-signal.SIGTERM, "")
    assert 0 <= latest(folder) < 199
    for _ in range(2):  # once it has come to its end, nothing more happens
        told = programs.run(folder / "train.py", cwd=folder)
        assert (told.returncode, told.stdout) == (0, "trained to the end\n")
        assert latest(folder) == 199
    with lcstore.open(folder / "runs/preemptible", "r") as store:
        assert np.array_equal(store.read("latest", "model/head.weight"), trained())


def test_a_job_of_slurm_is_requeued_until_it_is_done(folder):
    stand_in(folder, "srun", '"$@" & echo $! > child; wait $!')
    stand_in(folder, "scontrol", 'echo "$@" >> asked')
    process = start(folder, "sh", "job.sh")
    trains(folder)
    os.kill(int((folder / "child").read_text()), signal.SIGTERM)
    assert ends(process)[0] == TOLD
    assert (folder / "asked").read_text() == "requeue 17\n"
    assert ends(start(folder, "sh", "job.sh")) == (0, "trained to the end\n")
    assert (folder / "asked").read_text() == "requeue 17\n"


def test_a_job_of_torchrun_is_requeued_until_its_state_is_tagged(folder, monkeypatch):
    def asked() -> str:
        (folder / "asked").write_text("")
        ends(start(folder, "sh", "torchrun.sh"))
        return (folder / "asked").read_text()

    (folder / "torchrun.sh").write_text(TORCHRUN)
    stand_in(folder, "srun", "exit 1")
    stand_in(folder, "scontrol", 'echo "$@" >> asked')
    assert asked() == "requeue 17\n"
    with lcstore.open(folder / "runs/preemptible") as store:
        store.save(199, {"step": 199})
        assert asked() == "requeue 17\n"
        monkeypatch.setenv("SLURM_RESTART_COUNT", "20")
        assert asked() == ""
        monkeypatch.delenv("SLURM_RESTART_COUNT")
        store.tag("done", "latest")
    assert asked() == ""


@pytest.mark.parametrize("notice", ["metadata", "signal"])
def test_a_spot_machine_that_goes(folder, notice):
    stand_in(folder, "curl", 'case "$*" in *api/token*) echo t;; *) test -e going;; esac')
    process = start(folder, "sh", "spot.sh", sys.executable, "train.py")
    trains(folder)
    if notice == "metadata":
        (folder / "going").touch()
    else:
        process.send_signal(signal.SIGTERM)
    assert ends(process) == (TOLD, "")
    assert latest(folder) < 199
    (folder / "going").unlink(missing_ok=True)
    assert ends(start(folder, "sh", "spot.sh", sys.executable, "train.py")) == (0, "trained to the end\n")


def test_the_job_of_kubernetes_is_one():
    yaml = pytest.importorskip("yaml")
    (block,) = blocks_of(PAGE, "yaml")
    job = yaml.safe_load(block.code)
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    pod = job["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"  # what a podFailurePolicy asks for
    assert pod["containers"][0]["command"][0] == "python"


def test_it_is_found_by_its_headings():
    lines = (ROOT / PAGE).read_text(encoding="utf-8").lower().splitlines()
    headings = " ".join(line for line in lines if line.startswith("#"))
    for word in ("preemptible", "sigterm", "grace", "slurm", "kubernetes", "spot", "requeue", "resume"):
        assert word in headings
    for page in ("README.md", "docs/index.md", "docs/manager.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "preemption" in text
        assert "how-often" in text
