"""What a rule decides, as people read it where several runs are in one store."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from kit.commands import call, document

import lcstore

pytestmark = pytest.mark.filterwarnings("ignore::lcstore.BesideWarning")


def go_on(url: str, steps: range, at: int | None = None, *, rewind: bool = False) -> None:
    """Save these steps as another process does, from a state on."""
    with lcstore.open(url, durability="none") as store:
        if steps[0]:
            (store.rewind if rewind else store.resume)(at)
        for step in steps:
            store.save(step, {"model": {"w": np.full((4, 4), step, np.float32)}})


@pytest.fixture(scope="module")
def fork(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run 1 of 50 states, and from its step 190 on run 2 of 20 more, at steps that run 1 has too."""
    url = str(tmp_path_factory.mktemp("runs") / "fork")
    go_on(url, range(0, 500, 10))
    go_on(url, range(200, 400, 10), 190)
    return url


def rows(shown: str) -> list[tuple[str, str, str]]:
    """Return step, run and what becomes of them."""
    return re.findall(r"^ *([\d-]+) +(\d+) +(goes|kept)\b", shown, re.MULTILINE)


def test_a_long_table_tells_each_run_by_itself(fork):
    shown = call("retain", fork, "--keep", "every:100 | latest:1").output
    assert rows(shown) == [
        ("0", "1", "kept"), ("10-90", "1", "goes"), ("100", "1", "kept"), ("110-390", "1", "goes"),
        ("400", "1", "kept"), ("410-480", "1", "goes"), ("490", "1", "kept"),
        ("200", "2", "kept"), ("210-290", "2", "goes"), ("300", "2", "kept"), ("310-380", "2", "goes"),
        ("390", "2", "kept"),
    ]  # fmt: skip
    assert re.search(r"110-390 .* 29 states: --json has each", shown)


@pytest.mark.parametrize("command", ["retain", "maintain"])
def test_a_rule_that_takes_of_a_run_what_it_leaves_another_is_told(fork, command):
    shown = call(command, fork, "--keep", "every:100 | latest:1").output
    (said,) = re.findall(r"^Of run .*each-run.*$", shown, re.MULTILINE)
    assert said.startswith("Of run 1, 3 of 50 states go at steps at which another run's stays: ")
    assert len(document("retain", fork, "--keep", "every:100 | latest:1")["retired"]) == 70 - 7


@pytest.mark.parametrize("rule", ["each-run:every:100", "latest:99", "latest:60"])
def test_a_rule_for_each_run_and_one_that_takes_of_one_run_alone_are_not_told(fork, rule):
    assert "Of run" not in call("retain", fork, "--keep", rule).output


@pytest.mark.parametrize("rewind", [True, False])
def test_a_job_that_was_started_again_or_rewound_is_not_told(rewind, tmp_path: Path):
    url = str(tmp_path / "job")
    go_on(url, range(0, 200, 10))
    for first in range(200, 800, 200):
        at = first - (60 if rewind else 10)
        go_on(url, range(at + 10, first + 200, 10), at, rewind=rewind)
    shown = call("retain", url, "--keep", "every:100").output
    assert "Of run" not in shown
    assert len({run for _, run, _ in rows(shown)}) == 4
