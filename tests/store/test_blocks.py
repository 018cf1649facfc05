"""Chunks of several blocks: the values are the same whichever way they are read, over paths of any length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import same

import lcstore
from lcstore.coders.small import narrow_levels
from lcstore.coders.tables import TableCache
from lcstore.edges import path
from lcstore.edges.deltas import BLOCK, Delta, Step, together
from lcstore.edges.frames import frame_of_levels
from lcstore.errors import CorruptionError
from lcstore.frames.decode import Room
from lcstore.kernels import grid
from lcstore.storage.memory import MemoryBackend

ROWS, COLUMNS = 700, 1000
SAVES = 5


def states() -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    model = {
        "long.weight": rng.standard_normal((ROWS, COLUMNS), np.float32),
        "next.weight": rng.standard_normal((90, 70), np.float32),
        "behind.weight": rng.standard_normal((ROWS // 2, COLUMNS), np.float32),
        "wide.weight": rng.standard_normal((ROWS // 2, COLUMNS)),
        "half.weight": rng.standard_normal((ROWS // 2, COLUMNS)).astype(np.float16),
    }
    for step in range(SAVES):
        yield {
            "model": {name: weight.copy() for name, weight in model.items()},
            "ids": np.arange(step, step + 2 * BLOCK + 5) // 7,
            "mask": rng.random(BLOCK + 3) < 0.1,
            "noise": rng.integers(0, 256, BLOCK + 9, dtype=np.uint8),
        }
        for name, weight in model.items():
            weight += (1e-3 * rng.standard_normal(weight.shape)).astype(weight.dtype)
            if name == "long.weight":
                weight[3, 4] += 100  # a level that is escaped
    assert ROWS * COLUMNS > 2 * BLOCK


@pytest.fixture(scope="module")
def saved() -> dict[str, bytes]:
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, threads=2) as store:
        for step, state in enumerate(states()):
            store.save(step, state, exact=step == 3)
    return backend.snapshot()


@pytest.mark.parametrize("held", [0, path._HELD])
def test_every_way_to_read_gives_the_same(saved, held, monkeypatch):
    monkeypatch.setattr(path, "_HELD", held)  # 0: the frames of a path are gone over one by one
    with lcstore.open(MemoryBackend.fresh(saved), "r", threads=2) as store:
        for step, state in enumerate(states()):
            found = store.restore(step)
            for name in ("ids", "mask", "noise"):
                assert same(found[name], state[name])
            for name, weight in found["model"].items():
                true = state["model"][name]
                if step in (0, 3):
                    assert same(weight, true), name
                assert np.abs(weight.astype(np.float64) - true).max() < 0.02
            for name, value in store[step].stream():
                top, _, rest = name.partition("/")
                assert same(value, found[top][rest] if rest else found[top]), name
            for low, high in ((0, 1), (261, 263), (262, 525), (ROWS - 1, ROWS)):
                part = store.read(step, "model/long.weight", sel=slice(low, high))
                assert same(part, found["model"]["long.weight"][low:high])


def test_a_writer_goes_on_from_what_readers_have(saved):
    backend = MemoryBackend.fresh(saved)
    with lcstore.open(backend, threads=2) as store:
        last = store.restore(SAVES - 1)
        assert same(store.resume(SAVES - 1)["model"], last["model"])
        info = store.save(SAVES, last)
        assert same(store.restore(SAVES)["model"], last["model"])
    assert info.bytes_stored < 100_000  # nothing is left to be added


def test_compaction_changes_no_bit(saved):
    with lcstore.open(MemoryBackend.fresh(saved), threads=2, grace=0) as store:
        before = [store.restore(step) for step in range(SAVES)]
        store.compact()
        for step, state in enumerate(before):
            assert same(store.restore(step), state)


def test_a_frame_that_is_longer_than_its_chunk_is_not_added():
    levels = np.ones(1000, np.int8)
    data = frame_of_levels(
        levels, np.empty(0, np.int64), np.zeros(1, np.int16), 1024, np.dtype(np.int32), TableCache()
    )
    assert data is not None
    (run,) = together([Delta(data, levels.size, np.dtype(np.int32), 1)], Room())
    whole = np.zeros(levels.size, np.int32)
    run(0, whole)
    assert (whole == 1).all()
    with pytest.raises(CorruptionError, match="instead of 900"):
        run(0, whole[:900])


def delta_of(levels, scale, sign):
    """Make a delta of levels of any size, on one step size."""
    narrow, escapes = np.zeros(levels.size, np.int8), np.zeros(levels.size, np.int64)
    found = narrow_levels(levels, narrow, escapes)
    scales = np.full(-(-levels.size // 64), scale, np.int16)
    data = frame_of_levels(narrow, escapes[:found], scales, 64, np.dtype(np.int32), TableCache())
    return None if data is None else Delta(data, levels.size, np.dtype(np.int32), sign)


@given(
    seed=st.integers(0, 1 << 32),
    runs=st.lists(
        st.tuples(
            st.sampled_from([1, 9, 127, 128, 150]),  # deltas one after another ...
            st.sampled_from([3, 9]),  # ... of this step size, sign and largest level, and so often zero
            st.sampled_from([1, -1]),
            st.sampled_from([1, 2, 3, 7, 127, 3000]),
            st.sampled_from([0.0, 0.8]),
        ),
        min_size=1,
        max_size=5,
    ),
    begins=st.integers(0, 3),
)
@settings(max_examples=60)
def test_deltas_together_are_what_they_are_one_by_one(seed, runs, begins):
    """They lie in memory that others had before, setters come in between, and they are of any length."""
    rng, room = np.random.default_rng(seed), Room()
    track, wanted = np.zeros((2, 300), np.int32)
    for _ in range(begins):
        room.borrow((int(rng.integers(1, 99)),), np.int16)
    room.begin()
    steps: list[Step | Delta] = []
    for count, scale, sign, top, zeros in runs:
        size = int(rng.integers(1, track.size))
        levels = rng.integers(-top, top + 1, size) * (rng.random(size) >= zeros)
        delta = delta_of(levels, scale, sign)
        if delta is not None:
            steps += [delta] * count
            for _ in range(count):
                wanted[:size] += (levels * sign * grid.step_size_of(scale)).astype(np.int32)
        if zeros:  # a setter
            steps.append(Step(lambda low, out, value=size: out[:9].fill(value), 0))
            wanted[:9] = size
    for run in together(steps, room):
        run(0, track)
    np.testing.assert_array_equal(track, wanted)
