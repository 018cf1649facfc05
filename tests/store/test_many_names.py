"""Very many small tensors: what is asked of the storage does not grow with the square of their number."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from kit.requests import FarBackend

import lcstore
from lcstore.errors import UnrecognisedWarning
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


def _told(*states: dict) -> list[str]:
    """Save states; return what is said of names."""
    with warnings.catch_warnings(record=True) as told, lcstore.open(MemoryBackend.fresh()) as store:
        warnings.simplefilter("always", UnrecognisedWarning)
        for step, state in enumerate(states):
            store.save(step, state)
    return [str(one.message) for one in told if issubclass(one.category, UnrecognisedWarning)]


def _replay(count: int) -> list[dict]:
    return [{"obs": np.full(4, at, np.float32), "done": np.bool_(at % 2)} for at in range(count)]


def test_many_tiny_tensors_of_a_list_are_told_of_once():
    """Their names take several times what they do, and nothing but the bytes of a save would say so."""
    model = {"fc.weight": np.ones((64, 64), np.float32)}
    told = _told(*({"model": model, "replay": _replay(count)} for count in (20, 600, 700)))
    assert told == [
        "step 1: 1,200 tensors below 'replay' hold 8 bytes each: their names take more than they do, in "
        "every save. Join them to one for each field, as by np.stack"
    ]
    joined = {key: np.stack([one[key] for one in _replay(600)]) for key in ("obs", "done")}
    assert _told({"model": model, "replay": joined}, {"model": model, "replay": _replay(400)}) == []
    by_key = {f"user {at}": np.full(4, at, np.float32) for at in range(1000)}
    assert "1,000 tensors below 'users' hold 16 bytes each" in _told({"users": by_key})[0]


@pytest.mark.parametrize("listed", [False, True])
def test_gains_and_biases_of_a_model_and_counts_of_an_optimizer_are_not_told_of(listed):
    layers, moments = {}, {}
    for at in range(600):
        for name, shape in (("weight", (24, 24)), ("bias", (24,))):
            layers[f"{at}.{name}"] = np.full(shape, at, np.float32)
            moments[len(moments)] = {"step": np.float32(7), "average": np.full(shape, at, np.float32)}
    counts = {at: {"step": one["step"]} for at, one in moments.items()}
    model = {"layers": [*layers.values()]} if listed else layers
    state = {"params": model, "optim": {"state": counts}, "other": {"state": moments}}
    assert [one for one in _told(state) if "bytes each" in one] == []
