"""What JSON says of values that it has no word for, and answers that nobody takes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass, field

import numpy as np
import pytest

import lcstore
from lcstore.errors import CorruptionError
from lcstore.terminal.printing import plain, print_styled


@dataclass
class Told:
    problems: dict[str, Exception] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            Told({"verify": CorruptionError("a chunk is damaged")}),
            {"problems": {"verify": "a chunk is damaged"}},
        ),
        ({1: float("nan"), 2: 1.5}, {"1": "nan", "2": 1.5}),
        ((True, None, 3, "s3://user:secret@host/x"), [True, None, 3, "s3://user:***@host/x"]),
        (iter([b"bytes"]), ["b'bytes'"]),
    ],
)
def test_what_is_told(value, said):
    assert plain(value) == said


def test_a_name_with_colons_is_no_picture(capsys):
    print_styled("no store is at runs/lr:100:b", "red", sys.stderr)
    assert "runs/lr:100:b" in capsys.readouterr().err


COMMANDS = [
    ["ls"],
    ["ls", "--json"],
    ["plot"],
    ["report", "-o", "-"],
    ["maintain", "--keep", "latest:1", "--apply", "--json"],
]


def into(stdout, url, command):
    """Run a command whose answer goes to a file that is open."""
    code = "from lcstore.cli import main; main()"
    arguments = [sys.executable, "-c", code, command[0], url, *command[1:]]
    return subprocess.run(arguments, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


@pytest.fixture
def url(tmp_path):
    with lcstore.open(tmp_path / "run", threads=1) as store:
        for step in range(3):
            store.save(step, {"w": np.full((8, 8), step, np.float32)}, metrics={"loss": 1.0 / (1 + step)})
    return str(tmp_path / "run")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_cannot_be_written_is_told(url, command):
    with open("/dev/full", "w") as full:
        done = into(full, url, command)
    assert done.returncode == 1
    assert "No space left on device: the answer could not be written" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    document = done.stderr.partition("\n")[2]
    assert bool(document) == ("--json" in command)
    if document:
        assert json.loads(document)["url"] == url


@pytest.mark.parametrize("command", COMMANDS)
def test_an_answer_that_nobody_reads_is_no_failure(url, command):
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as closed:
        done = into(closed, url, command)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX closes them")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_daemon_has_closed_what_is_printed_to(url, command):
    code = shlex.join(
        [sys.executable, "-c", "from lcstore.cli import main; main()", command[0], url, *command[1:]]
    )
    done = subprocess.run(["sh", "-c", f"{code} >&-"], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    wrong = code.replace(shlex.quote(url), shlex.quote(url + "/nothing"))
    assert subprocess.run(["sh", "-c", f"{wrong} >&- 2>&-"], check=False).returncode == 1
