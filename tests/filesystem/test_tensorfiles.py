"""States as .npy and .safetensors files, whole and by range."""

from __future__ import annotations

import io
import itertools
import json

import numpy as np
import pytest
from saved import ODD_NAMES, Saved, tensors_of_safetensors
from states import leaves

import lcstore
from lcstore.dtypes import DTYPE_NAMES, dtype_from_name
from lcstore.filesystem.lcstorefs import LcstoreFileSystem
from lcstore.filesystem.quoting import quoted
from lcstore.filesystem.tensorfiles import shown_dtype
from lcstore.layout import layout as layouts
from lcstore.state.names import parse_name
from lcstore.storage.memory import MemoryBackend


@pytest.fixture(scope="module")
def store():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "chunk_elements", lambda size, dtype, covered=False: 1024)
        run, store = Saved(), lcstore.open(MemoryBackend.fresh())
        for step in range(4):
            store.save(step, run.state(step), exact=step == 2)
        yield store


@pytest.fixture
def fs(store):
    return LcstoreFileSystem(store)


def npy_path(step: int, name: str) -> str:
    return "/".join([str(step), "tensors", *quoted(parse_name(name))]) + ".npy"


@pytest.mark.parametrize("step", range(4))
def test_npy_files_hold_the_values_of_restore(store, fs, step):
    wanted = leaves(store.restore(step, to="numpy"))
    assert len(wanted) > 2 * len(ODD_NAMES) + len(DTYPE_NAMES)
    for name, value in wanted.items():
        data = fs.cat_file(npy_path(step, name))
        found = np.load(io.BytesIO(data))
        assert found.shape == value.shape
        assert found.dtype == shown_dtype(value.dtype.name)
        np.testing.assert_array_equal(found, value.astype(found.dtype))  # of NaN the bits may be others
        assert fs.info(npy_path(step, name))["size"] == len(data)
    assert len(fs.find(f"{step}/tensors")) == len(wanted)


@pytest.mark.parametrize("step", range(4))
def test_safetensors_hold_the_bits_of_restore(store, fs, step):
    data = fs.cat_file(f"{step}/state.safetensors")
    found, metadata = tensors_of_safetensors(data)
    assert metadata == {"format": "pt", "step": str(step), "node": store.info(step).node}
    wanted = leaves(store.restore(step, to="numpy"))
    renamed = {"__metadata__": "~x5f_metadata__"}
    assert {renamed.get(name, name) for name in wanted} == found.keys()
    for name, value in wanted.items():
        kind, shape, body = found[renamed.get(name, name)]
        pairs = [2] if value.dtype.kind == "c" else []
        assert shape == [*value.shape, *pairs]
        same_bits = kind in ("BF16", "F8_E4M3", "F8_E5M2") or shown_dtype(value.dtype.name) == value.dtype
        assert body == (value if same_bits else value.astype(shown_dtype(value.dtype.name))).tobytes()
    assert fs.info(f"{step}/state.safetensors")["size"] == len(data)


def test_parts_at_the_top_are_files_of_their_own(store, fs):
    found, _ = tensors_of_safetensors(fs.cat_file("1/safetensors/model.safetensors"))
    assert found.keys() == {"fc.weight", "half.weight", "bias", "scalar", "empty"}
    assert found["fc.weight"][2] == store.read(1, "model/fc.weight").tobytes()


def test_any_range_is_that_of_the_whole(store, fs):
    chance = np.random.default_rng(0)
    paths = ["3/state.safetensors", "2/tensors/model/half.weight.npy", "1/zarr/model/fc.weight/c.0.0"]
    for path in paths:
        whole = fs.cat_file(path)
        cold = LcstoreFileSystem(store, held=0)
        with fs.open(path) as file:
            for _ in range(60):
                low, high = sorted(chance.integers(0, len(whole) + 1, 2).tolist())
                assert fs.cat_file(path, low, high) == whole[low:high]
                file.seek(low)
                assert file.read(high - low) == whole[low:high]
        for low, high in itertools.product([0, 3, -5, None], [len(whole), -2, 2, None, 10**9]):
            assert cold.cat_file(path, low, high) == whole[low:high]


