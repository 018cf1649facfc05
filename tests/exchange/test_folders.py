"""Folders that are one checkpoint: of Transformers, of distributed checkpoints, of Orbax."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import random
import shutil
import zlib

import numpy as np
import pytest
from exchange.whole_states import torch_state
from states import same

import lcstore
from lcstore.exchange.dcpfolder import read_dcp

pytestmark = pytest.mark.unprotected


def load(tmp_path, folder, **how):
    lcstore.import_files(folder, tmp_path / "store", policy="lossless", **how)
    with lcstore.open(tmp_path / "store", "r") as store:
        return store.restore(), store.info()


def weights():
    rng = np.random.default_rng(0)
    return {f"layers.{i}.weight": rng.standard_normal((16, 8)).astype(np.float32) for i in range(4)}


def write_sharded(folder):
    numpy = pytest.importorskip("safetensors.numpy")
    folder.mkdir(parents=True)
    places = {}
    for number in (0, 1):
        name = f"model-0000{number + 1}-of-00002.safetensors"
        shard = dict(list(weights().items())[number::2])
        numpy.save_file(shard, folder / name, metadata={"format": "np"})
        places |= dict.fromkeys(shard, name)
    ordered = {name: places[name] for name in weights()}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": ordered}))
    (folder / "config.json").write_text('{"model_type": "gpt2", "n_layer": 4, "limit": [0.0, Infinity]}')


def test_a_sharded_model_and_its_config(tmp_path):
    write_sharded(tmp_path / "model")
    state, info = load(tmp_path, tmp_path / "model", step=0)
    assert same(state, {"model": weights()})
    limit = [0.0, {"__float__": "Infinity"}]
    assert info.metadata["config"] == {"model_type": "gpt2", "n_layer": 4, "limit": limit}
    assert info.metadata["imported"]["format"] == "transformers"


def test_a_shard_that_is_missing_or_lies_elsewhere(tmp_path):
    write_sharded(tmp_path / "model")
    index = tmp_path / "model" / "model.safetensors.index.json"
    said = json.loads(index.read_text())["weight_map"]
    for changed, match in (
        ({**said, "layers.0.weight": "../secret"}, "names the file '../secret', which is not there"),
        ({**said, "layers.0.weight": "model-3.safetensors"}, "which is not there"),
        ({**said, "layers.9.weight": said["layers.0.weight"]}, "has 'layers.9.weight', and it has not"),
        ([], "does not say which file has which tensor"),
        ({"layers.0.weight": 3}, "does not say which file has which tensor"),
    ):
        index.write_text(json.dumps({"weight_map": changed}))
        with pytest.raises(lcstore.CorruptionError, match=match):
            load(tmp_path, tmp_path / "model", step=0)
    index.write_text("{")
    with pytest.raises(lcstore.CorruptionError, match=r"index.json is no JSON"):
        load(tmp_path, tmp_path / "model", step=0)


def write_trainer(folder, step):
    """What Trainer writes at a step."""
    torch = pytest.importorskip("torch")
    write_sharded(folder)
    state = torch_state()
    torch.save(state["optim"].state_dict(), folder / "optimizer.pt")
    torch.save({"last_epoch": step}, folder / "scheduler.pt")
    generators = {"python": random.getstate(), "numpy": np.random.get_state()}  # noqa: NPY002
    generators["cpu"] = torch.get_rng_state()
    torch.save(generators, folder / "rng_state.pth")
    torch.save(state, folder / "training_args.bin")
    logged = [{"step": step - 1, "loss": 9.0}, {"step": step, "loss": 2.5, "epoch": 1.0}]
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": logged}))


def test_what_trainer_leaves_behind(tmp_path):
    write_trainer(tmp_path / "out" / "checkpoint-500", 500)
    write_trainer(tmp_path / "out" / "checkpoint-1000", 1000)
    write_trainer(tmp_path / "out" / "final", 1000)
    drawn = random.random(), np.random.random()  # noqa: NPY002
    for file in (tmp_path / "out" / "final").iterdir():  # as `save_model` does at the end
        file.rename(tmp_path / "out" / file.name)
    report = lcstore.import_files(tmp_path / "out", tmp_path / "store", policy="lossless")
    assert [(one.step, one.outcome) for one in report.files] == [(500, "anchor"), (1000, "delta")]
    with lcstore.open(tmp_path / "store", "r") as store:
        state = store.restore("best:loss")
        assert store.info(500).metrics == {"loss": 2.5}
    assert state.keys() == {"model", "optim", "schedule", "random", "trainer"}
    assert same(state["optim"], torch_state()["optim"].state_dict())
    assert json.loads(zlib.decompress(state["trainer"]))["global_step"] in (500, 1000)
    lcstore.RandomState().load_state_dict(state["random"])
    assert (random.random(), np.random.random()) == drawn  # noqa: NPY002


def test_trainer_resumes_from_what_was_imported(tmp_path):
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from lcstore.integrations.trainer_files import write_folder

    write_trainer(tmp_path / "checkpoint-500", 500)
    state, _ = load(tmp_path, tmp_path / "checkpoint-500")
    state["model"] = {name: torch.from_numpy(array) for name, array in state["model"].items()}
    write_folder(tmp_path / "again", state, {})
    again, _ = load(tmp_path, tmp_path / "again", step=501)
    assert same(again, state)


def test_a_distributed_checkpoint(tmp_path):
    pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    state = torch_state()
    state = {**state, "model": state["model"].state_dict(), "optim": state["optim"].state_dict()}
    with pytest.warns(UserWarning, match="single process"):
        dcp.save(state, checkpoint_id=str(tmp_path / "step-3"))
    found, info = load(tmp_path, tmp_path / "step-3")
    assert info.step == 3
    # It keeps no empty tensors apart, and no ties.
    assert found.keys() == state.keys()
    for name, part in state.items():
        assert same(found[name], part) or name == "model"
    assert all(found["model"][name].equal(tensor) for name, tensor in state["model"].items())


def test_a_flipped_byte_in_a_distributed_checkpoint_is_met(tmp_path):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"model": torch.nn.Linear(8, 8).state_dict()}, checkpoint_id=str(tmp_path / "step-3"))
    wanted = load(tmp_path, tmp_path / "step-3")[0]["model"]
    (file,) = (tmp_path / "step-3").glob("*.distcp")
    whole, found = file.read_bytes(), 0
    for at in range(0, len(whole), 97):
        data = bytearray(whole)
        data[at] ^= 4
        file.write_bytes(data)
        try:
            back = read_dcp(str(tmp_path / "step-3"), "step-3").state["model"]
            assert all(back[name].equal(wanted[name]) for name in wanted)  # what means nothing was flipped
        except lcstore.LcstoreError as error:
            found += 1
            assert "step-3" in str(error)
    assert found > 10


def test_moments_of_a_distributed_checkpoint_are_loaded(tmp_path):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    parts = torch_state()
    saved = {"trainer": {"optim": parts["optim"].state_dict()}, "state": {"0": 1}, "param_groups": 2}
    with pytest.warns(UserWarning, match="single process"):
        dcp.save(saved, checkpoint_id=str(tmp_path / "step-3"))
    found, _ = load(tmp_path, tmp_path / "step-3")
    assert found["state"] == {"0": 1}
    fresh = torch.optim.AdamW(parts["model"].parameters())
    with lcstore.open(tmp_path / "store", "r") as store:
        store.restore_into(3, {"trainer": {"optim": fresh}})
    assert same(fresh.state_dict(), parts["optim"].state_dict())


class Runs:
    """What runs a command when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def test_nothing_in_a_distributed_checkpoint_is_run(tmp_path):
    pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"a": Runs(tmp_path / "ran")}, checkpoint_id=str(tmp_path / "step-3"))
    with pytest.raises(lcstore.InvalidInputError, match=r"step-3 holds a \w+.system, which only"):
        load(tmp_path, tmp_path / "step-3")
    (tmp_path / "step-3" / ".metadata").write_bytes(pickle.dumps(Runs(tmp_path / "ran")))
    with pytest.raises(lcstore.InvalidInputError, match=r"step-3 holds a \w+.system"):
        load(tmp_path, tmp_path / "step-3")
    (tmp_path / "step-3" / ".metadata").write_bytes(b"text")
    with pytest.raises(lcstore.CorruptionError, match=r"step-3 is no whole folder of torch.distributed"):
        load(tmp_path, tmp_path / "step-3")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "changed",
    [
        b"cpathlib\nPosixPath\n",
        b"ctorch.distributed.checkpoint.metadata\nStorageMeta\n",
        b"ctorch.serialization\n_get_layout\n",
    ],
)
def test_metadata_changes_no_class_of_this_process(tmp_path, changed):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"a": np.ones(3)}, checkpoint_id=str(tmp_path / "step-3"))
    before = pathlib.PosixPath.is_mount
    hostile = b"\x80\x04" + changed + b"N}X\x08\x00\x00\x00is_mountK\x01s\x86b."
    (tmp_path / "step-3" / ".metadata").write_bytes(hostile)
    with pytest.raises(lcstore.InvalidInputError, match=r"holds a change of <(class|function)"):
        load(tmp_path, tmp_path / "step-3")
    assert pathlib.PosixPath.is_mount is before
    assert not hasattr(dcp.metadata.StorageMeta, "is_mount")
    assert not hasattr(torch.serialization._get_layout, "is_mount")


