"""A process that loads the state of the generators draws the same numbers again."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest

import lcstore
from lcstore import RandomState
from lcstore.storage.memory import MemoryBackend


def draw() -> tuple[object, ...]:
    legacy = np.random.random(3).tolist(), np.random.standard_normal()  # noqa: NPY002
    return random.random(), random.gauss(0, 1), *legacy


def test_the_same_numbers_are_drawn_from_a_store():
    draw()
    backend = MemoryBackend.fresh()
    with lcstore.CheckpointManager(backend, every=1) as manager:
        manager.save(0, {"random": RandomState(), "epoch": 0})
    drawn = draw()
    draw()
    with lcstore.CheckpointManager(backend, every=1) as manager:
        assert manager.resume_into({"random": RandomState()}).state == {"epoch": 0}
    assert draw() == drawn


def test_the_numbers_of_torch_too():
    torch = pytest.importorskip("torch")
    state = RandomState().state_dict()
    drawn = torch.rand(5)
    RandomState().load_state_dict(state)
    assert torch.equal(torch.rand(5), drawn)
    with pytest.raises(lcstore.InvalidInputError, match="GPUs"):
        RandomState().load_state_dict(state | {"cuda": [state["torch"]] * 99})


def test_a_state_of_torch_asks_for_torch():
    code = (
        "import lcstore, lcstore.manager.random_state as made, numpy as np\n"
        "made.find_spec = lambda name: True\n"
        "state = lcstore.RandomState().state_dict()\n"
        "assert 'torch' not in state\n"
        "try: lcstore.RandomState().load_state_dict(state | {'torch': np.zeros(4, np.uint8)})\n"
        "except lcstore.InvalidInputError as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "import torch before" in said


def test_where_torch_is_not_installed_its_numbers_are_left_out(monkeypatch):
    state = RandomState().state_dict() | {"torch": np.zeros(5056, np.uint8), "cuda": [np.zeros(16, np.uint8)]}
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr("lcstore.manager.random_state.find_spec", lambda name: None)
    drawn = np.random.random()  # noqa: NPY002
    RandomState().load_state_dict(state)
    assert np.random.random() == drawn  # noqa: NPY002


KINDS = ["MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64"]


@pytest.fixture
def kept_global():
    """Have numpy's global generator be of another kind only for a test."""
    before = np.random.get_bit_generator()
    yield
    np.random.set_bit_generator(before)


@pytest.mark.parametrize("before", KINDS)
@pytest.mark.parametrize("after", ["MT19937", "SFC64"])
def test_the_global_generator_may_be_of_another_kind(before, after, kept_global):
    """It was a bare ValueError, at the save and at the resume."""
    backend = MemoryBackend.fresh()
    np.random.set_bit_generator(getattr(np.random, before)(3))
    np.random.standard_normal()  # noqa: NPY002
    with lcstore.open(backend) as store:
        store.save(0, {"random": RandomState()})
    drawn = draw()
    np.random.set_bit_generator(getattr(np.random, after)(4))
    with lcstore.open(backend) as store:
        store.resume_into(None, {"random": RandomState()})
    assert draw() == drawn


def test_a_kind_of_somebody_else_is_asked_for_and_nothing_is_set(kept_global):
    state, drawn = RandomState().state_dict(), random.getstate()
    other = {"bit_generator": "Lehmer", "state": {"state": 1}, "has_gauss": 0, "gauss": 0.0}
    random.random()
    now = random.getstate()
    assert now != drawn
    with pytest.raises(lcstore.InvalidInputError, match="set_bit_generator"):
        RandomState().load_state_dict(state | {"numpy": other})
    assert random.getstate() == now


@pytest.mark.parametrize("kind", KINDS)
def test_generators_of_ones_own_go_on_bit_for_bit(kind):
    """Between two halves of a word, too, and what they spawn."""
    seeds = np.random.SeedSequence(7)
    (child,) = seeds.spawn(1)
    generator = np.random.Generator(getattr(np.random, kind)(child))
    generator.random(3)
    generator.integers(0, 10, dtype=np.int32)
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        store.save(0, {"generator": generator.bit_generator.state, "seeds": seeds.state})
        with pytest.raises(lcstore.InvalidInputError, match="store x"):
            store.save(1, {"generator": generator})
        with pytest.raises(lcstore.InvalidInputError, match=r"SeedSequence\(\*\*state\)"):
            store.save(1, {"seeds": seeds})
        state = store.restore()
    again = np.random.Generator(getattr(np.random, kind)(1))
    again.bit_generator.state = state["generator"]
    for draws in (lambda g: g.integers(0, 9, 7, dtype=np.int32), lambda g: g.standard_normal(5)):
        assert np.array_equal(draws(again), draws(generator))
    resumed = np.random.SeedSequence(**state["seeds"])
    assert np.array_equal(resumed.spawn(1)[0].generate_state(4), seeds.spawn(1)[0].generate_state(4))
