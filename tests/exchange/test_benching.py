"""`lcstore bench`: what is said of a user's own checkpoints is so."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict, deque
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app
from lcstore.exchange.benching import bench
from lcstore.exchange.opaque import read_data
from lcstore.exchange.peers import peers
from lcstore.format.policyfile import write_policy
from lcstore.track.policy import PRESETS, settled

pytestmark = pytest.mark.unprotected


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((256, 256)).astype(np.float32)
    for step in range(4):
        weight = weight + np.float32(1e-3) * rng.standard_normal(weight.shape).astype(np.float32)
        np.savez(tmp_path / f"step{step}.npz", **{"fc.weight": weight, "fc.bias": np.zeros(256, np.float32)})
    return tmp_path


def by_name(report):
    return {method.name: method for method in report.methods}


def test_deltas_of_several_files(files):
    report = bench(files)
    found = by_name(report)
    assert [*found][:4] == ["lossless", "high", "balanced", "small"]
    assert (report.bytes_first, report.bytes_others) == (257 << 10, 3 * 257 << 10)
    assert found["lossless"].error == 0 == found["zstd"].error
    sizes = [found[name].bytes_others for name in ("lossless", "high", "balanced", "small")]
    errors = [found[name].error for name in ("lossless", "high", "balanced", "small")]
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert sizes[2] < report.bytes_others / 10
    usual = settled(PRESETS["balanced"])  # as of a long run
    lcstore.import_files(files, files / "store", policy=usual, durability=lcstore.Durability())
    with lcstore.open(files / "store", "r") as store:
        stored = store.restore(3)["fc.weight"]
        total = store.stats().bytes_stored["total"]
    balanced = found["balanced"]
    told = balanced.bytes_first + balanced.bytes_others + balanced.bytes_protection
    assert told == pytest.approx(total, rel=0.03)  # layouts, and the record of the store
    assert told > 1.3 * (balanced.bytes_first + balanced.bytes_others)
    assert not found["zstd"].bytes_protection
    given = np.load(files / "step3.npz")["fc.weight"]
    assert found["balanced"].error == pytest.approx(
        np.linalg.norm(stored - given) / np.linalg.norm(given), rel=1e-4
    )


def test_one_file_is_an_anchor(files):
    report = bench(files / "step3.npz", policies=["balanced"])
    found = by_name(report)
    assert (report.bytes_others, found["balanced"].bytes_others) == (0, 0)
    assert found["balanced"].intervals is None
    cast = found["cast to bfloat16"]
    assert cast.bytes_first == report.bytes_first / 2
    assert 1e-4 < cast.error < 1e-2


def test_a_policy_file_is_compared_by_its_name_on_the_disk(files, tmp_path):
    write_policy(replace(PRESETS["small"], name="mine"), tmp_path / "mine.json")
    result = CliRunner().invoke(
        app, ["bench", *map(str, sorted(files.glob("step*"))), "--policy", f"{tmp_path}/mine.json",
              "--policy", "small", "--json"],
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    mine, small = json.loads(result.stdout)["methods"][:2]
    assert mine["name"] == f"{tmp_path}/mine.json"
    assert (mine["bytes_first"], mine["bytes_others"]) == (small["bytes_first"], small["bytes_others"])


def test_others_code_what_they_can(files):
    rng = np.random.default_rng(0)
    for coder in peers().values():
        for dtype in ("float32", "float16", "float64", "uint8", "bool", "complex64"):
            piece = (rng.standard_normal(1 << 14) * 100).astype(dtype)
            assert 0 < coder(piece) <= 1.1 * piece.nbytes + 100


def test_large_files_are_estimated_from_samples(files, monkeypatch):
    whole = by_name(bench(files / "step3.npz", policies=[]))["zstd"].bytes_first
    monkeypatch.setattr("lcstore.exchange.benching._PIECE_BYTES", 1 << 12)
    monkeypatch.setattr("lcstore.exchange.benching._PIECES", 8)
    sampled = by_name(bench(files / "step3.npz", policies=[]))["zstd"].bytes_first
    assert sampled == pytest.approx(whole, rel=0.1)


def test_files_without_tensors(tmp_path):
    np.savez(tmp_path / "step1.npz", empty=np.zeros(0, np.float32))
    report = bench(tmp_path, policies=["balanced"])
    assert report.bytes_first == 0
    assert by_name(report)["zstd"].bytes_first == 0


class RunningMean:
    """As loops for reinforcement learning keep beside their models."""

    def __init__(self):
        self.mean = np.zeros(3)


def touch(path):
    os.close(os.open(path, os.O_CREAT))


class Runs:
    """What makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return touch, (str(self.path),)