@pytest.mark.parametrize("outside", ["../outside", "/outside"])
def test_metadata_names_nothing_outside_of_its_folder(tmp_path, outside):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    with pytest.warns(UserWarning, match="single process"):
        dcp.save({"a": torch.ones(3)}, checkpoint_id=str(tmp_path / "step-3"))
    at = tmp_path / "step-3" / ".metadata"
    metadata = pickle.loads(at.read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = outside
    at.write_bytes(pickle.dumps(metadata))
    with pytest.raises(lcstore.CorruptionError, match="does not lie in the folder"):
        load(tmp_path, tmp_path / "step-3")


def test_folders_of_orbax(tmp_path):
    orbax = pytest.importorskip("orbax.checkpoint", reason="Orbax is not installed")
    jnp = pytest.importorskip("jax.numpy")
    tree = {
        "params": {"dense": {"kernel": jnp.ones((8, 8), jnp.bfloat16), "bias": jnp.arange(8.0)}},
        "layers": [jnp.zeros((2, 2)), 1.5],
        "step": 3,
        "seen": np.arange(4),
    }
    with orbax.CheckpointManager(tmp_path / "orbax") as manager:
        for step in (10, 20):
            manager.save(step, args=orbax.args.StandardSave(tree))
    report = lcstore.import_files(tmp_path / "orbax", tmp_path / "store", policy="lossless")
    assert [(one.step, one.outcome, one.format) for one in report.files] == [
        (10, "anchor", "orbax"),
        (20, "delta", "orbax"),
    ]
    with lcstore.open(tmp_path / "store", "r") as store:
        assert same(store.restore(20, like=tree), tree)
        back = store.restore(20)
        assert isinstance(back["seen"], np.ndarray)
        assert isinstance(back["params"]["dense"]["bias"], jnp.ndarray)
    kinds = orbax.args.Composite(
        state=orbax.args.StandardSave(tree["params"]), lr=orbax.args.JsonSave({"rate": 1e-3, "at": [1, 2]})
    )
    best = orbax.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"], best_mode="min")
    with orbax.CheckpointManager(tmp_path / "items", options=best) as manager:
        for step, loss in ((1, 3.0), (2, 2.0), (3, 4.0)):
            manager.save(step, args=kinds, metrics={"loss": loss, "told": "so"})
        numbers = orbax.args.JsonSave({"rate": 3})
        manager.save(9, args=orbax.args.Composite(lr=numbers), metrics={"loss": 9.0})
    (tmp_path / "items" / "3" / "other").mkdir()
    array = orbax.Checkpointer(orbax.ArrayCheckpointHandler())
    array.save(tmp_path / "items" / "3" / "array", args=orbax.args.ArraySave(jnp.ones(3)))
    said = tmp_path / "items" / "3" / "_CHECKPOINT_METADATA"
    handlers = json.loads(said.read_bytes())
    handlers["item_handlers"]["array"] = "orbax.checkpoint._src.handlers.array.ArrayCheckpointHandler"
    said.write_text(json.dumps(handlers))
    with pytest.warns(lcstore.UnrecognisedWarning, match="3: left out, .*: array, other"):
        lcstore.import_files(tmp_path / "items", tmp_path / "best")
    with lcstore.open(tmp_path / "best", "r") as store:
        assert store.best_step("loss") == 2
        assert store.info(2).metrics == {"loss": 2.0}
        assert store.restore(2)["lr"] == {"rate": 1e-3, "at": [1, 2]}
        assert sorted(store.restore(2)) == sorted(store.restore(3)) == ["lr", "state"]
        assert store.restore(9) == {"lr": {"rate": 3}}
    (tmp_path / "orbax" / "20" / "default" / "_METADATA").write_text("{")
    with pytest.raises(lcstore.CorruptionError, match="20 is no whole folder of Orbax"):
        lcstore.import_files(tmp_path / "orbax" / "20", tmp_path / "other")


def test_without_its_library_a_format_is_refused_with_what_to_install(tmp_path, monkeypatch):
    (tmp_path / "step-1").mkdir()
    (tmp_path / "step-1" / "step-1.pt").write_bytes(b"")
    for format, named in (("orbax", "orbax-checkpoint"), ("dcp", "torch"), ("torch", "torch")):
        for name in ("torch", "orbax.checkpoint"):
            monkeypatch.setitem(__import__("sys").modules, name, None)
        with pytest.raises(lcstore.InvalidInputError, match=f"pip install {named}"):
            lcstore.import_files(tmp_path / "step-1", tmp_path / "store", format=format)


def test_a_library_that_cannot_be_loaded_is_not_to_be_installed(tmp_path, monkeypatch):
    def fails(name):
        raise ImportError("failed to map segment from shared object")

    monkeypatch.setattr("lcstore.exchange.torchfile.importlib.import_module", fails)
    for step in (1, 2):
        (tmp_path / f"step-{step}.pt").write_bytes(b"")
    wanted = r"takes torch: it cannot be loaded: failed to map segment from shared object$"
    for skip in (False, True):  # it is no file that is broken
        with pytest.raises(lcstore.InvalidInputError, match=wanted):
            lcstore.import_files([*tmp_path.glob("*.pt")], tmp_path / "store", skip_broken=skip)


def test_a_group_of_zarr_that_others_wrote(tmp_path):
    zarr = pytest.importorskip("zarr")
    for version in (2, 3):
        group = zarr.open_group(tmp_path / f"step{version}.zarr", mode="w", zarr_format=version)
        group.create_array("model/weight", data=np.arange(6.0).reshape(2, 3))
        group.create_array("epoch", data=np.array(4))
        state, _ = load(tmp_path, tmp_path / f"step{version}.zarr")
        assert same(state, {"epoch": np.array(4), "model": {"weight": np.arange(6.0).reshape(2, 3)}})
    (tmp_path / "step4.zarr").mkdir()
    (tmp_path / "step4.zarr" / "zarr.json").write_text("{")
    with pytest.raises(lcstore.CorruptionError, match="is no whole group of Zarr"):
        load(tmp_path, tmp_path / "step4.zarr")


def test_a_folder_of_zarr_that_lacks_a_chunk_holds_no_zeros(tmp_path):
    zarr = pytest.importorskip("zarr")
    with lcstore.open(tmp_path / "one") as store:
        store.save(1, {"model": {"weight": np.ones((4, 3), np.float32), "none": np.zeros((0, 3))}})
        lcstore.export(store[1], tmp_path / "step1.zarr")
    assert load(tmp_path, tmp_path / "step1.zarr")[0]["model"]["weight"].all()
    shutil.rmtree(tmp_path / "step1.zarr" / "model" / "weight" / "c")
    with pytest.raises(lcstore.CorruptionError, match=r"step1.zarr lacks chunks of 'model/weight'"):
        lcstore.import_files(tmp_path / "step1.zarr", tmp_path / "two")
    group = zarr.open_group(tmp_path / "step2.zarr", mode="w")
    group.create_array("huge", shape=(1 << 40,), chunks=(1 << 30,), dtype="f4")
    with pytest.raises(lcstore.LimitError, match=r"step2.zarr: \d+ stored bytes claim"):
        lcstore.import_files(tmp_path / "step2.zarr", tmp_path / "two")


def test_a_folder_of_nothing_known(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(lcstore.NotFoundError, match=r"nothing in .*empty is a checkpoint of a known format"):
        lcstore.import_files(tmp_path / "empty", tmp_path / "store")


@pytest.mark.parametrize("name", ["old.keras", "old.weights.h5", "flax_model.msgpack"])
def test_a_file_that_only_its_own_library_reads_says_so(name, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / name).write_bytes(b"some")
    for place in (folder, folder / name):
        with pytest.raises(lcstore.LcstoreError, match=r"loaded by that, .* saved: docs/exchange.md"):
            lcstore.import_files(place, tmp_path / "store")
