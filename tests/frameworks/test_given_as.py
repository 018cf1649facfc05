"""What comes back of tensors of another library: that library's, where it is imported already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lcstore
from lcstore.storage.memory import MemoryBackend

torch = pytest.importorskip("torch")

DTYPES = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "complex64", "complex128"),
)


def _saved(url, state, count=1):
    store = lcstore.open(url)
    for step in range(count):
        store.save(step, state)
    return store


def test_a_model_takes_what_restore_gives(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8)).to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 16, dtype=torch.bfloat16)).float().sum().backward()
    optimizer.step()
    store = _saved(tmp_path / "s", {"model": model, "optim": optimizer})
    other = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8)).to(torch.bfloat16)
    other.load_state_dict(store.restore()["model"])
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value)
    again = torch.optim.AdamW(other.parameters())
    again.load_state_dict(store.restore()["optim"])
    assert torch.equal(again.state_dict()["state"][0]["step"], torch.tensor(1.0))


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_comes_back_as_it_was(name):
    kept = torch.arange(-3, 3).to(getattr(torch, name))
    store = _saved(f"memory://given-{name}", {"x": kept, "none": kept[:0], "one": kept[2]})
    back = store.restore()
    for key, value in {"x": kept, "none": kept[:0], "one": kept[2]}.items():
        assert back[key].dtype == value.dtype
        assert back[key].shape == value.shape
        assert back[key].tolist() == value.tolist()


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float8_e4m3fn", "int64"])
@pytest.mark.parametrize("rows", [slice(None, None, -1), slice(0, None, -1), slice(4, 1, -1)])
def test_rows_are_given_backward(name, rows):
    torch = pytest.importorskip("torch")
    whole = torch.arange(20).reshape(5, 4).to(getattr(torch, name))
    with lcstore.open(MemoryBackend.fresh(), policy="lossless") as store:
        store.save(0, {"w": whole})
        for found in (store.read(0, "w", rows), store[0].sel["w", rows]):
            assert torch.equal(found.float(), whole[[*range(5)[rows]]].float())
            assert found.dtype == whole.dtype


def test_all_that_gives_a_tensor_gives_the_same_kind():
    kept = torch.arange(12.0).reshape(3, 4)
    store = _saved("memory://given-all", {"model": {"x": kept, "n": np.arange(3), "c": np.float32(2)}}, 2)
    snapshot = store[1]
    given = [
        store.restore()["model"]["x"],
        store.resume()["model"]["x"],
        store.rewind(0)["model"]["x"],
        snapshot.tree()["model"]["x"],
        snapshot["model/x"],
        store.read(1, "model/x"),
        *(value for _, value in store.history("model/x")),
        *(tree["model"]["x"] for _, tree in store.walk()),
    ]
    for one in given:
        assert isinstance(one, torch.Tensor)
        assert torch.equal(one, kept)
    part = snapshot.sel["model/x", 1:, ::-1]
    assert torch.equal(part, kept[1:].flip(1))
    for beside in (store.restore()["model"], store.restore(to="numpy")["model"]):
        assert isinstance(beside["n"], np.ndarray)
        assert isinstance(beside["c"], np.float32)


def test_whoever_asks_for_numpy_gets_it():
    store = _saved("memory://given-numpy", {"model": {"x": torch.ones(3)}})
    given = [
        store.restore(to="numpy")["model"]["x"],
        store.resume(to="numpy")["model"]["x"],
        store[0].read("model/x", to="numpy"),
        store.read(0, "model/x", slice(1, None), to="numpy"),
        *(value for _, value in store.history("model/x", to="numpy")),
        *(tree["model"]["x"] for _, tree in store.walk(to="numpy")),
    ]
    assert {type(one) for one in given} == {np.ndarray}
    for ask in (store.read, store[0].read):
        arguments = (0, "model/x") if ask == store.read else ("model/x",)
        with pytest.raises(lcstore.InvalidInputError, match="to is 'paper'"):
            ask(*arguments, to="paper")
    with pytest.raises(lcstore.InvalidInputError, match="to is 'paper'"):
        store.history("model/x", to="paper")


def test_what_is_given_is_the_callers_own():
    store = _saved("memory://given-own", {"model": {"weight": torch.zeros(64, 64), "x": torch.zeros(3)}})
    state = store.resume()["model"]
    for tensor in state.values():
        tensor += 1
    assert store.save(1, {"model": state}).kind == "delta"
    assert torch.equal(store.restore(0)["model"]["x"], torch.zeros(3))
    assert torch.equal(store.restore(1)["model"]["x"], torch.ones(3))
    for _, value in store.history("model/x"):
        value += 7
    assert torch.equal(store.restore(1)["model"]["x"], torch.ones(3))


def test_no_library_is_imported_because_a_store_names_it(tmp_path: Path):
    _saved(tmp_path / "s", {"model": {"w": torch.ones(3, dtype=torch.bfloat16)}})
    script = (
        "import sys, lcstore\n"
        "store = lcstore.open(sys.argv[1], 'r')\n"
        "given = [store.restore()['model']['w'], store[0]['model/w']]\n"
        "given += [w for _, w in store.history('model/w')]\n"
        "print({type(w).__module__ for w in given}, given[0].dtype, 'torch' in sys.modules)\n"
        "print(type(store.restore(to='torch')['model']['w']).__module__)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "s")], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == ["{'numpy'} bfloat16 False", "torch"]
