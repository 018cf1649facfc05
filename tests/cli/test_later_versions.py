"""What commands say of a store into which a later version of lcstore has written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from kit.commands import call, document
from kit.newer import make_newer

import lcstore
from lcstore.version import UPGRADE


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    url = tmp_path_factory.mktemp("later") / "runs" / "a run"
    with lcstore.open(url, threads=1) as store:
        for step in range(0, 40, 10):
            store.save(step, {"model": {"w": np.full((8, 8), step, np.float32)}})
    make_newer(url, 30)
    return url


@pytest.fixture
def url(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "runs" / "a run")


@pytest.mark.parametrize("below", [False, True])
@pytest.mark.parametrize("command", [("verify",), ("maintain", "--keep", "latest:3", "--apply")])
def test_a_record_of_a_later_version_asks_for_an_upgrade_and_nothing_else(url, command, below):
    place = str(url.parent if below else url)
    result = call(command[0], place, *command[1:])
    said = " ".join(result.output.split())
    assert result.exit_code == 1
    assert said.endswith(f"Next: {UPGRADE}")
    assert set(re.findall("lcstore (repair|cp|doctor|show)", said)) == set()
    assert "lost" not in said.lower()
    told = document(command[0], place, *command[1:], status=1)
    report = told["stores"][0]["report"] if below else told
    seen = report.get("verified", report)
    assert (seen["lost"], seen["unread"], seen["good"]) == ([], 1, 20)
    assert {one["next"] for one in seen["findings"] if one["severity"] == "error"} == {UPGRADE}


def test_damage_beside_it_is_told(url):
    """The upgrade comes first all the same: nothing is repaired before."""
    record = next((url / "nodes").glob(f"{10:019d}*"))
    record.write_bytes(record.read_bytes()[:-1])
    for copy in (url / "copies").rglob(f"*{record.name.split('-')[3]}*"):
        copy.unlink()
    said = " ".join(call("verify", str(url)).output.split())
    assert "Cannot be restored whole: 2 states, of steps 10 to 20." in said
    assert said.endswith(f"Next: {UPGRADE}")


def test_a_collect_says_to_upgrade(url):
    result = call("collect", str(url))
    assert f"Next: {UPGRADE}" in " ".join(result.output.split())
    assert "repair" not in result.output
    assert document("collect", str(url), status=1)["error"]["next"] == UPGRADE


def test_a_report_sends_to_no_repair(url):
    assert "lcstore repair" not in call("report", str(url), "--file", str(url.parent / "r.html")).output
