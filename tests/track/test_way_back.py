"""Whichever line of coding a chunk fails, the track is put back to where it was."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from edge_histories import History, moved_little
from test_rate import Follower
from test_rows import BALANCED, table

from lcstore.edges.columns import ADD, SET
from lcstore.track.draft import Draft
from lcstore.track.policy import PRESETS
from lcstore.track.track import Track

TRACK = ("advance", "coding", "draft", "frames", "readonce", "steptable")
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


def plain(seed: int = 3) -> tuple[Track, list[np.ndarray]]:
    """Plain tensors of one chunk that were saved, and their next values: of every second one anything."""
    rng, history = np.random.default_rng(seed), History(PRESETS["lossless"])
    held = {f"e{i}": rng.standard_normal((40, 50)).astype(np.float32) for i in range(5)}
    history.save(held)
    for i, (name, value) in enumerate(held.items()):
        held[name] = (
            rng.standard_normal(value.shape).astype(np.float32) if i % 2 else moved_little(rng, value)
        )
    return history.track, [value.reshape(-1) for value in held.values()]


def drafted(track: Track, arrays: list[np.ndarray]) -> Draft:
    draft = track.draft(track.layout, arrays, PRESETS["lossless"], anchor=False)
    assert draft.columns.op.tolist() == [ADD, SET, ADD, SET, ADD]
    return draft


def test_a_chunk_of_plain_tensors_that_fails_at_any_line_is_taken_back():
    track, arrays = plain()
    before = {name: pool.copy() for name, pool in track.pools.items()}
    line, failed = 1, True
    while failed:
        draft = drafted(track, arrays)
        failed = fails(draft, line)
        draft.roll_back()
        assert all((track.pools[name] == before[name]).all() for name in before), line
        line += 1
    assert line > 50


class Interrupted(np.ndarray):
    """The track of a chunk: while one thread adds to it, between look and write another has a turn."""

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        made = getattr(ufunc, method)(*(np.asarray(one) for one in inputs), **options)
        if not out:
            return made
        if out[0] is inputs[0] and TURNS:
            TURNS.pop()()
        np.copyto(np.asarray(out[0]), made)
        return out[0]


TURNS: list = []


def test_a_chunk_that_one_job_adds_to_and_another_sets_meanwhile():
    track, arrays = plain()
    (name,) = track.pools
    held = track.pools[name]
    track.held.pools[name] = held.view(Interrupted)
    draft = drafted(track, arrays)
    adding, setting = draft.jobs
    TURNS[:] = [setting]
    assert adding().op == "add"
    assert not TURNS
    for spec, value in zip(track.layout.tensors, arrays, strict=True):
        assert held[spec.offset : spec.offset + spec.size].tobytes() == value.tobytes(), spec.name
    draft.roll_back()
