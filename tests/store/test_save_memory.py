"""What a save holds besides the track and the copy of a state: a part of the chunks that are being coded."""

from __future__ import annotations

import tracemalloc

import numpy as np

import lcstore
from lcstore.coders import momentary
from lcstore.storage.memory import MemoryBackend

MIB = 1 << 20


def test_moments_are_coded_without_a_copy_of_the_chunk(monkeypatch):
    monkeypatch.setattr(momentary, "_LEAST", 1 << 62)  # what is mapped would not be traced
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