def test_ties_are_there_under_each_name(tmp_path):
    torch = pytest.importorskip("torch")
    model = torch.nn.ModuleDict(
        {"a": torch.nn.Linear(4, 4, bias=False), "b": torch.nn.Linear(4, 4, bias=False)}
    )
    model["b"].weight = model["a"].weight
    with lcstore.open(tmp_path / "s", policy="lossless") as store:
        store.save(0, {"model": model})
    fs = LcstoreFileSystem(str(tmp_path / "s"))
    found, _ = tensors_of_safetensors(fs.cat_file("0/safetensors/model.safetensors"))
    assert found["a.weight"] == found["b.weight"]
    assert found["a.weight"][2] == model["a"].weight.detach().numpy().tobytes()


def test_a_state_may_be_one_tensor_or_none(tmp_path):
    with lcstore.open(tmp_path / "s") as store:
        store.save(0, np.arange(6).reshape(2, 3))
        store.save(1, {})
    fs = LcstoreFileSystem(str(tmp_path / "s"))
    assert fs.ls("0/tensors", detail=False) == ["0/tensors/~.npy"]
    assert np.load(fs.open("0/tensors/~.npy")).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors_of_safetensors(fs.cat_file("0/state.safetensors"))[0].keys() == {""}
    assert fs.ls("1/tensors") == fs.ls("1/safetensors") == []
    assert tensors_of_safetensors(fs.cat_file("1/state.safetensors"))[0] == {}


def test_what_was_let_go_of_is_not_listed(tmp_path, run):
    with lcstore.open(tmp_path / "s") as store:
        for step in range(3):
            store.save(step, run.step())
        store.retain(lcstore.LatestN(9) | lcstore.Strip("optim/**", after=lcstore.LatestN(2)))
        gone = {name for name in store.paths(0) if name.startswith("optim")}
        assert gone
        fs = LcstoreFileSystem(store)
        found, _ = tensors_of_safetensors(fs.cat_file("0/state.safetensors"))
        assert {name for name in store.paths(0) if not name.startswith("optim")} == found.keys()
        assert fs.exists("1/tensors/optim/state/#0/exp_avg.npy")
        assert not fs.exists("0/tensors/optim/state/#0/exp_avg.npy")


def test_metadata_tells_what_is_recorded(store, fs):
    found = json.loads(fs.cat_file("2/metadata.json"))
    info = store.info(2)
    assert (found["step"], found["node"], found["exact"]) == (2, info.node, True)
    assert found["values"] == {"epoch": 2, "rng": {"bytes": "AP8="}, "ratio": {"float": "nan"}}
    assert found["tensors"]["model/half.weight"] == {
        "shape": [40, 90],
        "dtype": "bfloat16",
        "role": "weights",
    }
    assert fs.info("2/metadata.json")["size"] == len(fs.cat_file("2/metadata.json"))


def test_loaders_open_them(store, fs, tmp_path):
    pytest.importorskip("safetensors")
    pytest.importorskip("torch")
    from safetensors import safe_open
    from safetensors.torch import load_file

    fs.get("3/state.safetensors", str(tmp_path / "all.safetensors"))
    fs.get("3/safetensors/model.safetensors", str(tmp_path / "model.safetensors"))
    wanted = leaves(store.restore(3, to="numpy"))
    found = load_file(tmp_path / "all.safetensors")
    assert str(found["dtypes/bfloat16"].dtype) == "torch.bfloat16"
    assert found["model/fc.weight"].numpy().tobytes() == wanted["model/fc.weight"].tobytes()
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        assert file.get_slice("fc.weight")[3:5].tobytes() == wanted["model/fc.weight"][3:5].tobytes()
    assert dtype_from_name("bfloat16") == wanted["dtypes/bfloat16"].dtype


def test_a_model_comes_from_pretrained(tmp_path):
    pytest.importorskip("safetensors")
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=16, n_positions=8)
    model = transformers.GPT2LMHeadModel(config)
    with lcstore.open(tmp_path / "s", policy="lossless") as store:
        store.save(5, {"model": model.state_dict()})
    config.save_pretrained(tmp_path / "m")
    fs = LcstoreFileSystem(str(tmp_path / "s"))
    fs.get("latest/safetensors/model.safetensors", str(tmp_path / "m" / "model.safetensors"))
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "m")
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
