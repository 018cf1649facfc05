"""Pools that are laid out afresh, as less than half of them is alive: every path gives the same values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from states import same

import lcstore
from lcstore.format import keys
from lcstore.layout import layout as layouts
from lcstore.storage.memory import MemoryBackend


@pytest.fixture
def store(monkeypatch):
    """A store of states in which one tensor grows and others stay; pools have several chunks."""
    monkeypatch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 2048)
    with lcstore.open(MemoryBackend.fresh(), grace=0) as store:
        rng = np.random.default_rng(0)
        fixed = rng.standard_normal((64, 40)).astype(np.float32)
        for step in range(40):
            grows = rng.standard_normal((10 + step, 64)).astype(np.float32)
            fixed = fixed + rng.standard_normal(fixed.shape).astype(np.float32) * np.float32(1e-3)
            model = {"grows.weight": grows, "fixed.weight": fixed, "ids": np.arange(20 + step)}
            store.save(step, {"model": model, "kept": np.arange(7)})
        yield store


def track_at(store, step):
    """Values of the first tensor as its track has them."""
    return store.at(step).using(lambda state: state.compose([0, 1]).values(0))


def test_every_state_stays_what_it_was(store):
    layout_of = [store.at(step).using(lambda state: state.node.layout) for step in store.steps()]
    pools = [layout.pools["weights-float32"] for layout in layout_of]
    assert max(pool.size for pool in pools) <= 4 * (64 * 50 + 64 * 40)
    shrunk = [step for step, (a, b) in enumerate(itertools.pairwise(pools)) if b.size < a.size]
    assert len(shrunk) >= 3
    expected = {step: store.restore(step) for step in store.steps()}
    for reverse in (False, True):
        for step, tree in store.walk(names=None, reverse=reverse):
            assert same(tree, expected[step])
    tracks = {step: track_at(store, step) for step in expected}
    store.compact()
    assert store.verify("restore").ok
    for step, tree in expected.items():
        assert same(store.restore(step), tree)
        track = track_at(store, step)
        np.testing.assert_array_equal(track, tracks[step])
    for step in range(0, 39, 2):
        store.retire(step)
    store.collect()
    store.collect()
    assert store.verify("restore").ok
    for step in store.steps():
        assert same(store.restore(step), expected[step])


def test_a_handle_that_resumes_goes_on(store):
    for at in (8, 39):
        with lcstore.open(store.backend) as other:
            state = other.resume(at)
            state["model"]["fixed.weight"] += np.float32(1e-3)
            assert other.save(100 + at, state).kind == "delta"
            np.testing.assert_array_equal(other.restore(100 + at)["model"]["ids"], state["model"]["ids"])
            assert other.verify("restore").ok
    assert not any("/" in keys.parse_data_key(key).pool for key in store.backend.list("data") if "/c." in key)


def test_a_handle_that_resumes_over_longer_pools_goes_on_from_what_readers_have(store):
    """A path may lead over states whose pools were longer; what is rebuilt is as long as the state's own."""
    store.compact()
    longer = 0
    for at in store.steps()[1::2]:
        with lcstore.open(store.backend) as other:
            state = other.resume(at)
            layout, pools = other._writer.track.layout, other._writer.track.pools
            assert all(pool.size == layout.pools[name].size for name, pool in pools.items())
            path = other.at(at).using(lambda found: found.edges)
            longer += (
                max(e.layout.pools["weights-float32"].size for e in path) > pools["weights-float32"].size
            )
            state["model"]["fixed.weight"] += np.float32(1e-3)
            other.save(100 + at, state)
            given = other.restore(100 + at)["model"]["fixed.weight"]
            np.testing.assert_allclose(given, state["model"]["fixed.weight"], atol=2e-3)
    assert longer
