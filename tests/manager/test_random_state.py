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
