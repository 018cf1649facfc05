"""`lcstore bench`: what is said of a user's own checkpoints is so."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import lcstore
from lcstore.cli.app import app
from lcstore.exchange.benching import bench
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
