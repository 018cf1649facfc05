"""What a fresh process restores is what the writer held, bit for bit: through kills, resumes, exact saves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from kit import programs
from states import leaves

import lcstore

pytestmark = pytest.mark.unprotected

SCRIPT = Path(__file__).parent / "writer_process.py"


def write(url: Path, diary: Path, saves: int, back: int, kill_at: int | None) -> None:
    with programs.start(SCRIPT, url, diary, saves, back, using=("conftest",)) as child:
        for line in child.stdout:
            if kill_at is not None and int(line) >= kill_at:
                child.kill()
                break
        child.stdout.close()
        code = child.wait()
    assert (code == 0) == (kill_at is None)


def check_run(tmp_path: Path, saves: int) -> None:
    url, diary = tmp_path / "store", tmp_path / "diary.jsonl"
    write(url, diary, saves, 0, kill_at=saves // 3)
    write(url, diary, saves, saves // 10, kill_at=2 * saves // 3)
    write(url, diary, saves, saves // 5, kill_at=None)
    entries = [json.loads(line) for line in diary.read_text().splitlines()]
    assert {entry["step"] for entry in entries} == set(range(saves))
    store = lcstore.open(url, "r")
    assert store.steps() == list(range(saves))
    for entry in entries:
        values = leaves(store.restore(entry["node"]))
        found = {path: hashlib.sha256(values[path].tobytes()).hexdigest() for path in entry["sha"]}
        assert found == entry["sha"], entry["step"]


def test_a_run_of_20_saves(tmp_path):
    check_run(tmp_path, 20)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_run_of_200_saves(tmp_path):
    check_run(tmp_path, 200)
