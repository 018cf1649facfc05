"""Of processes that train together one saves, all resume, and all leave at the same step."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from kit import programs

import lcstore

pytest.importorskip("torch")

TOGETHER = Path(__file__).with_name("together.py")


def together(url: Path, steps: int, told_at: int = -1) -> list[tuple[int, str]]:
    """Run two processes; return the status and the words of each."""
    using = (*programs.TORCH, "torch.distributed.algorithms.join")
    with ExitStack() as stack:
        started = [
            stack.enter_context(programs.start(TOGETHER, url, rank, steps, told_at, using=using))
            for rank in range(2)
        ]
        ended = [program.ended() for program in started]
    return [
        (each.returncode, each.stdout + each.stderr * (each.returncode not in (0, -signal.SIGTERM)))
        for each in ended
    ]


def test_rank_0_saves_and_all_leave_and_go_on_together(tmp_path):
    whole = together(tmp_path / "whole", 11)
    assert [status for status, _ in whole] == [0, 0], whole
    with lcstore.open(tmp_path / "whole", "r") as store:
        assert store.steps() == [0, 5, 10]
        assert len({store.info(step).run_id for step in store.steps()}) == 1

    first = together(tmp_path / "run", 11, told_at=7)
    assert [status for status, _ in first] == [-signal.SIGTERM] * 2, first  # rank 1 alone was told
    assert all("told to end at 7\nsaved 7\n" in words for _, words in first)
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.steps() == [0, 5, 7]

    again = together(tmp_path / "run", 11)
    assert all("from 8" in words for _, words in again), again
    ends = {re.search("ended with (.*)", words)[1] for _, words in (*whole, *again)}
    assert len(ends) == 1, ends


def test_every_bit_is_saved_whoever_was_told(tmp_path):
    ended = together(tmp_path / "run", 12, told_at=7)
    assert [status for status, _ in ended] == [-signal.SIGTERM] * 2, ended
    with lcstore.open(tmp_path / "run", "r") as store:
        assert {step: store.info(step).exact for step in store.steps()} == {0: False, 5: False, 7: True}


def test_only_rank_0_saves_once_the_group_was_destroyed(tmp_path):
    found = together(tmp_path / "run", 0, told_at=0)
    assert [re.findall("after the end (.*)", words) for _, words in found] == [
        ["True True True"],
        ["False False True"],
    ], found
    assert [re.findall("(.) warnings at the end", words) for _, words in found] == [["0"], ["1"]], found


def test_a_second_rank_that_saves_is_told(tmp_path):
    found = together(tmp_path / "run", 0)
    assert [status for status, _ in found] == [0, 0], found
    assert [re.findall(r"(\d) warnings", words) for _, words in found] == [["0", "0"], ["1", "0"]]
    assert [re.findall(r"(\d) told", words) for _, words in found] == [["0", "0"], ["0", "1"]]
