"""Tensors that are one in the state are stored once, and are one in what comes back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lcstore
from lcstore.layout.join import join
from lcstore.layout.layout import make_layout
from lcstore.state.tree import flatten, unflatten
from lcstore.storage.memory import MemoryBackend

EMBED, HEAD = "model/embed.weight", "model/lm_head.weight"


def _arrays(seed, count=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((64, 64)).astype(np.float32) for _ in range(count)]


def _tied(step, **others):
    (first, other, _), (moved, *_) = _arrays(0), _arrays(1)
    table = first + np.float32(1e-3) * step * moved
    return {"model": {"embed.weight": table, "fc.weight": other, "lm_head.weight": table, **others}}


@pytest.fixture
def store():
    return lcstore.open(MemoryBackend.fresh())


def test_a_tied_tensor_is_stored_once_and_has_both_names(store):
    infos = [store.save(step, _tied(step)) for step in range(3)]
    assert infos[0].bytes_raw == 2 * 64 * 64 * 4
    assert {info.kind for info in infos[1:]} == {"delta"}
    apart = _tied(0)
    apart["model"]["lm_head.weight"] = apart["model"]["lm_head.weight"].copy()
    assert lcstore.open(MemoryBackend.fresh()).save(0, apart).bytes_raw == 3 * 64 * 64 * 4
    back = store.restore()["model"]
    assert [*back] == ["embed.weight", "fc.weight", "lm_head.weight"]
    assert back["lm_head.weight"] is back["embed.weight"]
    assert np.abs(back["embed.weight"] - _tied(2)["model"]["embed.weight"]).max() < 1e-2
    snapshot = store[2]
    assert HEAD in snapshot
    assert set(snapshot.names()) == {EMBED, HEAD, "model/fc.weight"}
    assert store.paths()[HEAD] == store.paths()[EMBED] == ((64, 64), "float32", "weights")
    assert snapshot.nbytes == infos[0].bytes_raw


def test_each_name_reads_the_tensor(store):
    for step in range(3):
        store.save(step, _tied(step))
    there = store.read(1, EMBED)
    assert np.array_equal(store.read(1, HEAD), there)
    assert np.array_equal(store.read(1, HEAD, slice(3, 9)), there[3:9])
    only = store.restore(1, names=HEAD)
    assert [*only["model"]] == ["lm_head.weight"]
    assert np.array_equal(only["model"]["lm_head.weight"], there)
    assert np.array_equal(dict(store.history(HEAD))[1], there)
    assert np.array_equal(dict(store.walk())[1]["model"]["lm_head.weight"], there)
    assert store[1].bytes_to_read(HEAD) == store[1].bytes_to_read(EMBED)
    like = {"model": {"lm_head.weight": np.zeros((64, 64))}}
    assert np.array_equal(store.restore(1, like=like)["model"]["lm_head.weight"], there.astype(float))
    w = np.zeros((64, 64), np.float32)
    both = store.restore(1, like={"model": {"lm_head.weight": w, "embed.weight": w}})["model"]
    assert both["lm_head.weight"] is both["embed.weight"]


def test_a_difference_counts_a_tied_tensor_once(store):
    for step in range(2):
        store.save(step, _tied(step))
    found = store.diff(0, 1)
    sizes = {one.path: one.size for one in found.tensors}
    assert sizes == {EMBED: 4096, HEAD: 4096, "model/fc.weight": 4096}
    assert found.total.size == 2 * 4096


def test_a_run_goes_on_from_a_tied_state(store):
    for step in range(2):
        store.save(step, _tied(step))
    other = lcstore.open(store.backend)
    state = other.resume()
    assert state["model"]["lm_head.weight"] is state["model"]["embed.weight"]
    assert other.save(2, state).kind == "delta"
    assert other.info(2).bytes_stored < 8000


def test_rows_may_be_touched_under_either_name():
    found = []
    for rows in ({EMBED: [3, 5]}, {EMBED: [3], HEAD: [5]}, {HEAD: [3, 5]}):
        store = lcstore.open(MemoryBackend.fresh())
        for step in range(4):
            state = _tied(0)
            state["model"]["embed.weight"][[3, 5]] += np.float32(0.1) * step
            store.save(step, state, touched=rows if step else None)
        found.append(store.read(3, HEAD))
    moved = np.abs(found[0] - _arrays(0)[0]).max(axis=1) > 0.05
    assert np.flatnonzero(moved).tolist() == [3, 5]
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize(
    ("rules", "role"),
    [
        ({}, "weights"),
        ({"**/lm_head*": "plain"}, "plain"),
        ({"**/embed*": "plain"}, "plain"),
        ({"**/embed*": "plain", "**/lm_head*": "weights"}, "plain"),
        ({"**/lm_head*": "weights"}, "weights"),
    ],
)
def test_rules_hold_under_either_name(rules, role):
    store = lcstore.open(MemoryBackend.fresh(), policy=rules or "balanced")
    store.save(0, _tied(0))
    assert store.paths()[HEAD][2] == store.paths()[EMBED][2] == role


def test_a_name_that_says_nothing_does_not_make_weights_plain():
    table = _arrays(0)[0]
    store = lcstore.open(MemoryBackend.fresh())
    store.save(0, {"handle": table, "model": {"weight": table}})
    assert {role for _, _, role in store.paths().values()} == {"weights"}


def test_an_error_for_the_further_name_is_told_to_be_for_nothing():
    store = lcstore.open(MemoryBackend.fresh(), policy={"**/lm_head*": {"error": 0.5}})
    with pytest.warns(lcstore.UnrecognisedWarning, match=r"'model/lm_head\.weight' is tied to 'model/embed"):
        store.save(0, _tied(0))


def test_what_has_a_name_outside_is_not_stripped(store):
    table = _arrays(0)[0]
    for step in range(3):
        shared = table + step
        store.save(step, {"ema": {"weight": shared}, "model": {"weight": shared}})
    there = [store.read(step, "model/weight") for step in range(3)]
    store.retain(lcstore.LatestN(9) | lcstore.Strip("ema/**", after=lcstore.LatestN(1)))
    for step in range(3):
        assert np.array_equal(store.read(step, "model/weight"), there[step])


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=2, max_size=6), st.data())
def test_ties_may_come_and_go(chosen, data):
    """Four names, of which each has one of three tensors; these change from save to save."""
    backend = MemoryBackend.fresh()
    store = lcstore.open(backend, policy="lossless")
    states = []
    for step, which in enumerate(chosen):
        tensors = [array + np.float32(step) for array in _arrays(2)]
        names = data.draw(st.permutations("abcd"))
        state = {"params": {name: tensors[i] for name, i in zip(names, which, strict=True)}}
        store.save(step, state)
        states.append(state["params"])
        if data.draw(st.booleans()):
            store = lcstore.open(backend, policy="lossless")
            store.resume()
    store.compact()
    for step, state in enumerate(states):
        back = store.restore(step)["params"]
        assert [*back] == [*state]
        for one in state:
            assert np.array_equal(back[one], state[one])
            for other in state:
                assert (back[one] is back[other]) == (state[one] is state[other])
    assert store.verify().ok


def test_ties_hold_in_what_several_writers_store():
    (table, *_), parts = _arrays(0), []
    for number, state in enumerate(({"b": {"x": np.zeros(3)}}, {"a": table, "b": {"y": table}})):
        flat = flatten(state)
        rows = [(name, host.array.shape, "float32", "plain", "numpy") for name, host in flat.tensors]
        parts.append((str(number), make_layout(flat.structure, rows)))
    joined = join(parts)
    assert joined.names.ties == {("b", "y"): ("a",)}
    assert joined.named["b", "y"] == joined.named["a",]
    objects = [spec.name for spec in joined.wholes]
    back = unflatten(joined.structure, objects, [])
    assert back["b"]["y"] is back["a"]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_what_is_tied_in_the_store_alone_is_apart_in_a_tree_that_has_it_apart(store, library):
    weight = np.arange(6.0).reshape(2, 3)
    store.save(1, {"a": weight, "b": weight, "c": weight})
    zeros = np.zeros if library == "numpy" else pytest.importorskip("torch").zeros
    one, other = zeros((2, 3)), zeros((2, 3))
    back = store.restore(like={"a": one, "b": other, "c": one})
    assert back["a"] is back["c"]
    back["a"][0, 0] = 7
    np.testing.assert_array_equal(np.asarray(back["b"]), weight)


def test_models_of_torch_come_back_tied():
    torch = pytest.importorskip("torch")

    def model():
        both = torch.nn.ModuleDict({"embed": torch.nn.Embedding(64, 32), "head": torch.nn.Linear(32, 64)})
        both["head"].weight = both["embed"].weight
        return both

    one, store = model(), lcstore.open(MemoryBackend.fresh())
    assert store.save(0, {"model": one}).bytes_raw == (64 * 32 + 64) * 4
    back = store.restore()["model"]
    assert back["head.weight"] is back["embed.weight"]
    other = model()
    store.resume_into(0, {"model": other})
    assert torch.equal(other["head"].weight, one["embed"].weight)
    halves = one["embed"].weight.detach()
    store.save(1, {"w": halves, "t": halves.t(), "half": halves[:7], "more": halves[3:]})
    for name, value in {"t": halves.t(), "half": halves[:7], "more": halves[3:]}.items():
        assert torch.equal(store.restore(1)[name], value)
    assert len(store.restore(1)) == 4
