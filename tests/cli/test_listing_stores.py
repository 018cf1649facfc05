"""`lcstore ls` of a place that holds stores, and of terminals that are narrow."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from typer.testing import CliRunner, Result

import lcstore
from lcstore.cli.app import app
from lcstore.storage import finding
from lcstore.storage.finding import stores_below
from lcstore.storage.memory import MemoryBackend
from lcstore.terminal import printing

NAMES = ("gpt", "sweep/lr1", "sweep/deep/lr2")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def document(*arguments: str, status: int = 0) -> dict[str, Any]:
    result = call(*arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def save(url: str, count: int = 2) -> None:
    with lcstore.open(url, threads=1) as store:
        for step in range(0, 10 * count, 10):
            rng = np.random.default_rng(step)
            weight = rng.standard_normal((64, 64)).astype(np.float32)
            store.save(step, {"model": {"w.weight": weight}}, metrics={"loss": 10 - count - step / 100})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    for number, name in enumerate(NAMES):
        save(str(folder / name), number + 1)
    (folder / "notes").mkdir()
    (folder / "gpt" / "inside").mkdir()
    (folder / "gpt" / "inside" / "lcstore.json").write_text("{}")
    (folder / "a" / "b" / "c" / "d" / "e").mkdir(parents=True)
    (folder / "a" / "b" / "c" / "d" / "e" / "lcstore.json").write_text("too deep")
    (folder / "around").symlink_to(folder)
    return str(folder)


def test_the_stores_below_a_folder_are_listed(runs):
    told = document("ls", runs)["stores"]
    found = {one["url"].removeprefix(f"{runs}/"): (one["steps"], one["latest_step"]) for one in told}
    assert found == {"gpt": (1, 0), "sweep/lr1": (2, 10), "sweep/deep/lr2": (3, 20)}
    assert all(one["bytes_weights"] > 0 for one in told)
    assert [one["metrics"] for one in told if one["url"].endswith("/gpt")] == [{"loss": 9}]
    shown = call("ls", f"{runs}/").stdout
    assert "3 stores below" in shown
    for name, loss in (("gpt", "loss 9"), ("sweep/lr1", "loss 7.9"), ("sweep/deep/lr2", "loss 6.8")):
        assert re.search(rf"{runs}/{name} +1 +\d+ +\d+ +{loss}$", shown, re.MULTILINE)
    assert f"{runs}/sweep/lr1" in shown
    assert "1 store below" in call("ls", f"{runs}/sweep/deep").stdout


def test_stores_are_listed_fast_by_names_alone(runs):
    assert "loss" not in call("ls", runs, "--fast").stdout


def test_bytes_of_what_is_kept_bit_for_bit_are_told_by_names_too(tmp_path):
    with lcstore.open(tmp_path / "run", policy="lossless", threads=1) as store:
        store.save(0, {"model": {"w.weight": np.random.default_rng(0).random((64, 64), np.float32)}})
    with lcstore.open(tmp_path / "run", "r") as store:
        stored = store.info().bytes_stored
    (told,) = (one["bytes_weights"] for one in document("ls", str(tmp_path))["stores"])
    assert 0 < told <= stored
    assert " 0 B" not in call("ls", str(tmp_path)).stdout
    assert " 0 B" not in call("ls", "--fast", str(tmp_path / "run")).stdout


def test_a_store_is_listed_by_its_states(runs):
    assert [state["step"] for state in document("ls", f"{runs}/sweep/lr1")["states"]] == [0, 10]


def test_a_store_that_cannot_be_listed_does_not_stop_the_others(tmp_path):
    save(str(tmp_path / "good"))
    save(str(tmp_path / "bad"))
    (tmp_path / "bad" / "lcstore.json").write_text("{")
    (tmp_path / "bad" / "copies" / "lcstore.json").unlink()
    result = call("ls", str(tmp_path))
    assert result.exit_code == 1
    assert "cannot be listed" in result.stdout
    assert "stores that could not be listed: 1" in result.stderr
    assert [one["steps"] for one in document("ls", str(tmp_path), status=1)["stores"]] == [0, 2]


def test_a_damaged_store_below_a_folder_is_told_with_the_command_that_says_more(tmp_path):
    for name in ("good", "bad one"):
        save(str(tmp_path / name))
    assert "Next:" not in call("verify", str(tmp_path)).stdout
    for path in (tmp_path / "bad one" / "data").rglob("*"):
        if path.is_file():
            path.unlink()
    result = call("verify", str(tmp_path))
    assert result.exit_code == 1
    (command,) = re.findall(r"Next: lcstore (.+)$", result.stdout, re.MULTILINE)
    assert call(*shlex.split(command)).stdout.count("Damaged:") == 1


def test_a_store_that_is_known_by_its_second_copy_alone_is_found(tmp_path):
    save(str(tmp_path / "run"))
    (tmp_path / "run" / "lcstore.json").unlink()
    assert stores_below(str(tmp_path)) == [str(tmp_path / "run")]


def test_in_memory():
    for name in ("below/x", "below/y/z", "belowx"):
        save(f"memory://{name}")
    assert stores_below("memory://below/") == ["memory://below/x", "memory://below/y/z"]
    assert stores_below("memory://below", levels=1) == ["memory://below/x"]
    assert stores_below("memory://below/x") == ["memory://below/x"]
    assert "2 stores below" in call("ls", "memory://below").stdout
    assert finding.near("memory://belowy") == ["memory://below", "memory://belowx"]
    assert finding.near("memory://below/xx") == ["memory://below/x"]
    for name in ("below/x", "below/y/z", "belowx"):
        backend = MemoryBackend(name)
        backend.delete_many(backend.list(""))


def test_on_any_filesystem(monkeypatch):
    fs = MemoryFileSystem()
    for name in (
        "a/lcstore.json",
        "b/c/lcstore.json",
        "b/c/x/lcstore.json",
        "d/other.json",
        "e/1/2/3/4/lcstore.json",
    ):
        fs.pipe_file(f"/looked/{name}", b"")
    monkeypatch.setattr(finding.fsspec.core, "url_to_fs", lambda url, **options: (fs, "/looked"))
    found = stores_below("s3://looked/", {"anon": True})
    assert found == ["s3://looked/a", "s3://looked/b/c"]
    assert stores_below("s3://looked", most=1) == ["s3://looked/a"]
    fs.rm("/looked", recursive=True)
    assert stores_below("s3://looked") == []


@pytest.mark.parametrize("command", ["ls", "verify", "repair", "stats", "rm"])
def test_a_mistyped_name_is_told_its_nearest_neighbour(command, tmp_path):
    for name in ("runs/gpt", "runs/bert", "other"):
        save(str(tmp_path / name), 1)
    for typed, meant in (("run", "runs"), ("run/", "runs"), ("runs/gtp", "runs/gpt")):
        said = call(command, f"{tmp_path}/{typed}").stderr
        assert f"beside it is {tmp_path}/{meant}. Next: lcstore ls {tmp_path}/{meant}" in said
    assert "check the URL" in call(command, f"{tmp_path}/nothing-like-it").stderr
    (tmp_path / "othe").mkdir()
    assert "check the URL" in call(command, f"{tmp_path}/othe").stderr


def test_neighbours_are_told_from_one_listing_that_may_fail(monkeypatch):
    fs = MemoryFileSystem()
    fs.pipe_file("/bucket/near/runs/gpt/lcstore.json", b"")
    opened = []
    monkeypatch.setattr(finding.fsspec.core, "url_to_fs", lambda url, **options: (fs, url[5:]))
    monkeypatch.setattr(
        fs, "ls", lambda folder, **how: opened.append(folder) or MemoryFileSystem.ls(fs, folder, **how)
    )
    assert finding.near("s3://bucket/near/run") == ["s3://bucket/near/runs"]
    assert opened == ["bucket/near"]
    assert finding.near("s3://bucket/neat/runs") == []
    assert finding.near("s3://bucke") == []
    monkeypatch.setattr(fs, "ls", lambda folder, **how: 1 / 0)
    assert finding.near("s3://bucket/near/run") == []
    assert finding.near("nosuchprotocol://near/run") == []
    assert finding.near("zip::s3://bucket/near/run") == []
    fs.rm("/bucket/near", recursive=True)


def test_a_store_below_the_top_of_a_disk_has_its_whole_path(monkeypatch):
    folders = {"/": (set(), ["runs"]), "/runs": ({"lcstore.json"}, [])}
    monkeypatch.setattr(finding, "_local", folders.__getitem__)
    assert stores_below("/") == stores_below("/runs") == ["/runs"]


def test_what_cannot_be_looked_into():
    assert stores_below("simplecache::s3://bucket/runs") == []
    with pytest.raises(lcstore.InvalidInputError):
        stores_below("nosuchprotocol://x")
    assert "nosuchprotocol" not in fsspec.available_protocols()


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store whose states have long tags and metrics."""
    url = str(tmp_path_factory.mktemp("long") / "run")
    with lcstore.open(url, threads=1) as store:
        for step in range(0, 500_000, 100_000):
            metrics = {"loss": 2.03123 - step / 1e6, "validation_accuracy": 0.9312}
            tags = ["eval", "release-candidate"] if step else ()
            store.save(step, {"w": np.full((64, 64), step, np.float32)}, metrics=metrics, tags=tags)
        store.pin(100_000)
    return url


@pytest.mark.parametrize("width", range(40, 200, 8))
@pytest.mark.parametrize("options", [[], ["--retired"], ["--fast"]])
def test_one_line_a_state_at_any_width(long, width, options, monkeypatch):
    monkeypatch.setattr(printing, "width_of", lambda _: width)
    table, _, told = call("ls", long, *options).stdout.partition("Not shown")
    lines = table.splitlines()
    assert len(lines) == 6
    if width >= 48 or not options:
        assert max(map(len, lines)) <= width
    assert [line.split()[0] for line in lines[1:]] == [str(step) for step in range(0, 500_000, 100_000)]
    if width > 160:
        assert not told


def test_the_least_important_goes_first(long, monkeypatch):
    monkeypatch.setattr(printing, "width_of", lambda _: 80)
    shown = call("ls", long).stdout
    assert "created" in shown.partition("Not shown: ")[2]
    for word in ("step", "stored", "metrics", "loss 2.031, ...", "pinned"):
        assert word in shown
    monkeypatch.setattr(printing, "width_of", lambda _: 160)
    assert "release-candidate" in call("ls", long).stdout
