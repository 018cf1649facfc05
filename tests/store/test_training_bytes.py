"""What deltas of a network in training cost, by kind of tensor: no change lets a kind grow in silence."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import lcstore
from lcstore.demo import network
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS, settled

pytestmark = pytest.mark.unprotected

#: Steps of Adam before the first save and between saves, saves, and those of which bytes do not count.
START, APART, SAVES, WARM = 200, 20, 5, 2

#: Bytes of a settled delta by policy and kind, an eighth above what was measured. When one row of second
#: moments came down for one value of many, they took 2,922 bytes at "balanced".
MOST = {
    "high": {"weights": 9460, "first": 9080, "second": 6490},
    "balanced": {"weights": 4840, "first": 3580, "second": 2570},
    "small": {"weights": 2340, "second": 1770},
}


@pytest.fixture(scope="module")
def states() -> list[dict[str, Any]]:
    return training_states()


@pytest.mark.parametrize("policy", MOST)
def test_a_kind_of_tensors_takes_no_more_than_it_did(states, policy):
    found = bytes_by_kind(policy, states)
    assert {kind: found[kind] for kind in MOST[policy] if not 0 < found[kind] <= MOST[policy][kind]} == {}


def test_rows_that_move_one_way_take_no_bit_for_each_sign(states):
    """As torch has weights, outputs by inputs: 2,853 bytes when signs were coded as they are."""
    found = bytes_by_kind("balanced", [turned(state) for state in states])
    assert 0 < found["first"] <= 2700


def turned(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state with all matrices the other way around."""
    return {n: turned(v) if isinstance(v, dict) else np.ascontiguousarray(v.T) for n, v in state.items()}


def training_states() -> list[dict[str, Any]]:
    """Return the states of a perceptron on digits, hidden units of which are silent for most images."""
    images, labels = network.digits()
    rng = np.random.default_rng(0)
    parameters = network.new_parameters(512, rng)
    zeros = {name: np.zeros_like(value) for name, value in parameters.items()}
    moments: dict[str, Any] = {"step": 0, "m": zeros, "v": {n: v.copy() for n, v in zeros.items()}}
    states = []
    for step in range(START + APART * (SAVES - 1) + 1):
        if step >= START and (step - START) % APART == 0:
            state = {"model": parameters, "optimizer": {"m": moments["m"], "v": moments["v"]}}
            states.append({of: {n: v.copy() for n, v in values.items()} for of, values in state.items()})
        batch = rng.integers(0, len(labels), 64)
        network.adam(parameters, network.gradients(parameters, images[batch], labels[batch]), moments, 1e-3)
    return states


def bytes_by_kind(policy: str, states: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean bytes of settled deltas, by the role of what they hold."""
    store = lcstore.open(MemoryBackend.fresh(), policy=settled(PRESETS[policy]), durability="none", threads=1)
    before: Counter[str] = Counter()
    for step, state in enumerate(states):
        if step == WARM:
            before.update(store.stats().pools)
        store.save(step, state)
    pools = Counter(store.stats().pools)
    pools.subtract(before)
    found: Counter[str] = Counter()
    for pool, nbytes in pools.items():
        found[pool.split("-")[0]] += nbytes
    return {kind: nbytes / (SAVES - WARM) for kind, nbytes in found.items()}
