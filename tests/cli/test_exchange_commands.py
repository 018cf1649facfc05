"""`lcstore export`, `lcstore import` and `lcstore bench`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import lcstore
from lcstore.cli.app import app

pytestmark = pytest.mark.unprotected


@pytest.fixture
def url(tmp_path: Path) -> str:
    rng = np.random.default_rng(0)
    with lcstore.open(tmp_path / "a run", threads=1) as store:
        for step in (0, 10, 20):
            weight = rng.standard_normal((64, 64)).astype(np.float32)
            tied = {"embed.weight": weight, "head.weight": weight}
            store.save(step, {"model": tied, "epoch": step})
    return str(tmp_path / "a run")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_export_says_what_it_wrote(url, tmp_path):
    file = tmp_path / "out.npz"
    result = call("export", f"{url}@10", file, "model/**")
    assert result.exit_code == 0, result.output
    assert f"Exported: step 10 to {file}, as npz: 1 tensor, 16.0 KiB." in result.stdout
    assert "Tied tensors are written once: head.weight is embed.weight" in result.stdout
    assert np.load(file)["embed.weight"].shape == (64, 64)
    assert "step 20" in call("export", url, tmp_path / "latest.npz").stdout
    said = json.loads(call("export", url, tmp_path / "other", "--format", "npz", "--json").stdout)
    assert (said["step"], said["format"], said["values"]) == (20, "npz", 1)


def test_an_import_leaves_out_objects_if_it_is_told_to_and_names_them(tmp_path):
    torch = pytest.importorskip("torch")
    for step in (1, 2):
        torch.save({"w": torch.ones(4), "out": Path("x")}, tmp_path / f"step{step}.pt")
    stopped = call("import", tmp_path, tmp_path / "store")
    assert stopped.exit_code == 1
    assert "--skip-objects" in stopped.stderr
    told = call("import", tmp_path, tmp_path / "store", "--skip-objects")
    assert told.exit_code == 0, told.output
    assert "1 object is left out, as it is no data: 'out'. States have None in such places." in told.stdout
    document = json.loads(call("import", tmp_path, tmp_path / "other", "--skip-objects", "--json").stdout)
    assert [one["left_out"] for one in document["files"]] == [["out"], ["out"]]


def test_an_import_leaves_out_what_is_broken_if_it_is_told_to(tmp_path):
    for step in (1, 3):
        np.savez(tmp_path / f"step{step}.npz", w=np.full((8, 8), step))
    (tmp_path / "step2.npz").write_bytes(b"no archive")
    stopped = call("import", tmp_path, tmp_path / "store")
    assert stopped.exit_code == 1
    assert "--skip-broken" in stopped.stderr
    told = call("import", tmp_path, tmp_path / "store", "--skip-broken")
    assert told.exit_code == 1
    assert "Broken: " in told.stdout
    assert "step2.npz" in told.stdout
    assert "Imported: 1 file" in told.stdout
    assert "1 is there already" in told.stdout or "1 are there already" in told.stdout
    document = json.loads(call("import", tmp_path, tmp_path / "store", "--skip-broken", "--json").stdout)
    assert (document["ok"], [one["outcome"] for one in document["files"]]) == (
        False,
        ["there", "late", "there"],
    )


def test_export_refuses_what_is_there(url, tmp_path):
    file = tmp_path / "out.npz"
    assert call("export", url, file, "epoch").exit_code == 0
    before = file.read_bytes()
    result = call("export", url, file)
    assert result.exit_code == 1
    assert "is there already" in result.stderr
    assert file.read_bytes() == before
    assert call("export", url, file, "--overwrite").exit_code == 0
    assert file.read_bytes() != before


def test_export_refuses_what_it_cannot(url, tmp_path):
    for arguments, said in (
        ((url, tmp_path / "out.gguf"), "tells no format: it is one of"),
        ((f"{url}@7", tmp_path / "out.npz"), "7"),
        ((url, tmp_path / "out.npz", "modle"), "nearest"),
        ((tmp_path / "none", tmp_path / "out.npz"), "there is no store here"),
        ((url, "nothing://out.npz"), "cannot be opened"),
    ):
        result = call("export", *arguments)
        assert result.exit_code == 1, arguments
        assert said in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a run"]


def test_import_shows_first_and_adds_once(url, tmp_path):
    for step in (0, 10, 20):
        call("export", f"{url}@{step}", tmp_path / "files" / f"step{step}.npz")
    target = str(tmp_path / "b run")
    shown = call("import", tmp_path / "files", target, "--dry-run")
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("to import") == 3
    assert "Nothing was changed. Without --dry-run: 3 files" in shown.stdout
    assert not Path(target).exists()
    done = call("import", tmp_path / "files", target, "--policy", "lossless")
    assert "Imported: 3 files" in done.stdout
    assert "delta" in done.stdout
    again = call("import", tmp_path / "files", target)
    assert "Nothing to import: 3 files are there already" in again.stdout
    said = json.loads(call("import", tmp_path / "files", target, "--json").stdout)
    assert [(one["step"], one["outcome"]) for one in said["files"]] == [(i, "there") for i in (0, 10, 20)]
    assert call("ls", target).exit_code == 0
    with lcstore.open(url, "r") as one, lcstore.open(target, "r") as two:
        for step in (0, 10, 20):
            a, b = one.restore(step)["model"], two.restore(step)["model"]
            assert a["embed.weight"].tobytes() == b["embed.weight"].tobytes()


def test_import_takes_several_files_and_says_what_is_wrong(url, tmp_path):
    files = [tmp_path / "a-1-of-9.npz", tmp_path / "a-2-of-9.npz"]
    for step, file in enumerate(files):
        call("export", f"{url}@{10 * step}", file)
    refused = call("import", *files, tmp_path / "new")
    assert refused.exit_code == 1
    assert "several numbers (1, 9), and nothing tells which" in refused.stderr
    done = call("import", *files, tmp_path / "new", "--steps-from", "a-([0-9]+)", "--under", "all")
    assert done.exit_code == 0, done.output
    with lcstore.open(tmp_path / "new", "r") as store:
        assert store.restore(2)["all"]["epoch"] == 10
    (tmp_path / "step3.pt").write_text("text")
    broken = call("import", tmp_path / "step3.pt", tmp_path / "new", "--json")
    assert broken.exit_code == 1
    assert "step3.pt" in json.loads(broken.stdout)["error"]["message"]
    assert "lcstore verify" not in broken.stderr  # that is not where the damage is


def test_bench_makes_one_table(url, tmp_path):
    for step in (0, 10):
        call("export", f"{url}@{step}", tmp_path / "files" / f"step{step}.npz")
    result = call("bench", tmp_path / "files", "--policy", "balanced")
    assert result.exit_code == 0, result.output
    assert "2 files, 32.0 KiB of tensors" in result.stdout
    assert [line.split()[0] for line in result.stdout.splitlines()[1:3]] == ["method", "balanced"]
    assert "deltas" in result.stdout
    assert re.search(r"A store of these takes [\d.]+ KiB under balanced: with parity", result.stdout)
    alone = call("bench", tmp_path / "files" / "step0.npz", "--policy", "balanced").stdout
    assert "One file shows the anchor alone" in alone
    said = json.loads(call("bench", tmp_path / "files", "--policy", "balanced", "--json").stdout)
    assert said["methods"][0]["name"] == "balanced"
    assert "there is no file" in call("bench", tmp_path / "none.npz").stderr


def test_other_words_lead_here():
    assert "lcstore import FILES... STORE" in call("ingest").output
    assert "lcstore export URL@STEP FILE" in call("convert").output


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("name", ["out.npz", "out.safetensors"])
def test_an_export_that_is_told_to_end_leaves_nothing_half_written(tmp_path, number, name):
    rng = np.random.default_rng(0)
    with lcstore.open(tmp_path / "run", durability="none") as store:
        tensors = {f"{at}.weight": rng.standard_normal((512, 512)).astype(np.float32) for at in range(120)}
        store.save(0, {"model": tensors})
    (tmp_path / "out").mkdir()
    code = "from lcstore.cli import main; main()"
    arguments = [sys.executable, "-c", code, "export", tmp_path / "run", tmp_path / "out" / name]
    with subprocess.Popen([*map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not any((tmp_path / "out").iterdir()):
            time.sleep(0.001)
        process.send_signal(number)
        process.communicate(timeout=60)
    if process.returncode:  # else it had come to its end
        assert process.returncode == 128 + number
        assert not [one for one in (tmp_path / "out").iterdir() if one.name[0] == "."]


def test_an_import_stores_no_parity_where_none_is_asked_for(tmp_path):
    (tmp_path / "files").mkdir()
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    for step in (10, 20):
        np.savez(tmp_path / "files" / f"checkpoint-{step}.npz", w=weights + step)
    for durability, parity in (("all", True), ("none", False)):
        url, how = tmp_path / durability, ("--policy", "lossless", "--durability", durability)
        assert call("import", tmp_path / "files", url, *how).exit_code == 0
        with lcstore.open(url, "r") as store:
            assert (store.stats().protection_bytes > 0) is parity
            assert store.steps() == [10, 20]
    wrong = call("import", tmp_path / "files", tmp_path / "new", "--durability", "some")
    assert wrong.exit_code == 1
    assert "'none'" in wrong.output
