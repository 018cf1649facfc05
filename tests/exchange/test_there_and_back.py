"""A state that is exported and imported again is the same state, in every format."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from exchange.whole_states import odd_state, torch_state
from states import same

import lcstore
from lcstore.exchange.exporting import FORMATS
from lcstore.exchange.filekeys import file_keys, parts_left_out

pytestmark = pytest.mark.unprotected
ENDINGS = {"safetensors": ".safetensors", "torch": ".pt", "npz": ".npz", "zarr": ".zarr"}


def there_and_back(state, tmp_path, format, **how):
    """Export a state, import the file; return what both stores restore."""
    with lcstore.open(tmp_path / "one", policy="lossless", threads=2) as store:
        store.save(7, state)
        file = tmp_path / f"step7{ENDINGS[format]}"
        lcstore.export(store[7], file, **how)
        wanted = store.restore(7, names=how.get("names"))
        report = lcstore.import_files(file, tmp_path / "two", policy="lossless")
    assert [(one.step, one.outcome, one.format) for one in report.files] == [(7, "anchor", format)]
    with lcstore.open(tmp_path / "two", "r") as store:
        return wanted, store.restore(7)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_tensors_of_negative_zeros_alone(tmp_path, format):
    """Zarr leaves out chunks that it takes for its fill value, by their values: zeros of either sign."""
    if format == "torch":
        pytest.importorskip("torch")
    dtypes = ("f2", "f4", "f8", "c8") + ("c16",) * (format != "safetensors")  # which has no such dtype
    state = {dtype: np.full((3, 4), -0.0, dtype) for dtype in dtypes} | {
        "imag": np.full(3, complex(0.0, -0.0), np.complex64),
        "scalar": np.array(-0.0, np.float32),
    }
    wanted, found = there_and_back(state, tmp_path, format)
    for name, array in wanted.items():
        assert np.asarray(found[name]).tobytes() == np.asarray(array).tobytes() == state[name].tobytes()


def test_a_tensor_that_was_added_to_an_export_is_not_lost_without_a_word(tmp_path):
    with lcstore.open(tmp_path / "store", policy="lossless") as store:
        store.save(1, {"w": np.ones(3)})
        lcstore.export(store[1], tmp_path / "one.npz")
    with np.load(tmp_path / "one.npz") as held:
        np.savez(tmp_path / "two.npz", **held, added=np.zeros(2))
    with pytest.raises(lcstore.CorruptionError, match="has the tensor 'added', which lcstore did not write"):
        lcstore.import_files(tmp_path / "two.npz", tmp_path / "again", step=1)
    with np.load(tmp_path / "two.npz") as held:
        np.savez(tmp_path / "two.npz", **{key: held[key] for key in held if key != "__lcstore__"})
    lcstore.import_files(tmp_path / "two.npz", tmp_path / "again", step=1)
    with lcstore.open(tmp_path / "again", "r") as again:
        assert sorted(again.restore()) == ["added", "w"]


def test_names_that_numpy_takes_for_one_another(tmp_path):
    """`np.load` finds the first of both by either name."""
    arrays = {"x": np.arange(4, dtype=np.float32), "x.npy": np.arange(4, 8, dtype=np.float32)}
    with lcstore.open(tmp_path / "one") as store:
        store.save(7, arrays)
        with pytest.raises(lcstore.InvalidInputError, match=r"'x' and 'x.npy' cannot be exported to one npz"):
            lcstore.export(store[7], tmp_path / "step7.npz")
        lcstore.export(store[7], tmp_path / "alone.npz", names="x.npy")
        store.save(8, {"a\0b": arrays["x"]})
        with pytest.raises(lcstore.InvalidInputError, match=r"names in an archive end at the first NUL"):
            lcstore.export(store[8], tmp_path / "step8.npz")
    assert not (tmp_path / "step8.npz").exists()
    np.savez(tmp_path / "step8.npz", **arrays)
    lcstore.import_files([tmp_path / "step8.npz"], tmp_path / "two", policy="lossless")
    with lcstore.open(tmp_path / "two", "r") as store:
        assert same(store.restore(8), arrays)


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"torch"}))
def test_a_state_of_numpy(tmp_path, format):
    wanted, found = there_and_back(odd_state(), tmp_path, format)
    assert same(found, wanted)
    assert type(found["odd"]["a/b"][1][0]) is np.float32
    assert type(found["model"]) is type(wanted["model"])
    assert found["model"]["head.weight"] is found["model"]["embed.weight"]


@pytest.mark.parametrize("format", FORMATS)
def test_a_state_of_adamw(tmp_path, format):
    torch = pytest.importorskip("torch")
    wanted, found = there_and_back(torch_state(), tmp_path, format)
    assert same(found, wanted)
    assert found["model"]["1.weight"] is found["model"]["0.weight"]
    assert all(isinstance(value, torch.Tensor) for value in found["model"].values())
    again = torch_state(0)
    again["model"].load_state_dict(found["model"])
    again["optim"].load_state_dict(found["optim"])


def test_a_state_of_numpy_by_way_of_torch_is_one_of_torch(tmp_path):
    torch = pytest.importorskip("torch")
    wanted, found = there_and_back(odd_state(), tmp_path, "torch")
    assert same(found, wanted)  # bit for bit, and of one structure
    assert isinstance(found["model"]["embed.weight"], torch.Tensor)
    loaded = torch.load(tmp_path / "step7.pt", weights_only=True)
    assert loaded["values"][1] == 2**70


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"torch"}))
@pytest.mark.parametrize("state", [{}, {"model": {}}, np.ones((4, 4), np.float32), {"epoch": 3}])
def test_states_with_next_to_nothing(tmp_path, format, state):
    wanted, found = there_and_back(state, tmp_path, format)
    assert same(found, wanted)


@pytest.mark.parametrize("format", FORMATS)
def test_a_part_comes_back_as_the_part(tmp_path, format):
    pytest.importorskip("torch")
    wanted, found = there_and_back(odd_state(), tmp_path, format, names=["model/**", "epoch"])
    assert found.keys() == {"model", "epoch"}
    assert same(found, wanted)


def test_keys_are_those_of_a_state_dict(tmp_path):
    numpy = pytest.importorskip("safetensors.numpy")
    rng = np.random.default_rng(0)
    weights = {f"layers.{i}.weight": rng.standard_normal((8, 8)).astype(np.float32) for i in range(2)}
    there_and_back({"model": weights, "optim": {"lr": 0.1}}, tmp_path, "safetensors", names="model/**")
    held = numpy.load_file(tmp_path / "step7.safetensors")
    assert held.keys() == weights.keys()
    assert all(held[key].tobytes() == weights[key].tobytes() for key in weights)


@pytest.mark.parametrize("names", ["model/**", "model"])
def test_a_file_of_torch_of_the_model_alone_is_its_state_dict(tmp_path, names):
    torch = pytest.importorskip("torch")
    state = torch_state()
    file, wanted = tmp_path / "step7.pt", state["model"].state_dict()
    with lcstore.open(tmp_path / "one", policy="lossless", threads=2) as store:
        store.save(7, state)
        lcstore.export(store[7], file, names=names)
        lcstore.export(store[7], tmp_path / "step7.npz", names=names)
    held = torch.load(file, weights_only=True)
    again = torch_state(0)["model"]
    again.load_state_dict(held)
    assert same(again.state_dict(), wanted)
    assert {*np.load(tmp_path / "step7.npz").files} <= {*held, "__lcstore__"}
    lcstore.import_files(file, tmp_path / "two", policy="lossless", under="model")
    with lcstore.open(tmp_path / "two", "r") as store:
        assert same(store.restore(7)["model"], wanted)


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ("layers/#0/**", {"weight", "bias"}),
        (["layers/**", "epoch"], {"layers", "epoch"}),
        ("epoch", {"epoch"}),
    ],
)
def test_a_file_of_torch_leaves_out_what_keys_leave_out(tmp_path, names, keys):
    torch = pytest.importorskip("torch")
    state = {"layers": [{"weight": torch.ones(3), "bias": torch.zeros(2)}], "epoch": 3}
    with lcstore.open(tmp_path / "one", policy="lossless", threads=2) as store:
        store.save(7, state)
        lcstore.export(store[7], tmp_path / "step7.pt", names=names)
    assert torch.load(tmp_path / "step7.pt", weights_only=True).keys() == keys


def test_torch_loads_a_model_with_tied_weights(tmp_path):
    pytest.importorskip("torch")
    load = pytest.importorskip("safetensors.torch")
    state = torch_state()
    there_and_back(state, tmp_path, "safetensors", names="model")
    assert load.load_file(tmp_path / "step7.safetensors").keys() == {"0.weight", "1.bias"}
    again = torch_state(0)["model"]
    assert load.load_model(again, tmp_path / "step7.safetensors") == (set(), [])
    assert same(again.state_dict(), state["model"].state_dict())


def test_every_tensor_lies_where_its_dtype_may(tmp_path):
    state = {"model": {"a": np.ones(3, bool), "b": np.ones((3, 3)), "c": np.ones(5, np.float16)}}
    there_and_back(state, tmp_path, "safetensors")
    data = (tmp_path / "step7.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    begins = {key: row["data_offsets"][0] for key, row in header.items() if key != "__metadata__"}
    assert length % 8 == 0
    assert begins == {"model.b": 0, "model.c": 72, "model.a": 82}


NAMES = [("model", "a.weight"), ("model", "b", 0), ("optim", "state", 1, "m")]


def test_keys_are_dotted_names():
    assert file_keys(NAMES) == ["model.a.weight", "model.b.0", "optim.state.1.m"]
    assert file_keys(NAMES[:2], 1) == ["a.weight", "b.0"]
    assert file_keys([("a", "b"), ("a.b",)]) == ["a/b", "a.b"]
    assert file_keys([()]) == ["state"]


@pytest.mark.parametrize(
    ("asked", "names", "left_out"),
    [
        (None, NAMES[:2], 0),
        ("**", NAMES, 0),
        ("model", NAMES[:2], 1),
        ("model/**", NAMES[:2], 1),
        (["model/**", "optim/**"], NAMES, 0),
        (["model/a*", "model/b/#0"], NAMES[:2], 1),
        ("model/b/#0", NAMES[1:2], 2),
        ("model/b/**", NAMES[1:2], 2),
        ("model/*.weight", NAMES[:1], 1),
        ("**/a.weight", NAMES[:1], 0),
        ("model", [("model",)], 0),
        ("model", [], 0),
    ],
)
def test_what_is_asked_for_is_left_out_of_keys(asked, names, left_out):
    assert parts_left_out(asked, names) == left_out
