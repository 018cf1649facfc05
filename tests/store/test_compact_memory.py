"""Merging large states takes little memory, however many threads there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "memory_process.py"


def run(*what: object) -> str:
    command = [sys.executable, str(SCRIPT), *map(str, what)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.soak
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads what Linux tells of a process")
def test_states_of_200_mb_are_merged_one_chunk_at_a_time(tmp_path):
    """Told to hold little, it holds what one chunk takes: without a limit eight threads held 540 MB."""
    run("make", tmp_path / "store", 200)
    rose = int(run("merge", tmp_path / "store", 40_000_000, 8))
    assert rose <= 300_000_000
