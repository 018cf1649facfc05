"""`lcstore ls` of a place that holds stores, and of terminals that are narrow."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from kit.commands import call, document

import lcstore
from lcstore import StorageError
from lcstore.check import verify
from lcstore.index.resolve import near
from lcstore.records.kinds import FOLDERS
from lcstore.storage import finding
from lcstore.storage.finding import stores_below
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.terminal import printing
from lcstore.units import size

NAMES = ("gpt", "sweep/lr1", "sweep/deep/lr2")


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
    (folder / "gpt" / "data" / "inside").mkdir()
    (folder / "gpt" / "data" / "inside" / "lcstore.json").write_text("{}")
    (folder / "a/b/c/d/e/f/g/h/i").mkdir(parents=True)
    (folder / "a/b/c/d/e/f/g/h/i/lcstore.json").write_text("too deep")
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
        assert re.search(rf"{runs}/{name} +1 +\d+ +\d+ +20[-0-9]+ [0-9:]+ +{loss}$", shown, re.MULTILINE)
    assert f"{runs}/sweep/lr1" in shown
    assert "1 store below" in call("ls", f"{runs}/sweep/deep").stdout


def test_when_each_store_was_saved_last_is_told(tmp_path, monkeypatch):
    save(str(tmp_path / "old"))
    (tmp_path / "new").mkdir()
    shutil.copy(tmp_path / "old/lcstore.json", tmp_path / "new")
    told = {one["url"].rpartition("/")[2]: one["latest_created"] for one in _stores(tmp_path)}
    (latest,) = (one["created"] for one in document("ls", f"{tmp_path}/old")["states"] if one["latest"])
    assert told == {"old": latest, "new": None}
    assert [one["latest_created"] for one in _stores(tmp_path, "--best", "loss")] == [latest, None]
    assert [one["latest_created"] for one in _stores(tmp_path, "--fast")] == [None, None]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(printing, "width_of", lambda _: 80)
    shown = call("ls", ".").stdout
    assert "saved (UTC)" in shown
    assert latest[:16].replace("T", " ") in shown


def _stores(place: Path, *given: str) -> list[dict]:
    return document("ls", str(place), *given)["stores"]


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


def test_a_store_that_is_known_by_its_states_alone_is_on_top_of_the_table(tmp_path):
    for name in ("good", "lost"):
        with lcstore.open(tmp_path / name, threads=1, durability="none") as store:
            store.save(0, {"w": np.ones(4, np.float32)})
    (tmp_path / "lost" / "lcstore.json").unlink()
    (tmp_path / "copies").mkdir()
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "gpu17.json").write_text("of somebody else")
    for command in (("ls",), ("verify",), ("maintain", "--keep", "latest:1")):
        result = call(*command, str(tmp_path))
        assert result.exit_code == 1
        assert f"{tmp_path}/lost" in result.stdout
        if command != ("ls",):
            assert result.stdout.index(f"{tmp_path}/lost") < result.stdout.index(f"{tmp_path}/good")
    assert stores_below(str(tmp_path)) == [f"{tmp_path}/good", f"{tmp_path}/lost"]
    told = call("ls", f"{tmp_path}/lost").stderr
    assert "so does a repair" in told
    assert "Below it" not in call("ls", str(tmp_path)).stderr
    assert call("repair", f"{tmp_path}/lost", "--apply").exit_code == 0
    assert call("ls", str(tmp_path)).exit_code == 0


def test_a_store_in_memory_that_is_known_by_its_states_alone_is_found():
    save("memory://headless/run", 1)
    backend = MemoryBackend("headless/run")
    backend.delete_many(["lcstore.json", "copies/lcstore.json"])
    assert stores_below("memory://headless") == ["memory://headless/run"]
    backend.delete_many(backend.list(""))


def test_a_folder_that_cannot_be_looked_into_is_named(tmp_path, monkeypatch):
    for name in ("good", "shut/inside"):
        save(str(tmp_path / name), 1)
    shut = str(tmp_path / "shut")

    def refusing(function):
        def called(path, *arguments, **options):
            if str(path).startswith(shut):
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *arguments, **options)

        return called

    for name in ("scandir", "open"):
        monkeypatch.setattr(finding.os, name, refusing(getattr(os, name)))
    for command in (("ls",), ("verify",), ("maintain", "--keep", "latest:1")):
        result = call(*command, str(tmp_path))
        assert result.exit_code == 1
        assert re.search(rf"^{shut} .*(Permission denied|cannot be listed)", result.stdout, re.MULTILINE)
        assert f"{tmp_path}/good" in result.stdout
    assert stores_below(str(tmp_path)) == [f"{tmp_path}/good"]
    (told,) = [one for one in lcstore.verify_below(tmp_path) if not one.ok]
    assert told.url == shut
    assert "Permission denied" in str(told.problem)


def test_a_store_that_has_lost_all_states_is_not_among_the_good_ones_without_a_word(tmp_path):
    for name in ("good", "lost"):
        save(str(tmp_path / name), 1)
    assert "no states" not in call("verify", str(tmp_path)).stdout
    for path in (tmp_path / "lost" / "data").rglob("?.*"):
        path.unlink()
    call("repair", f"{tmp_path}/lost", "--apply")
    result = call("verify", str(tmp_path))
    assert result.exit_code == 1
    assert "1 good, 1 not.\n1 has no states.\nNext: lcstore verify" in result.stdout


def test_folders_that_file_systems_keep_for_themselves_are_no_concern(tmp_path):
    save(str(tmp_path / "lost+found" / "run"), 1)
    save(str(tmp_path / ".trash" / "run"), 1)
    assert stores_below(str(tmp_path), sealed=True) == []


def test_a_prefix_of_a_bucket_that_may_not_be_listed_is_named(monkeypatch):
    fs = MemoryFileSystem()
    for name in ("a/lcstore.json", "b/secret/lcstore.json"):
        fs.pipe_file(f"/shut/{name}", b"")

    def ls(folder, **how):
        if folder.endswith("/b"):
            raise PermissionError("Access Denied")
        return MemoryFileSystem.ls(fs, folder, **how)

    monkeypatch.setattr(fs, "ls", ls)
    monkeypatch.setattr(finding.fsspec.core, "url_to_fs", lambda url, **options: (fs, "/shut"))
    assert stores_below("s3://shut") == ["s3://shut/a"]
    assert stores_below("s3://shut", sealed=True) == ["s3://shut/a", "s3://shut/b"]
    fs.rm("/shut", recursive=True)


def test_a_message_does_not_look_into_all_folders_of_a_data_set(monkeypatch):
    fs, asked = MemoryFileSystem(), []
    for number in range(200):
        fs.pipe_file(f"/data/{number}/{number}/x", b"")

    def ls(folder, **how):
        asked.append(folder)
        return MemoryFileSystem.ls(fs, folder, **how)

    monkeypatch.setattr(fs, "ls", ls)
    monkeypatch.setattr(finding.fsspec.core, "url_to_fs", lambda url, **options: (fs, "/data"))
    assert stores_below("s3://data", looks=finding.FEW_LOOKS) == []
    assert len(asked) <= 2 * finding.FEW_LOOKS
    shown = call("show", "s3://data")
    assert "there is no store here" in shown.stderr
    assert len(asked) <= 6 * finding.FEW_LOOKS
    fs.rm("/data", recursive=True)


def test_links_to_folders_are_followed_once(tmp_path):
    runs, far = tmp_path / "runs", tmp_path / "far"
    save(str(runs / "deep" / "real"), 1)
    for name in ("x", "many/y"):
        save(str(far / name), 1)
    links = {
        "a_name_before_the_real_one": runs / "deep" / "real",
        "again": far / "x",
        "all": far / "many",
        "gone": tmp_path / "nowhere",
        "itself": runs / "itself",
        "round": runs,
        "deep/above": tmp_path,
        "deep/other": far / "x",
    }
    for name, target in links.items():
        (runs / name).symlink_to(target)
    (far / "many" / "back").symlink_to(runs)
    found = [f"{runs}/again", f"{runs}/all/y", f"{runs}/deep/real"]
    assert stores_below(str(runs)) == stores_below(str(runs), sealed=True) == found
    tended = lcstore.maintain_below(runs, "latest:1")
    assert [one.url for one in tended if one.ok] == found


def test_a_night_that_is_cut_off_begins_elsewhere_the_next_time(tmp_path, monkeypatch):
    stores = [f"{tmp_path}/{name}" for name in "abc"]
    for url in stores:
        save(url, 1)
    asked, looked = [], verify.verify

    def noting(backend, *args, **how):
        asked.append(backend.url.removeprefix("file://"))
        return looked(backend, *args, **how)

    monkeypatch.setattr(verify, "verify", noting)
    monkeypatch.setattr("lcstore.places.below.shuffle", list.reverse)
    assert [one.url for one in lcstore.verify_below(tmp_path)] == stores
    assert asked == stores[::-1]


def test_stores_that_lie_in_a_store_are_told(tmp_path):
    inner = [f"{tmp_path}/pool/{name}" for name in ("nlp/run01", "nlp/run02", "rl/run01", "rl/run02")]
    for url in inner:
        save(url, 1)
    save(str(tmp_path / "other"))
    shutil.copytree(tmp_path / "other", tmp_path / "pool", dirs_exist_ok=True)
    outer = str(tmp_path / "pool")
    for command in (("ls",), ("verify",), ("maintain", "--keep", "latest:1")):
        result = call(*command, outer)
        assert result.exit_code == 0
        assert f"{', '.join(inner[:3])}, ..." in result.stderr
        assert document(*command, outer)["stores_inside"] == inner
    found = document("verify", outer)["findings"]
    assert [(one["severity"], one["key"]) for one in found] == [
        ("warning", url.removeprefix(f"{outer}/")) for url in inner
    ]
    assert "Other stores" not in call("ls", inner[0]).stderr
    assert "stores_inside" not in document("ls", inner[0])
    commands = re.findall(r"lcstore (cp .+?|rm .+?),", call("ls", outer).stderr)
    for command in commands:
        assert call(*shlex.split(command.replace(" TO", f" {tmp_path}/apart"))).exit_code == 0
    assert [one["url"] for one in document("ls", outer)["stores"]] == inner
    assert len(document("ls", f"{tmp_path}/apart")["states"]) == 2


@pytest.fixture
def nested(tmp_path: Path) -> list[str]:
    """Stores below a folder, of which some lie in another one, as no save makes them."""
    found = [f"{tmp_path}/runs/{name}" for name in ("alice", "alice/proj/run08", "alice/run00", "bob")]
    for count, url in enumerate(sorted(found, reverse=True), 1):
        save(f"{tmp_path}/made/{count}", count)
        shutil.copytree(tmp_path / "made" / str(count), url, dirs_exist_ok=True)
    return found


def test_stores_that_lie_in_one_of_a_place_are_stores_of_the_place(nested, tmp_path):
    place = f"{tmp_path}/runs"
    for command in (("ls",), ("stats",), ("verify",), ("maintain", "--keep", "latest:1", "--apply")):
        assert [one["url"] for one in document(*command, place)["stores"]] == nested
    assert [one["steps"] for one in document("ls", place)["stores"]] == [1, 1, 1, 1]
    assert "4 stores below" in call("ls", place).stdout
    for _ in range(2):
        copied = document("cp", f"{place}/", f"{tmp_path}/backup")["stores"]
        assert [one["report"]["states"] for one in copied] == [1, 1, 1, 1]
        assert [one["steps"] for one in document("ls", f"{tmp_path}/backup")["stores"]] == [1, 1, 1, 1]


def test_a_store_in_which_nothing_else_lies_is_looked_at_once(monkeypatch):
    fs, asked = MemoryFileSystem(), []
    for name in ("lcstore.json", *(f"{folder}/x" for folder in FOLDERS), "logs/events"):
        fs.pipe_file(f"/once/run/{name}", b"")

    def ls(folder, **how):
        asked.append(folder)
        return MemoryFileSystem.ls(fs, folder, **how)

    monkeypatch.setattr(fs, "ls", ls)
    monkeypatch.setattr(finding.fsspec.core, "url_to_fs", lambda url, **options: (fs, "/once"))
    assert stores_below("s3://once") == ["s3://once/run"]
    assert asked == ["/once", "/once/run", "/once/run/logs"]
    assert {*FOLDERS} == finding.OWN
    fs.rm("/once", recursive=True)


def test_all_stores_of_a_large_place_are_told(tmp_path):
    for number in range(1001):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "lcstore.json").touch()
    assert len(stores_below(str(tmp_path))) == 1001


def test_in_memory():
    for name in ("below/x", "below/y/z", "belowx"):
        save(f"memory://{name}")
    assert stores_below("memory://below/") == ["memory://below/x", "memory://below/y/z"]
    assert stores_below("memory://below", levels=1) == ["memory://below/x"]
    assert stores_below("memory://below/x") == ["memory://below/x"]
    assert "2 stores below" in call("ls", "memory://below").stdout
    assert near("memory://belowy") == ["memory://below", "memory://belowx"]
    assert near("memory://below/xx") == ["memory://below/x"]
    for name in ("below/x", "below/y/z", "belowx"):
        backend = MemoryBackend(name)
        backend.delete_many(backend.list(""))


def test_on_any_filesystem(monkeypatch):
    fs = MemoryFileSystem()
    for name in (
        "a/lcstore.json",
        "b/c/lcstore.json",
        "b/c/copies/lcstore.json",
        "b/c/x/y/lcstore.json",
        "d/other.json",
        "e/1/2/3/4/5/6/7/8/lcstore.json",
    ):
        fs.pipe_file(f"/looked/{name}", b"")
    monkeypatch.setattr(finding.fsspec.core, "url_to_fs", lambda url, **options: (fs, url[4:].rstrip("/")))
    found = stores_below("s3://looked/", {"anon": True})
    assert found == ["s3://looked/a", "s3://looked/b/c", "s3://looked/b/c/x/y"]
    assert stores_below("s3://looked/b/c", levels=0) == ["s3://looked/b/c"]
    assert stores_below("s3://looked", most=1) == ["s3://looked/a"]
    fs.rm("/looked", recursive=True)
    assert stores_below("s3://looked") == []


def test_stores_that_an_older_version_made_in_a_store_of_a_bucket_are_tended(monkeypatch, tmp_path):
    fs = MemoryFileSystem()
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (fs, f"/{url.partition('://')[2]}"))
    monkeypatch.setattr("lcstore.write.writer.check_around", lambda backend: None)
    names = ["alice", "alice/deep/run08", "alice/run00", "bob/run00"]
    for name in reversed(names):
        save(f"s3://lab/runs/{name}", 1)
    monkeypatch.undo()
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda url, **_: (fs, f"/{url.partition('://')[2]}"))
    for words in (("ls",), ("stats",), ("verify",), ("maintain", "--keep", "latest:1")):
        told = document(words[0], "s3://lab/runs", *words[1:])["stores"]
        assert [one["url"] for one in told] == [f"s3://lab/runs/{name}" for name in names]
    for target in (str(tmp_path / "copy"), "s3://lab/copy"):
        assert document("cp", "s3://lab/runs", target)["ok"]
        copied = [one["url"] for one in document("ls", target)["stores"]]
        assert [one.removeprefix(f"{target}/") for one in copied] == names
    fs.rm("/lab", recursive=True)


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
    assert near("s3://bucket/near/run") == ["s3://bucket/near/runs"]
    assert opened == ["bucket/near"]
    assert near("s3://bucket/neat/runs") == []
    assert near("s3://bucke") == []
    monkeypatch.setattr(fs, "ls", lambda folder, **how: 1 / 0)
    assert near("s3://bucket/near/run") == []
    assert near("nosuchprotocol://near/run") == []
    assert near("zip::s3://bucket/near/run") == []
    fs.rm("/bucket/near", recursive=True)


def test_a_store_below_the_top_of_a_disk_has_its_whole_path(monkeypatch):
    inside = finding._Inside
    folders = {"/": inside(set(), ["runs"]), "/runs": inside({"lcstore.json"}, [])}
    monkeypatch.setattr(finding, "_local", folders.__getitem__)
    assert stores_below("/") == stores_below("/runs") == ["/runs"]


def test_a_copy_that_was_cut_off_is_named_in_its_place(tmp_path):
    """With data alone it was in no list and no sum, so a backup without its first store was good."""
    save(str(tmp_path / "runs/ok"))
    save(str(tmp_path / "cut"), 3)
    (tmp_path / "runs/cut").mkdir()
    (tmp_path / "cut/data").rename(tmp_path / "runs/cut/data")
    (tmp_path / "runs/begun/data" / ("0" * 32)).mkdir(parents=True)  # a first save under way
    (tmp_path / "runs/photos/data" / "cats").mkdir(parents=True)
    (tmp_path / "runs/photos/data" / ("0" * 32)).mkdir()
    for number in "12":  # a data set
        for inside in ("pictures/data", "flat/data"):
            (tmp_path / "runs" / inside / (number * 32)).mkdir(parents=True)
        (tmp_path / "runs/flat/data" / (number * 32) / "1.png").touch()
        (tmp_path / "runs/pictures/data" / (number * 32) / "small").mkdir()
    for words in (("ls",), ("stats",), ("verify",), ("maintain", "--keep", "latest:1")):
        result = call(words[0], str(tmp_path / "runs"), *words[1:])
        assert result.exit_code == 1, words
        assert "2 stores below" in result.stdout
        assert "runs/cut" in result.stdout + result.stderr
    alone = call("ls", str(tmp_path / "runs/cut")).stderr
    assert "objects of 3 saves are here" in " ".join(alone.split())
    assert "the same `lcstore cp` goes on with it" in " ".join(alone.split())
    assert stores_below(str(tmp_path / "runs")) == [str(tmp_path / "runs/ok")]
    edges = sorted((tmp_path / "runs/cut/data").iterdir())
    for path in (path for edge in edges[1:] for path in edge.rglob("*.*/*")):
        path.unlink()  # cut off while it copied the first one: the others have folders
    for path in (path for edge in edges[1:] for path in edge.rglob("zarr.json")):
        path.unlink()
    alone = " ".join(call("ls", str(tmp_path / "runs/cut")).stderr.split())
    assert "Objects of a save are here, and no record. If a copy to here was cut off" in alone


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


def test_stats_of_a_place_count_each_store_below_it(tmp_path):
    for name, states in (("a", 2), ("b/c", 3)):
        save(str(tmp_path / name), states)
    with lcstore.open(tmp_path / "a", grace=0) as store:
        store.retire(0)
        store.compact()
        store.collect()
    told = document("stats", str(tmp_path))
    found = told["stores"]
    alone = [document("stats", str(tmp_path / name)) for name in ("a", "b/c")]
    assert [one["stats"]["bytes_stored"] for one in found] == [one["bytes_stored"] for one in alone]
    assert [one["stats"]["condemned_bytes"] for one in found] == [one["condemned_bytes"] for one in alone]
    said = " ".join(call("stats", str(tmp_path)).stdout.split())
    total = sum(one["bytes_stored"]["total"] + one["orphan_bytes"] for one in alone)
    assert f"2 stores below {tmp_path}: {size(total)}" in said
    assert told["bytes_stored"] == total
    assert told["bytes_condemned"] == sum(one["condemned_bytes"] for one in alone)


def test_stats_of_a_place_tell_which_store_is_not_counted_whole(tmp_path):
    for name in ("a", "b", "c"):
        save(str(tmp_path / name), 2)
        shutil.rmtree(tmp_path / name / "copies")
    (tmp_path / "b" / "lcstore.json").write_text("{}")
    node = next((tmp_path / "c" / "nodes").iterdir())
    node.write_bytes(b"{")
    found = document("stats", str(tmp_path), status=1)["stores"]
    assert [one["problem"] is None for one in found] == [True, False, False]
    assert found[1]["stats"] is None
    assert len(found[2]["stats"]["unreadable"]) == 1
    shown = call("stats", str(tmp_path))
    assert shown.exit_code == 1
    assert shown.stdout.count("not all of it") == 2
    assert "could not be counted whole: 2\n" in shown.stderr
    told = shown.stderr.partition("whole: 2\n")[2]
    assert [f"{tmp_path}/{name}: " in told for name in "abc"] == [False, True, True]


def test_stats_of_a_place_have_the_largest_store_on_top(tmp_path):
    for name, states in (("a", 2), ("b", 6), ("c", 4)):
        save(str(tmp_path / name), states)
    lines = call("stats", str(tmp_path)).stdout.splitlines()
    assert [line.split()[0][-1] for line in lines if line.startswith(str(tmp_path))] == ["b", "c", "a"]
    assert [one["url"][-1] for one in document("stats", str(tmp_path))["stores"]] == ["a", "b", "c"]


@pytest.mark.parametrize("command", ["ls", "stats", "verify"])
def test_a_target_that_is_away_is_asked_once(command, tmp_path, monkeypatch):
    """With retries and a network behind it, each question takes some half a minute."""
    asked: list[str] = []

    def away(self: LocalBackend, key: str, *_: object) -> bytes:
        asked.append(key)
        raise StorageError("could not read: no route to host", key=key)

    monkeypatch.setattr(LocalBackend, "get", away)
    found = document(command, str(tmp_path), status=1)
    assert "no route to host" in found["error"]["message"]
    assert found["error"]["next"] == f"lcstore doctor {tmp_path}"
    assert asked == ["lcstore.json"]
