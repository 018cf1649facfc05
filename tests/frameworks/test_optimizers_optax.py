"""Every optimizer of Optax makes a sane step from what a store gives back, at each policy."""

from __future__ import annotations

import numpy as np
import pytest
from stepping import POLICIES, SAVED, assert_sane, gradients, weights

import lcstore

#: States of some optimizers are plain, which a save tells.
pytestmark = pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning")

optax = pytest.importorskip("optax")
jax = pytest.importorskip("jax")

PAIR = {"mu", "nu"}
#: What makes each, and which of its statistics may be lossy.
MADE = {
    **{name: (getattr(optax, name), PAIR) for name in ("adam", "adamw", "adamax", "nadam", "radam", "yogi")},
    **{name: (getattr(optax, name), PAIR) for name in ("adabelief", "lamb")},
    **{name: (getattr(optax, name), {"mu"}) for name in ("lion", "novograd")},
    **{name: (getattr(optax, name), set()) for name in ("adan", "sm3", "adafactor", "fromage", "sgd")},
    "adadelta": (optax.adadelta, {"e_g", "e_x"}),
    "adagrad": (optax.adagrad, {"sum_of_squares"}),
    "amsgrad": (optax.amsgrad, {*PAIR, "nu_max"}),
    "rprop": (optax.rprop, {"step_sizes", "prev_updates"}),
    "lars": (optax.lars, {"trace"}),
    "momentum": (lambda rate: optax.sgd(rate, momentum=0.9, nesterov=True), {"trace"}),
    "rmsprop": (optax.rmsprop, {"nu"}),
    "rmsprop-momentum": (lambda rate: optax.rmsprop(rate, momentum=0.9), {"nu", "trace"}),
    "centered": (lambda rate: optax.rmsprop(rate, centered=True), set()),
    "centered-unbiased": (lambda rate: optax.rmsprop(rate, centered=True, bias_correction=True), set()),
    "chain": (lambda rate: optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate)), PAIR),
    "hyperparameters": (lambda rate: optax.inject_hyperparams(optax.adam)(rate), PAIR),
    "ademamix": (lambda rate: optax.contrib.ademamix(rate), {"m1", "nu"}),
    "prodigy": (lambda rate: optax.contrib.prodigy(), set()),
    "muon": (lambda rate: optax.contrib.muon(rate), {"mu"}),
    "schedule-free": (lambda rate: optax.contrib.schedule_free_adamw(rate), {"nu"}),
    "schedule-free-sgd": (lambda rate: optax.contrib.schedule_free_sgd(rate), set()),
}
#: The fields of Optax that may be lossy.
FIELDS = {field for _, fields in MADE.values() for field in fields}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MADE)
def test_a_step_from_what_is_restored(name, policy):
    make, lossy = MADE[name]
    optimizer = make(1e-3)
    update = jax.jit(optimizer.update)
    params = {"params": {"a": weights()[0], "b": {"kernel": weights()[1]}}}
    state = optimizer.init(params)
    store = lcstore.open(f"memory://stepping-{name}-{policy}", policy=policy)
    for done, (a, b) in enumerate(gradients(max(SAVED) + 1)):
        grads = {"params": {"a": a, "b": {"kernel": b}}}
        again = None
        if done in SAVED:
            store.save(done, {"model": params, "opt_state": state})
            again = store.restore(done, like={"opt_state": state})["opt_state"]
        updates, after = update(grads, state, params)
        if again is not None:
            steps, _ = update(grads, again, params)
            for step, exact in zip(jax.tree.leaves(steps), jax.tree.leaves(updates), strict=True):
                assert_sane(np.asarray(step), np.asarray(exact))
        state, params = after, optax.apply_updates(params, updates)
    roles = {tuple(path.split("/")): role for path, (_, _, role) in store.paths().items()}
    moments = [path for path, role in roles.items() if role in ("first_moment", "second_moment")]
    assert {field for path in moments for field in path if field in FIELDS} == lossy
