"""A process that is killed at any instant loses no step that was acknowledged, and none comes back wrong."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from kit import programs

KILLED = Path(__file__).with_name("killed.py")


def killed(url: Path, kills: int, seed: int, how: str) -> int:
    """Kill a loop so many times; return how many steps it was told were saved."""
    result = programs.run(KILLED, url, kills, seed, how)
    assert result.returncode == 0, result.stdout + result.stderr
    found = re.search(r"(\d+) kills, (\d+) acknowledged", result.stdout)
    assert found is not None
    assert int(found[1]) == kills
    return int(found[2])


@pytest.mark.parametrize("how", ["sync", "async"])
def test_every_acknowledged_save_outlives_kills(how, tmp_path):
    assert killed(tmp_path / "run", 15, 0, how) > 15


@pytest.mark.parametrize("handled", [True, False])
def test_an_error_after_notice_is_told_before_the_signal_ends_the_process(handled, tmp_path):
    """A last save that failed, or a mistake in the last step, ended without a word."""
    failing = tmp_path / "failing.py"
    lines = [
        "import os, signal, lcstore",
        *["signal.signal(signal.SIGTERM, lambda *_: None)"][: not handled],
        "with lcstore.CheckpointManager('run', every=1) as manager:",
        "    os.kill(os.getpid(), signal.SIGTERM)",
        "    raise RuntimeError('the cause')",
    ]
    failing.write_text("\n".join(lines))
    ended = programs.run(failing, cwd=tmp_path)
    assert ended.returncode == (-signal.SIGTERM if handled else 1)
    assert ended.stderr.count("RuntimeError: the cause") == 1
    assert ("the loop ended by an error after notice" in ended.stderr) == handled


@pytest.mark.parametrize("fails", [True, False])
def test_an_error_that_is_being_handled_around_the_loop_is_none_that_ends_it(fails, tmp_path):
    again = tmp_path / "again.py"
    lines = [
        "import os, signal, lcstore",
        "try:",
        "    raise MemoryError('a batch too large')",
        "except MemoryError:",
        "    with lcstore.CheckpointManager('run', every=1) as manager:",
        "        os.kill(os.getpid(), signal.SIGTERM)",
        *["        raise RuntimeError('the cause')"][:fails],
    ]
    again.write_text("\n".join(lines))
    ended = programs.run(again, cwd=tmp_path)
    assert ended.returncode == -signal.SIGTERM
    assert ("the loop ended by an error after notice" in ended.stderr) == fails


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("seed", range(10))
def test_every_acknowledged_save_outlives_many_kills(how, seed, tmp_path):
    assert killed(tmp_path / "run", 100, seed, how) > 100
