"""JAX trees: parameters and an Adam-like state as named tuples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import lcstore

jax = pytest.importorskip("jax")


class AdamState(NamedTuple):
    count: Any
    mu: Any
    nu: Any


def test_a_tree_goes_in_and_comes_back_like_itself(tmp_path):
    key = jax.random.key(0)
    params = {
        "params": {
            "Dense_0": {"kernel": jax.random.normal(key, (64, 128)) * 0.05, "bias": jax.numpy.zeros(128)},
            "Embed_0": {"embedding": jax.random.normal(key, (100, 64), dtype=jax.numpy.bfloat16)},
        }
    }
    zeros = jax.tree.map(jax.numpy.zeros_like, params)
    state = {"model": params, "opt_state": (AdamState(jax.numpy.int32(0), zeros, zeros), ())}
    store = lcstore.open(tmp_path / "s")
    for step in range(4):
        state["model"] = jax.tree.map(lambda p: p + 0.001 * jax.numpy.ones_like(p), state["model"])
        moments = jax.tree.map(lambda p: jax.numpy.abs(p) * 0.1, state["model"])
        state["opt_state"] = (AdamState(jax.numpy.int32(step), moments, moments), ())
        store.save(step, state)
    roles = {path: role for path, (_, _, role) in store.paths().items()}
    assert roles["model/params/Dense_0/kernel"] == "weights"
    assert roles["model/params/Dense_0/bias"] == "plain"
    assert roles["opt_state/#0/mu/params/Dense_0/kernel"] == "first_moment"
    assert roles["opt_state/#0/nu/params/Dense_0/kernel"] == "second_moment"
    back = store.restore(like=state)
    assert isinstance(back["opt_state"][0], AdamState)
    assert isinstance(back["model"]["params"]["Dense_0"]["kernel"], jax.Array)
    assert back["model"]["params"]["Embed_0"]["embedding"].dtype == jax.numpy.bfloat16
    assert int(back["opt_state"][0].count) == 3
    np.testing.assert_allclose(
        back["model"]["params"]["Dense_0"]["kernel"], state["model"]["params"]["Dense_0"]["kernel"], atol=0.01
    )
    assert isinstance(store.restore(names="model/**")["model"]["params"]["Dense_0"]["bias"], jax.Array)
