"""What an export leaves behind: a whole file, or none."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tracemalloc
from unittest.mock import Mock

import fsspec
import ml_dtypes
import numpy as np
import pytest
from kit.looks import contents
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app
from lcstore.exchange.exporting import FORMATS
from lcstore.exchange.torchfile import write_torch
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.unprotected


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    with lcstore.open(tmp_path / "store", policy="lossless", threads=2) as store:
        weights = {f"layers.{i}.weight": rng.standard_normal((64, 64)).astype(np.float32) for i in range(4)}
        store.save(5, {"model": weights, "epoch": 1})
        yield store


@pytest.fixture
def bucket():
    """What is remote as far as fsspec goes: the memory of this process."""
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/exports", recursive=True) if fs.exists("/exports") else None


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"torch"}))
def test_what_is_there_is_left_unless_it_is_to_be_overwritten(store, tmp_path, format):
    file = tmp_path / "out" / "file"
    lcstore.export(store[5], file, format=format, names="epoch")
    before = contents(tmp_path / "out")
    with pytest.raises(lcstore.ConflictError, match="is there already: name another file, or overwrite"):
        lcstore.export(store[5], file, format=format)
    assert contents(tmp_path / "out") == before
    report = lcstore.export(store[5], file, format=format, overwrite=True)
    assert (report.step, report.tensors, report.values, report.nbytes) == (5, 4, 1, 4 << 14)
    assert contents(tmp_path / "out") != before
    assert os.listdir(tmp_path / "out") == ["file"]


@pytest.mark.parametrize("format", sorted({*FORMATS} - {"torch"}))
@pytest.mark.parametrize("where", ["here", "there"])
def test_one_that_is_interrupted_leaves_nothing(store, tmp_path, bucket, format, where):
    url = str(tmp_path / "out" / "file") if where == "here" else "memory://exports/file"

    def stop(phase, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lcstore.export(store[5], url, format=format, on_progress=stop)
    assert not contents(tmp_path / "out")
    assert not bucket.exists("/exports/file")
    lcstore.export(store[5], url, format=format)
    files = lcstore.import_files(url, "memory://again", step=5, format=format).files
    assert [one.outcome for one in files] == ["anchor"]
    lcstore.remove("memory://again")


def test_only_a_file_or_folder_of_its_kind_is_overwritten(store, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    before = contents(tmp_path)
    for url in (mine, tmp_path / "store"):
        for format in ("zarr", "npz"):
            with pytest.raises(lcstore.ConflictError, match="holds something else, which is not overwritten"):
                lcstore.export(store[5], url, format=format, overwrite=True)
    assert contents(tmp_path) == before


def test_torch_on_a_full_disk_is_told_of_as_that(store):
    """Torch itself tells of a wrong place in its file."""
    torch = pytest.importorskip("torch")

    class Full(io.RawIOBase):
        room = 5000

        def writable(self):
            return True

        def write(self, data):
            self.room -= len(data)
            if self.room < 0:
                raise OSError(28, "No space left on device")
            return len(data)

    with pytest.raises(RuntimeError, match="unexpected pos"):
        torch.save({"x": torch.ones(10_000)}, Full())
    with pytest.raises(OSError, match="No space left"):
        write_torch(Full(), Mock(tree=lambda: {"x": torch.ones(10_000)}))


def test_one_that_fails_leaves_what_was_there(store, tmp_path):
    file = tmp_path / "out.npz"
    lcstore.export(store[5], file, names="epoch")
    before = file.read_bytes()

    def stop(phase, done, total):
        raise OSError(28, "No space left on device")

    with pytest.raises(lcstore.StorageError, match="No space left"):
        lcstore.export(store[5], file, overwrite=True, on_progress=stop)
    assert file.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"store", "out.npz"}


def test_a_process_that_is_killed_leaves_no_file_of_the_name(tmp_path, store):
    program = (
        "import os, sys, lcstore\n"
        "def stop(*_): os._exit(9)\n"
        "store = lcstore.open(sys.argv[1], 'r')\n"
        "lcstore.export(store[5], sys.argv[2], on_progress=stop)\n"
    )
    file = tmp_path / "out" / "file.safetensors"
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "store"), str(file)], check=False)
    assert done.returncode == 9
    assert not file.exists()


def test_a_state_that_diverged_is_exported_with_a_warning(tmp_path):
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(tmp_path / "run") as store:
        store.save(0, {"fc.weight": weight})
        with pytest.warns(lcstore.NotFiniteWarning, match="step 1"):
            store.save(1, {"fc.weight": weight + np.float32(np.nan)})
        lcstore.export(store[0], tmp_path / "good.npz")
        with pytest.warns(lcstore.NotFiniteWarning, match="1 tensor of weights is not finite") as told:
            lcstore.export(store[1], tmp_path / "bad.npz")
    assert told[0].filename == __file__
    assert np.isnan(np.load(tmp_path / "bad.npz")["fc.weight"]).all()


def test_progress_counts_tensors(store, tmp_path):
    said = []
    lcstore.export(store[5], tmp_path / "out.safetensors", on_progress=lambda *about: said.append(about))
    assert said == [("export", done, 4) for done in range(1, 5)]


def test_what_cannot_be_exported_is_said(store, tmp_path):
    with pytest.raises(lcstore.InvalidInputError, match=r"it is one of safetensors.*endings are .*\.pt"):
        lcstore.export(store[5], tmp_path / "out")
    with pytest.raises(lcstore.InvalidInputError, match=r"\.npz is .*lcstore://5/tensors/NAME\.npy::URL"):
        lcstore.export(store[5], tmp_path / "weight.npy", names="model/weight")
    with pytest.raises(lcstore.InvalidInputError, match="format is 'gguf': it is one of"):
        lcstore.export(store[5], tmp_path / "out", format="gguf")
    with pytest.raises(lcstore.NotFoundError, match="nearest"):
        lcstore.export(store[5], tmp_path / "out.npz", names="modle/**")
    store.save(6, {"model": {"z": np.ones(2, np.complex128)}, "__metadata__": np.ones(2)})
    with pytest.raises(lcstore.InvalidInputError, match="no dtype complex128; another format has"):
        lcstore.export(store[6], tmp_path / "out.safetensors", names="model")
    with pytest.raises(lcstore.InvalidInputError, match="no tensor of this name"):
        lcstore.export(store[6], tmp_path / "out.safetensors", names="__metadata__")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_memory_stays_far_below_the_state(tmp_path, monkeypatch):
    monkeypatch.setattr("lcstore.exchange.outgoing._AHEAD", 6 << 20)
    monkeypatch.setattr("lcstore.layout.specs.MAX_CHUNK_BYTES", 4 << 20)  # of large states they are 64 MiB
    rng = np.random.default_rng(0)
    with lcstore.open(tmp_path / "store", policy="lossless", threads=1) as store:
        layers = {f"layers.{i}": rng.standard_normal((256, 512)).astype(np.float32) for i in range(96)}
        store.save(0, {"other": layers})
        del layers
    with lcstore.open(tmp_path / "store", "r", threads=1) as store:
        tracemalloc.start()
        report = lcstore.export(store[0], tmp_path / "out.safetensors")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert report.nbytes == 48 << 20
    assert peak < 24 << 20, peak


def test_whoever_has_no_lcstore_finds_plain_values_by_name(tmp_path):
    backend = MemoryBackend.fresh()
    with lcstore.open(backend) as store:
        store.save(7, {"u": np.zeros((4, 4)), "t": 50.5, "run": {"name": "a", "seeds": [1, 2]}})
        lcstore.export(store.at(7), tmp_path / "one.npz")
    with np.load(tmp_path / "one.npz") as file:
        values = json.loads(str(file["__lcstore__"]))["values"]
    assert values == {"t": 50.5, "run/name": "a", "run/seeds/#0": 1, "run/seeds/#1": 2}


@pytest.mark.parametrize("ending", ["npz", "zarr", "safetensors"])
def test_which_tensors_are_there_as_their_bits_is_told(tmp_path, ending):
    """Norms of integers that were weights of bfloat16 look plausible."""
    weights = np.linspace(-2, 2, 64).reshape(8, 8).astype(ml_dtypes.bfloat16)
    store = lcstore.open(tmp_path / "store")
    store.save(0, {"model": {"weight": weights, "bias": np.ones(3, np.float32)}})
    report = lcstore.export(store[0], tmp_path / f"out.{ending}")
    assert report.as_bits == (["bfloat16"] if ending != "safetensors" else [])
    told = CliRunner().invoke(app, ["export", f"{store.url}@0", str(tmp_path / f"again.{ending}")])
    assert ("Tensors of bfloat16 are there as their bits" in told.stdout) == bool(report.as_bits)
    if ending == "npz":  # as the page says
        bits = np.load(tmp_path / "out.npz")["model.weight"]
        values = (bits.astype("uint32") << 16).view("float32")
        np.testing.assert_array_equal(values, weights.astype(np.float32))
        np.testing.assert_array_equal(bits.view(ml_dtypes.bfloat16), weights)


@pytest.mark.parametrize("part", ["a\\b", "zarr.json", "..", "a\0"])
def test_what_zarr_would_write_under_another_name_is_refused(store, tmp_path, part):
    """A backslash became a slash, and the import told of a file that was changed."""
    store.save(6, {"model": {part: {"weight": np.ones(3)}}})
    with pytest.raises(lcstore.InvalidInputError, match="cannot be exported: Zarr has no such name"):
        lcstore.export(store[6], tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()
