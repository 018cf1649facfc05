"""The optimizers of Keras name their statistics as nothing else does: they are kept whole."""

from __future__ import annotations

import os

import numpy as np
import pytest
from stepping import POLICIES, gradients, weights

import lcstore

#: States of some optimizers are plain, which a save tells.
pytestmark = pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning")

pytest.importorskip("jax")
os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")

MADE = {
    "adam": lambda: keras.optimizers.Adam(amsgrad=True),
    "centered": lambda: keras.optimizers.RMSprop(centered=True, momentum=0.9),
    **{
        name: getattr(keras.optimizers, name)
        for name in ("AdamW", "Adamax", "Nadam", "Adadelta", "Adagrad", "Adafactor", "Ftrl", "Lion", "Lamb")
    },
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MADE)
def test_the_state_comes_back_whole(name, policy):
    variables = [keras.Variable(value, name=part) for value, part in zip(weights(), "ab", strict=True)]
    optimizer = MADE[name]()
    for grads in gradients(3):
        optimizer.apply(grads, variables)
    state = {variable.path: np.asarray(variable.value) for variable in optimizer.variables}
    store = lcstore.open(f"memory://keras-{name}-{policy}", policy=policy)
    store.save(0, {"optimizer": state, "optimizer_variables": list(state.values())})
    back = store.restore(0)
    for path, value in state.items():
        np.testing.assert_array_equal(back["optimizer"][path], value)
    for value, again in zip(state.values(), back["optimizer_variables"], strict=True):
        np.testing.assert_array_equal(again, value)
