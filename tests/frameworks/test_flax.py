"""Flax: training states fresh and after jit, and NNX."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lcstore

jax = pytest.importorskip("jax")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of what flax itself imports
    pytest.importorskip("flax")
    optax = pytest.importorskip("optax")
    from flax import linen, nnx
    from flax.training.train_state import TrainState


class Net(linen.Module):
    @linen.compact
    def __call__(self, x):
        return linen.Dense(8)(linen.relu(linen.Dense(16)(x)))


def _fresh(seed: int = 0) -> TrainState:
    net = Net()
    params = net.init(jax.random.key(seed), jax.numpy.ones((1, 4)))["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-2))


@jax.jit
def _train(state: TrainState) -> TrainState:
    def loss(params):
        return (state.apply_fn({"params": params}, jax.numpy.ones((2, 4))) ** 2).mean()

    return state.apply_gradients(grads=jax.grad(loss)(state.params))


def _same(one, other):
    return all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def test_a_state_after_jit_is_resumed_like_a_fresh_one():
    state = _train(_train(_fresh()))
    store = lcstore.open("memory://flax-jitted", policy="lossless")
    store.save(2, {"state": state})
    like = _fresh(1)
    assert type(like.step) is int
    back = store.resume(like={"state": like})["state"]
    assert isinstance(back, TrainState)
    assert back.step == 2
    assert _same(back, state)
    assert _same(_train(back).params, _train(state).params)


def test_a_fresh_state_is_resumed_like_one_after_jit():
    fresh = _fresh()
    store = lcstore.open("memory://flax-fresh", policy="lossless")
    store.save(0, fresh)
    for like in (_train(_fresh(1)), jax.eval_shape(lambda: _train(_fresh(1)))):
        back = store.resume(like=like)
        assert isinstance(back.step, jax.Array)
        assert int(back.step) == 0
        assert _same(back.params, fresh.params)


def test_both_are_saved_to_one_store():
    store = lcstore.open("memory://flax-both", policy="lossless")
    state = _fresh()
    for step in range(3):
        store.save(step, {"state": state})
        state = _train(state)
    assert [int(store.restore(step)["state"]["step"]) for step in store.steps()] == [0, 1, 2]
    assert store.restore(0, like={"state": _fresh()})["state"].step == 0


def test_variables_are_stored_as_what_they_hold():
    model = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    store = lcstore.open("memory://nnx", policy="lossless")
    store.save(0, {"params": nnx.state(model, nnx.Param)})
    assert set(store.paths()) == {"params/bias", "params/kernel"}
    assert store.paths()["params/kernel"][2] == "plain"  # lossless
    expected = np.asarray(model.kernel[...])
    other = nnx.Linear(4, 3, rngs=nnx.Rngs(1))
    nnx.update(other, store.restore()["params"])
    assert np.array_equal(other.kernel[...], expected)
    back = store.resume(like={"params": nnx.state(nnx.Linear(4, 3, rngs=nnx.Rngs(2)), nnx.Param)})["params"]
    assert isinstance(back, nnx.State)
    assert isinstance(back["kernel"], nnx.Param)
    again = nnx.Linear(4, 3, rngs=nnx.Rngs(3))
    nnx.update(again, back)
    assert np.array_equal(again.kernel[...], expected)
    abstract = jax.eval_shape(lambda: nnx.state(nnx.Linear(4, 3, rngs=nnx.Rngs(2)), nnx.Param))
    assert isinstance(store.restore(like={"params": abstract})["params"]["kernel"], nnx.Param)


def test_a_state_of_nested_modules_comes_back_as_the_same_tree():
    class Deep(nnx.Module):
        def __init__(self, seed):
            self.inner = nnx.Sequential(*(nnx.Linear(4, 4, rngs=nnx.Rngs(seed)) for _ in range(2)))

    params = nnx.state(Deep(0), nnx.Param)
    optimizer = optax.adam(1e-3)
    state = {"params": params, "opt": optimizer.init(params), "ema": params}
    store = lcstore.open("memory://nnx-nested", policy="lossless")
    store.save(0, state)
    for back in (store.restore(like=state), store.resume(like=state)):
        assert jax.tree.structure(back) == jax.tree.structure(state)
        assert _same(back, state)
        optax.incremental_update(nnx.state(Deep(1), nnx.Param), back["ema"], 0.1)
    with pytest.raises(
        lcstore.InvalidInputError, match=r"Deep at 'params' .* give nnx\.state\(x, nnx\.Param\)"
    ):
        store.restore(like={"params": Deep(0)})


def test_an_optimizer_of_nnx_is_saved_with_its_state():
    model = nnx.Linear(64, 64, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    optimizer.update(model, jax.tree.map(lambda p: p + 1, nnx.state(model, nnx.Param)))
    store = lcstore.open("memory://nnx-optimizer")
    store.save(1, {"params": nnx.state(model, nnx.Param), "optim": nnx.state(optimizer)})
    roles = {name: role for name, (_, _, role) in store.paths().items()}
    assert roles["params/kernel"] == "weights"
    assert roles["optim/opt_state/#0/mu/kernel"] == "first_moment"
    assert roles["optim/opt_state/#0/nu/kernel"] == "second_moment"
    nnx.update(optimizer, store.restore(like={"optim": nnx.state(optimizer)})["optim"])


def test_modules_are_refused_with_the_cure():
    store = lcstore.open("memory://nnx-refused")
    model = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    for refused in (model, nnx.Optimizer(model, optax.sgd(0.1), wrt=nnx.Param)):
        with pytest.raises(lcstore.InvalidInputError, match=r"nnx\.state\(x"):
            store.save(0, {"model": refused})


def test_keys_of_nnx_are_refused_with_the_cure_and_nothing_is_drawn_from_them():
    store, rngs = lcstore.open("memory://nnx-rngs"), nnx.Rngs(0)
    with pytest.raises(lcstore.InvalidInputError, match=r"nnx\.state\(x\), and nnx\.update"):
        store.save(0, {"rngs": rngs})
    assert rngs.default.count[...] == 0
    store.save(0, {"rngs": nnx.state(rngs)})
    drawn, other = rngs(), nnx.Rngs(1)
    nnx.update(other, store.restore(like={"rngs": nnx.state(other)})["rngs"])
    assert other() == drawn


def test_typed_keys_come_back_as_they_were():
    keys = {"one": jax.random.key(5), "some": jax.random.split(jax.random.key(1), 3)}
    dropout = nnx.Dropout(0.1, rngs=nnx.Rngs(1))
    store = lcstore.open("memory://typed-keys")
    store.save(0, {"keys": keys, "dropout": nnx.state(dropout)})
    again = store.resume()["keys"]
    for name, key in keys.items():
        assert again[name].dtype == key.dtype
        assert (jax.random.key_data(again[name]) == jax.random.key_data(key)).all()
    drawn = dropout(jax.numpy.ones(64))
    other = nnx.Dropout(0.1, rngs=nnx.Rngs(2))
    nnx.update(other, store.restore(like={"dropout": nnx.state(other)})["dropout"])
    assert (other(jax.numpy.ones(64)) == drawn).all()
    assert store.save(1, {"keys": again, "dropout": nnx.state(dropout)}).kind == "delta"
    # A part of keys is some of their integers.
    assert store.read(0, "keys/some", slice(1)).dtype == "uint32"
    assert store.restore(to="numpy")["keys"]["some"].shape == (3, 2)
