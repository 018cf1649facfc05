"""Whichever line of coding a chunk fails, the track is put back to where it was."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from test_rate import Follower
from test_rows import BALANCED, table

TRACK = ("advance", "coding", "draft", "frames", "steptable")
CODING = (*(f"track/{name}.py" for name in TRACK), "coders/entropy.py")
WAY_BACK = ("undo", "_undo_levels")


class FailsAt:
    """Runs out of memory at one of the lines of coding."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame, event, _):
        return self.count if frame.f_code.co_filename.endswith(CODING) else None

    def count(self, frame, event, _):
        if event == "line" and frame.f_code.co_name not in WAY_BACK:
            self.left -= 1
            if self.left == 0:
                raise MemoryError
        return self.count


def fails(draft, line: int) -> bool:
    before = sys.gettrace()
    sys.settrace(FailsAt(line))
    try:
        for job in list(draft.jobs):
            job()
    except MemoryError:
        return True
    finally:
        sys.settrace(before)
    return False


@pytest.mark.parametrize("outlier", [0.0, 20.0, 1e4, np.inf])
def test_a_chunk_that_fails_at_any_line_is_taken_back(outlier):
    states, follower = table(np.random.default_rng(10), 4000), Follower()
    for _ in range(4):
        follower.save({"w": next(states)})
    track, value = follower.track, next(states)
    value[3000, 7] += outlier
    before = {name: pool.copy() for name, pool in track.pools.items()}
    line, failed = 1, True
    while failed:
        draft = track.draft(track.layout, [value.reshape(-1)], BALANCED, anchor=False)
        assert draft.coder.decided.tables[0].block < 1024
        failed = fails(draft, line)
        draft.roll_back()
        assert all((track.pools[name] == before[name]).all() for name in before), line
        line += 1
    assert line > 50
