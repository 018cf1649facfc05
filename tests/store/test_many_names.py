"""Very many small tensors: what is asked of the storage does not grow with the square of their number."""

from __future__ import annotations

import numpy as np
import pytest
from kit.requests import FarBackend

import lcstore
from lcstore.read.nearby import Nearby
from lcstore.storage.memory import MemoryBackend


def _state(count: int, step: int) -> dict:
    """A weight and a bias for every layer, each with values of its own; and one large matrix."""
    layers = {}
    for number in range(count // 2):
        layers[f"{number}.weight"] = np.full((4, 6), number + step / 8, np.float32)
        layers[f"{number}.bias"] = np.full(5, number + step, np.float32)
    return {"model": layers | {"large.weight": np.full((600, 1000), step, np.float32)}, "step": step}


@pytest.fixture(scope="module", params=[1000, pytest.param(10_000, marks=pytest.mark.soak)])
def store(request):
    store = lcstore.open(FarBackend(MemoryBackend.fresh(), 0.0), policy="high")
    for step in range(3):
        store.save(step, _state(request.param, step), exact=step == 1)
    return store


def _gets(store, call):
    with store.backend.counted() as log:
        found = call()
    return found, len(log)


@pytest.mark.parametrize("step", range(3))
def test_reading_all_by_name_gives_what_restore_does_in_few_requests(store, step):
    snapshot = store[step]
    found, requests = _gets(store, lambda: dict(snapshot))
    whole = store.restore(step)
    assert [*found] == [*snapshot] == [*(f"model/{name}" for name in whole["model"]), "step"]
    for name, array in whole["model"].items():
        assert np.array_equal(found[f"model/{name}"], array)
    assert requests < 100


def test_what_is_given_is_the_callers_own(store):
    snapshot = store[2]
    names = [f"model/{number}.bias" for number in range(6)]
    first = [snapshot[name] for name in names]
    for array in first:
        array += 1
    assert [snapshot[name][0] for name in names] == [2, 3, 4, 5, 6, 7]
    assert [snapshot[name][0] for name in names] == [2, 3, 4, 5, 6, 7]


def test_names_are_looked_for_without_a_request(store):
    snapshot = store[2]
    assert "model/0.bias" in snapshot
    (found, here, missing), requests = _gets(
        store, lambda: ([*snapshot.keys()], all(n in snapshot for n in [*snapshot]), "model/x" in snapshot)
    )
    assert len(found) == len(snapshot)
    assert here
    assert not missing
    assert requests == 0


def test_a_neighbour_that_is_damaged_costs_its_neighbours_nothing(store):
    """The values of several tensors cannot be had: those that are asked for one by one still can."""
    node, asked = store[2].using(lambda state: state.node), []

    def read(tensors):
        asked.append(len(tensors))
        if len(tensors) > 1:
            raise lcstore.CorruptionError("one of them")
        return {tensors[0]: np.zeros(1)}

    nearby = Nearby()
    names = [node.layout.named["model", f"{number}.bias"] for number in range(5)]
    assert [nearby.value(node, tensor, read)[0] for tensor in names] == [0] * 5
    assert max(asked) > 1


def test_chunks_that_do_not_fit_together_are_not_read_in_turn(store):
    node, asked = store[2].using(lambda state: state.node), []

    def read(tensors):
        asked.append(len(tensors))
        return {tensor: np.zeros(200_000 // len(tensors)) for tensor in tensors}

    nearby = Nearby(2_000_000)
    for number in range(40):
        for name in (f"{number}.bias", f"{number}.weight"):
            nearby.value(node, node.layout.named["model", name], read)
    assert sum(count > 1 for count in asked) == 2
