"""After `warm` a training run compiles nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("kernels_process.py")


def kernels(*arguments: str, cache: Path | None = None) -> set[str]:
    """Return which kernels a new process calls, by signature."""
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path} | ({"NUMBA_CACHE_DIR": str(cache)} if cache else {})
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_a_run_calls_no_kernel_that_warm_did_not(tmp_path):
    """Whatever is compiled already: in a cache that was empty before `warm`, nothing would be missing."""
    missed = kernels("train", str(tmp_path)) - kernels("warm")
    assert not missed


@pytest.mark.soak
def test_a_run_adds_nothing_to_a_cache_that_warm_filled(tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    kernels("warm", cache=cache)
    filled = {path.name for path in cache.rglob("*.nbc")}
    assert filled
    kernels("train", str(tmp_path), cache=cache)
    assert {path.name for path in cache.rglob("*.nbc")} == filled
