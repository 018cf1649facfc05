"""Scratch memory: zeros, in large pages from the first byte on."""

from __future__ import annotations

import numpy as np
import pytest

import lcstore
from lcstore.coders import entropy, scratch
from lcstore.storage.memory import MemoryBackend


@pytest.mark.parametrize("size", [0, 1, 1 << 18, 1 << 20, (5 << 20) + 3])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_scratch_is_zeros_that_can_be_written_to(size, dtype):
    made = scratch.scratch_array(size, dtype)
    assert (made.size, made.dtype) == (size, dtype)
    assert not made.any()
    made[:] = 1
    assert made.sum(dtype=np.int64) == size


@pytest.mark.skipif(scratch._LARGE_PAGES is None, reason="the system has no large pages")
@pytest.mark.parametrize("nbytes", [1 << 20, (15 << 20) + 4096])
def test_large_scratch_begins_with_a_large_page(nbytes):
    assert scratch.scratch_array(nbytes, np.uint8).ctypes.data % (2 << 20) == 0


@pytest.mark.parametrize("moved", ["all", "few", "far"])
def test_a_delta_is_coded_to_the_memory_that_its_handle_lends(moved, monkeypatch):
    rng = np.random.default_rng(0)
    value = rng.standard_normal((700, 600), np.float32)
    with lcstore.open(MemoryBackend.fresh(), threads=1) as store:
        for step in range(3):
            value += np.float32(1e-3) * rng.standard_normal(value.shape, np.float32)
            store.save(step, {"model": {"w.weight": value}})
        if moved == "few":
            value[::50, :3] += 1e-3
        else:
            value += np.float32(1e-3) * rng.standard_normal(value.shape, np.float32)
        if moved == "far":  # levels that are escaped lie before what they are coded to
            value[::100] += 5
        monkeypatch.setattr(entropy, "scratch_array", None)
        store.save(3, {"model": {"w.weight": value}})
        assert np.abs(store.restore(3)["model"]["w.weight"] - value).max() < 0.01
