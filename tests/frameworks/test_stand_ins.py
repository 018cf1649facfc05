"""States that are restored and saved again where their library is not imported are still of that library."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import lcstore
from lcstore.state.standins import StandIns
from lcstore.storage.memory import MemoryBackend

ENDS = "\nassert not {'torch', 'jax'} & {*sys.modules}\n"


def elsewhere(script: str, *arguments: object) -> None:
    """Run a script in a process that imports nothing but lcstore."""
    lines = [sys.executable, "-c", f"import sys, lcstore\n{script}{ENDS}", *map(str, arguments)]
    subprocess.run(lines, check=True, timeout=240)


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def _parts(torch, seed=0, lr=0.01):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).to(torch.bfloat16)
    return {"model": model, "optim": torch.optim.AdamW(model.parameters(), lr=lr)}


def _step(torch, parts):
    parts["model"](torch.randn(8, 8, dtype=torch.bfloat16)).float().square().mean().backward()
    parts["optim"].step()
    parts["optim"].zero_grad()


@pytest.fixture
def run(torch, tmp_path):
    """Where a run is, and what it was at step 10."""
    parts, url = _parts(torch), tmp_path / "run"
    with lcstore.open(url, policy="lossless") as store:
        for step in (0, 10, 20):
            _step(torch, parts)
            store.save(step, {**parts, "step": step})
        return url, store.restore(10)


def _check_same(torch, one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            _check_same(torch, one[key], other[key])
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)
    else:
        assert one == other


def _check_loaded(torch, parts, kept):
    for name, part in parts.items():
        _check_same(torch, part.state_dict(), kept[name])


REWOUND = "with lcstore.open(sys.argv[1], 'r+') as store:\n    state = store.rewind(10)\n    "
COPIED = (
    "with lcstore.open(sys.argv[1], 'r') as store, lcstore.open(sys.argv[2], policy='lossless') as alone:\n"
    "    alone.save(10, store.restore(10))"
)


@pytest.mark.parametrize(
    ("script", "place"),
    [
        (f"{REWOUND}store.save(15, state)", "run"),
        (f"{REWOUND}store.save_async(15, state).result()", "run"),
        (COPIED, "alone"),
    ],
)
def test_a_loop_goes_on_from_what_was_saved_without_its_library(torch, run, tmp_path, script, place):
    url, kept = run
    elsewhere(script, url, tmp_path / "alone")
    parts = _parts(torch, seed=1)
    with lcstore.open(tmp_path / place) as store:
        _check_same(torch, store.restore(), kept)
        parts["model"].load_state_dict(store.restore()["model"])
        parts["optim"].load_state_dict(store.restore()["optim"])
        parts = _parts(torch, seed=2)
        assert store.resume_into("latest", parts) == {"step": 10}
        _check_loaded(torch, parts, kept)
        _step(torch, parts)
        store.save(16, {**parts, "step": 16})


def test_changed_in_place_is_still_of_torch_and_computed_or_asked_for_is_numpy(torch, run):
    url, _ = run
    elsewhere(
        f"{REWOUND}state['model']['0.weight'][:] = 0\n"
        "    state['model']['0.bias'] = state['model']['0.bias'] * 1\n"
        "    store.save(15, state)\n"
        "    store.save(16, store.restore(10, to='numpy'))",
        url,
    )
    with lcstore.open(url, "r") as store:
        model = store.restore(15)["model"]
        assert torch.equal(model["0.weight"], torch.zeros(8, 8, dtype=torch.bfloat16))
        assert isinstance(model["0.bias"], np.ndarray)
        assert isinstance(model["1.weight"], torch.Tensor)
        assert isinstance(store.restore(16)["model"]["0.weight"], np.ndarray)


@pytest.mark.parametrize("load", ["restore_into", "resume_into"])
def test_an_optimizer_of_torch_takes_a_state_of_numpy(torch, run, load):
    url, kept = run
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    with lcstore.open(url, "r") as other:
        store.save(10, other.restore(10, to="numpy"))
    parts = _parts(torch, seed=1)
    getattr(store, load)(10, parts)
    _check_loaded(torch, parts, kept)
    _step(torch, parts)


def test_a_loss_that_is_tuned_for_is_given_what_its_process_has(run):
    elsewhere(
        "from lcstore.tune.probe import Probe\n"
        "state = lcstore.open(sys.argv[1], 'r').restore()\n"
        "seen = []\n"
        "Probe(lambda given: seen.append(type(given['model']['0.weight'])) or 1.0, state, 4)\n"
        "assert {kind.__module__ for kind in seen} == {'numpy'}",
        run[0],
    )


def test_a_learning_rate_that_is_a_tensor_is_one_again(torch):
    parts = _parts(torch, lr=torch.tensor(0.5))
    store = lcstore.open(MemoryBackend.fresh(), policy="lossless")
    store.save(0, parts)
    store.save(1, store.restore(to="numpy"))
    again = _parts(torch, seed=1)
    store.restore_into(1, again)
    assert torch.equal(again["optim"].param_groups[0]["lr"], torch.tensor(0.5))


def test_arrays_and_keys_of_jax_stay_what_they_are(tmp_path):
    jax = pytest.importorskip("jax")
    with lcstore.open(tmp_path / "run", policy="lossless") as store:
        store.save(10, {"x": jax.numpy.arange(3.0), "key": jax.random.key(5), "n": np.arange(3)})
    elsewhere(f"{REWOUND}store.save(15, state)", tmp_path / "run")
    with lcstore.open(tmp_path / "run", "r") as store:
        state = store.restore(15)
    assert isinstance(state["x"], jax.Array)
    assert state["x"].tolist() == [0, 1, 2]
    assert jax.random.key_data(state["key"]).tolist() == jax.random.key_data(jax.random.key(5)).tolist()
    assert isinstance(state["n"], np.ndarray)


def test_an_array_stands_for_a_tensor_as_long_as_it_is_what_was_given():
    known = StandIns[str]()
    array = known.given(np.zeros((2, 2)), "torch")
    assert known.kind_of(array) == "torch"
    assert known.kind_of(np.zeros((2, 2))) is known.kind_of(array.copy()) is known.kind_of(array[:]) is None
    array.resize(4, refcheck=False)
    assert known.kind_of(array) is None
    del array
    assert not known._known