class Blocked(Runs):
    """What runs a command when it is unpickled, of a module that torch never takes."""

    def __reduce__(self):
        return os.system, (f"touch {self.path}",)


def with_objects(torch, step, **more):
    return {
        "model": {"fc.weight": torch.full((64, 64), 1.0 + step / 1000)},
        "obs_rms": RunningMean(),
        "replay": deque([RunningMean(), 2], maxlen=3),
        "nested": [{"kind": defaultdict(int, a=1), "device": torch.device("cpu")}, ({1, 2}, 3)],
        "counts": Counter("aab"),
        "cls": RunningMean,
        **more,
    }


@pytest.mark.parametrize("zipped", [True, False])
def test_objects_beside_tensors_are_left_out_and_named(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    for step in (1, 2):
        runs = Runs(tmp_path / "ran")
        torch.save(with_objects(torch, step, hook=runs), tmp_path / f"step{step}.pt",
                   _use_new_zipfile_serialization=zipped)  # fmt: skip
    report = bench(tmp_path, policies=["lossless"])
    assert (report.bytes_first, report.bytes_others) == (64 * 64 * 4, 64 * 64 * 4)
    assert report.left_out == (
        "obs_rms", "replay", "nested/#0/kind", "nested/#0/device", "nested/#1/#0", "cls", "hook"
    )  # fmt: skip
    assert not (tmp_path / "ran").exists()
    assert "RunningMean" not in str(torch.serialization.get_safe_globals())
    result = CliRunner().invoke(app, ["bench", str(tmp_path), "--policy", "lossless"])
    assert "7 objects are left out, as they are no data: 'obs_rms', 'replay'," in result.stdout
    with pytest.raises(lcstore.InvalidInputError, match="RunningMean, which only running code"):
        lcstore.import_files(tmp_path, tmp_path / "store")


@pytest.mark.parametrize(("inside", "named"), [(True, r" \('model'\)"), (False, "")])
def test_a_file_of_objects_alone_is_refused_with_what_to_do(tmp_path, inside, named):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    torch.save({"model": model, "step": 3} if inside else model, tmp_path / "step1.pt")
    said = rf"step1.pt holds no tensors but in objects{named}, which.*torch.save\(model.state_dict\(\)"
    with pytest.raises(lcstore.InvalidInputError, match=said):
        bench(tmp_path, policies=[])


def test_what_torch_never_takes_is_refused_as_it_was(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(with_objects(torch, 1, hook=Blocked(tmp_path / "ran")), tmp_path / "step1.pt")
    with pytest.raises(lcstore.InvalidInputError, match="which only running code"):
        bench(tmp_path, policies=[])
    assert not (tmp_path / "ran").exists()


def test_containers_in_many_others_are_gone_over_once(tmp_path):
    torch = pytest.importorskip("torch")
    value = [RunningMean(), torch.ones(3)]
    for _ in range(40):
        value = [value, (value,)]
    torch.save(value, tmp_path / "step1.pt")
    left = read_data(str(tmp_path / "step1.pt"), "step1.pt").left_out
    assert left == ("/".join(["#0"] * 41),)
