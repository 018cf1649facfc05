"""What a save holds besides the track and the copy of a state: a part of the chunks that are being coded."""

from __future__ import annotations

import tracemalloc

import numpy as np

import lcstore
from lcstore.coders import scratch
from lcstore.storage.memory import MemoryBackend

MIB = 1 << 20


def test_moments_are_coded_without_a_copy_of_the_chunk(monkeypatch):
    monkeypatch.setattr(scratch, "_LEAST", 1 << 62)  # what is mapped would not be traced
    rng = np.random.default_rng(0)
    shape = (1024, 4096)  # 16 MiB, in chunks of 4
    moments = {"exp_avg": rng.standard_normal(shape, np.float32), "exp_avg_sq": rng.random(shape, np.float32)}
    state = {"optim": {"state": {0: moments}, "param_groups": [{"params": [0]}]}}
    with lcstore.open(MemoryBackend.fresh(), threads=1, durability="none") as store:
        store.save(0, state)
        tracemalloc.start()
        try:
            store.save(1, state)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    # Room for levels, tokens and what is coded, each a byte or two for an element: no chunk of values.
    assert peak <= 9 * MIB, peak / MIB


def test_the_last_save_of_a_handle_holds_no_track(tmp_path):
    rng = np.random.default_rng(0)
    state = {"model": {"w.weight": rng.standard_normal((1024, 4096), np.float32)}, "ids": np.arange(1 << 20)}
    with lcstore.open(tmp_path, threads=1, durability="none") as store:
        store.goes_on = False
        assert store.save(0, state).kind == "anchor"
        assert not store._writer.track.pools
        store.goes_on = True  # and if more is saved all the same, it stands on nothing that is not there
        state["model"]["w.weight"] += np.float32(0.01)
        assert store.save(1, state).kind == "anchor"
        state["model"]["w.weight"] += np.float32(0.01)
        assert store.save(2, state).kind == "delta"
    with lcstore.open(tmp_path, "r") as store:
        assert store.verify("restore").ok
        assert np.abs(store.read(2, "model/w.weight") - state["model"]["w.weight"]).max() < 0.02
