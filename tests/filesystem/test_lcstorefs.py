"""`lcstore://`: what is where, what is looked at when, what errors say."""

from __future__ import annotations

import errno
import json
import pickle
import threading
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from counting import Counting
from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper
from zarr.storage import FsspecStore

import lcstore
from lcstore.errors import InvalidInputError, NotFoundError, ReadOnlyError, StorageError
from lcstore.filesystem import catalogue
from lcstore.filesystem.lcstorefs import LcstoreFileSystem
from lcstore.format import keys
from lcstore.format.records import StoreRecord
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend

WEIGHT = "tensors/model/embed.weight.npy"


@pytest.fixture
def url(tmp_path, run):
    """A store of three steps, one of them with a tag."""
    with lcstore.open(tmp_path / "s") as store:
        for step in (0, 10, 20):
            store.save(
                step, run.step(), metrics={"loss": 3.0 - step}, tags=["paper/v1"] if step == 10 else []
            )
    return str(tmp_path / "s")


@pytest.fixture
def fs(url):
    return fsspec.filesystem("lcstore", url=url)


# What is where ------------------------------------------------------------------------------------------


def test_what_is_where(fs, url):
    assert fs.ls("", detail=False) == fs.ls("lcstore://", detail=False) == ["0", "10", "20"]
    names = [name.partition("/")[2] for name in fs.ls("10", detail=False)]
    assert names == ["state.safetensors", "metadata.json", "safetensors", "tensors", "zarr"]
    assert fs.ls("10/safetensors", detail=False) == [
        "10/safetensors/model.safetensors",
        "10/safetensors/optim.safetensors",
    ]
    assert f"10/{WEIGHT}" in fs.ls("10/tensors/model", detail=False)
    assert fs.ls(f"10/{WEIGHT}", detail=False) == [f"10/{WEIGHT}"]
    assert fs.isdir("10/tensors")
    assert fs.isfile(f"10/{WEIGHT}")
    assert not fs.exists("10/tensors/model/embed.weight")
    assert fs.ls("/10") == fs.ls("10/") == fs.ls("lcstore:///10")
    assert fs.exists("")
    assert fs.isdir("")
    assert fs.glob("*/metadata.json") == ["0/metadata.json", "10/metadata.json", "20/metadata.json"]
    assert fs.glob("20/tensors/model/*.weight.npy") == [
        f"20/tensors/model/{name}.weight.npy" for name in ("embed", "fc1", "fc2")
    ]
    found = fs.find("10")
    assert {path for _, _, files in fs.walk("10") for path in files} <= {
        path.rpartition("/")[2] for path in found
    }
    assert (
        fs.du("10") == sum(len(fs.cat_file(path)) for path in found) == sum(fs.info(p)["size"] for p in found)
    )
    assert fs.cat(["0/metadata.json", "10/metadata.json"]).keys() == {"0/metadata.json", "10/metadata.json"}


def test_states_have_more_names_than_are_listed(fs, url):
    node = lcstore.open(url, "r").info(10).node
    wanted = fs.cat_file(f"10/{WEIGHT}")
    begins = next(node[:length] for length in range(8, 33) if not node[:length].isdigit())  # else: a step
    for name in (node, begins, "paper~1v1", "best:loss", "010"):
        if name == "best:loss":
            assert json.loads(fs.cat_file(f"{name}/metadata.json"))["step"] == 20
        else:
            assert fs.cat_file(f"{name}/{WEIGHT}") == wanted
    assert json.loads(fs.cat_file("latest/metadata.json"))["step"] == 20
    assert fs.ls("latest", detail=False)[0] == "latest/state.safetensors"
    assert fs.ls("", detail=False) == ["0", "10", "20"]


def test_the_best_of_a_metric_whose_name_no_path_has(tmp_path):
    with lcstore.open(tmp_path) as store:
        for step in range(3):
            store.save(step, {"w": np.ones(4)}, metrics={"val/loss": 3 - step, "top:1": -step})
    found = fsspec.filesystem("lcstore", url=str(tmp_path))
    for name, step in (("best:val~1loss", 2), ("best:top~x3a1", 2), ("best:top:1", 2)):
        assert json.loads(found.cat_file(f"{name}/metadata.json"))["step"] == step
    for path in ("best:val/loss", "best:val/loss:min"):
        with pytest.raises(FileNotFoundError, match="the / of a name is written ~1"):
            found.cat_file(f"{path}/metadata.json")


def test_a_disk_that_cannot_be_read_is_no_question_of_how_names_are_written(tmp_path, monkeypatch):
    with lcstore.open(tmp_path) as store:
        store.save(0, {"w": np.ones(4)})
    found = fsspec.filesystem("lcstore", url=str(tmp_path), skip_instance_cache=True)

    def refuse(*_args, **_how):
        raise PermissionError(errno.EACCES, "Permission denied", f"{tmp_path}/nodes")

    found.ls("")
    monkeypatch.setattr(LocalBackend, "_get", refuse)
    with pytest.raises(StorageError, match="Permission denied") as caught:
        found.cat_file("best:loss/metadata.json")
    assert "~1" not in str(caught.value)


def test_times_and_keys_are_those_of_the_state(fs):
    saved = fs.created(f"10/{WEIGHT}")
    assert timedelta(0) <= datetime.now(UTC) - saved < timedelta(hours=1)
    assert fs.modified("10") == saved
    assert fs.info("10/metadata.json")["mtime"] == saved.timestamp()
    assert fs.ukey("10/metadata.json") != fs.ukey("20/metadata.json")
    assert fs.ukey("latest/metadata.json") == fs.ukey("20/metadata.json")


def test_folders_are_copied_as_they_are(fs, tmp_path):
    fs.get("10", str(tmp_path / "there"), recursive=True)
    for path in fs.find("10"):
        assert (tmp_path / "there" / path.removeprefix("10/")).read_bytes() == fs.cat_file(path)


# Opening ------------------------------------------------------------------------------------------------


def test_urls_are_chained(url, monkeypatch):
    with fsspec.open(f"lcstore://10/{WEIGHT}::file://{url}") as file:
        weight = np.load(file)
    assert weight.tobytes() == lcstore.open(url).read(10, "model/embed.weight").tobytes()
    monkeypatch.chdir(Path(url).parent)
    for store in (url, f"file://{Path(url).name}"):
        with fsspec.open(f"lcstore://latest/metadata.json::{store}", "r") as file:
            assert json.load(file)["step"] == 20
    local = fsspec.open_local(f"simplecache::lcstore://10/{WEIGHT}::file://{url}")
    assert np.load(local).tobytes() == weight.tobytes()
    far, path = fsspec.core.url_to_fs(f"lcstore://10/{WEIGHT}::dir://::file://{url}", dir={"path": "/"})
    assert (type(far), path) == (LcstoreFileSystem, f"10/{WEIGHT}")


def test_many_urls_are_opened_at_once(url):
    opened = fsspec.open_files(f"lcstore://*/metadata.json::file://{url}")
    with opened as files:
        assert [json.load(file)["step"] for file in files] == [0, 10, 20]


def test_a_chain_of_three(url):
    chained = f"lcstore://10/{WEIGHT}::simplecache::file://{url}"
    with fsspec.open(chained) as file:
        assert np.load(file).shape == (96, 32)


def test_stores_and_snapshots_are_opened_as_well(url, fs):
    wanted = fs.cat_file(f"10/{WEIGHT}")
    with lcstore.open(url) as store:
        assert LcstoreFileSystem(store).cat_file(f"10/{WEIGHT}") == wanted
        assert LcstoreFileSystem(store.backend).cat_file(f"10/{WEIGHT}") == wanted
        alone = LcstoreFileSystem(store[10])
        assert alone.ls("", detail=False) == ["10"]
        for name in ("10", "latest", alone.info("10")["node"], alone.info("10")["node"][:8]):
            assert alone.exists(f"{name}/metadata.json")
        with pytest.raises(FileNotFoundError, match="step 10"):
            alone.ls("20")


def test_memory_is_that_of_this_process(run):
    with lcstore.open("memory://filesystem/of/states") as store:
        store.save(0, run.step())
    with fsspec.open("lcstore://0/metadata.json::memory://filesystem/of/states") as file:
        assert json.load(file)["step"] == 0


def test_the_entry_point_is_this_class():
    project = tomllib.loads((Path(lcstore.__file__).parents[1] / "pyproject.toml").read_text())
    module, _, name = project["project"]["entry-points"]["fsspec.specs"]["lcstore"].partition(":")
    assert (module, name) == (LcstoreFileSystem.__module__, LcstoreFileSystem.__name__)


# Errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("15/metadata.json", "nearest: 10, 20"),
        ("nobody/metadata.json", "paper/v1"),
        ("9" * 5000 + "/metadata.json", "no state"),
        ("10/tensors/model/embed.wieght.npy", f"10/{WEIGHT}"),
        ("10/tensors/modl/embed.weight.npy", "10/tensors/model"),
        ("10/state.safetensor", "10/state.safetensors"),
        (f"10/{WEIGHT}/more", "embed.weight"),
        ("10/zarr/model/embed.weight/c.1.0", "c.0.0"),
        ("10//", "10"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(fs, path, named):
    if path == "10//":
        assert fs.isdir(path)
        return
    for ask in (fs.info, fs.cat_file, fs.open, fs.ls, fs.created):
        with pytest.raises(FileNotFoundError, match=named) as caught:
            ask(path)
        assert isinstance(caught.value, NotFoundError)
        assert caught.value.errno == errno.ENOENT
    assert not fs.exists(path)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_nothing_is_written(fs, tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    calls = [
        lambda: fs.open("10/new", "wb"),
        lambda: fs.open("10/metadata.json", "ab"),
        lambda: fs.open("10/new", "w"),
        lambda: fs.pipe_file("10/new", b"x"),
        lambda: fs.pipe({"10/new": b"x"}),
        lambda: fs.put_file(str(tmp_path / "file"), "10/new"),
        lambda: fs.touch("10/new"),
        lambda: fs.mkdir("30"),
        lambda: fs.makedirs("30/x"),
        lambda: fs.rm("10", recursive=True),
        lambda: fs.rm_file("10/metadata.json"),
        lambda: fs.rmdir("10"),
        lambda: fs.mv("10/metadata.json", "20/metadata.json"),
        lambda: fs.copy("10/metadata.json", "20/other"),
    ]
    for call in calls:
        with pytest.raises(OSError, match="only read") as caught:
            call()
        assert isinstance(caught.value, ReadOnlyError)
        assert caught.value.errno == errno.EROFS


def test_folders_are_not_read(fs):
    for path in ("10", "10/tensors"):
        with pytest.raises(IsADirectoryError, match="lists it"):
            fs.cat_file(path)


def test_no_store_is_there(tmp_path):
    fs = fsspec.filesystem("lcstore", url=str(tmp_path / "none"))
    for ask in (lambda: fs.ls(""), lambda: fs.ls("latest"), lambda: fs.info("")):
        with pytest.raises(FileNotFoundError, match="no store"):
            ask()
    assert not fs.exists("latest")
    lcstore.open(tmp_path / "runs" / "a").save(0, {"w": np.zeros(3)})
    for url, meant in (
        (f"{tmp_path}/runs", r"Below it are .*/runs/a"),
        (f"{tmp_path}/run", r"Beside it is .*/runs"),
    ):
        for ask in (
            lambda url=url: fsspec.filesystem("lcstore", url=url).ls(""),
            lambda url=url: fsspec.open(f"lcstore://0/metadata.json::file://{url}").open(),
        ):
            with pytest.raises(FileNotFoundError, match=meant):
                ask()
    for ask in (
        lambda: fsspec.filesystem("lcstore"),
        lambda: fsspec.open("lcstore://latest/state.safetensors"),
    ):
        with pytest.raises(
            InvalidInputError, match=r"where the store is, after two colons: .*::file:///data"
        ):
            ask()


def test_an_empty_store_lists_nothing():
    backend = MemoryBackend.fresh({keys.STORE_KEY: StoreRecord(0).to_bytes()})
    fs = LcstoreFileSystem(backend)
    assert fs.ls("") == []
    assert not fs.exists("latest")


# Looking anew -------------------------------------------------------------------------------------------


def test_a_filesystem_lists_once(run):
    backend = Counting.fresh()
    with lcstore.open(backend) as store:
        for step in range(3):
            store.save(step, run.step())
    backend.counted("listed")
    fs = LcstoreFileSystem(backend)
    assert backend.counted("listed") == []
    with fs.open(f"1/{WEIGHT}") as file:
        file.read()
    assert 0 < len(backend.counted("listed")) <= 6
    for path in fs.find("latest") + fs.find("0"):
        fs.cat_file(path)
    fs.ls("")
    assert backend.counted("listed") == []
    fs.invalidate_cache()
    fs.cat_file(f"1/{WEIGHT}")
    assert 0 < len(backend.counted("listed")) <= 6


def test_steps_saved_later_are_seen_where_one_looks_anew(url, fs, run):
    assert json.loads(fs.cat_file("latest/metadata.json"))["step"] == 20
    with lcstore.open(url) as store:
        store.save(30, run.step(), tags=["new"])
    assert fs.ls("", detail=False) == ["0", "10", "20"]
    assert json.loads(fs.cat_file("latest/metadata.json"))["step"] == 20
    assert fs.exists("30/metadata.json")  # nobody knew it: it was looked for
    assert fs.exists("new/metadata.json")
    assert json.loads(fs.cat_file("latest/metadata.json"))["step"] == 20
    assert fs.ls("", detail=False, refresh=True) == ["0", "10", "20", "30"]
    assert json.loads(fs.cat_file("latest/metadata.json"))["step"] == 30
    with lcstore.open(url) as store:
        store.save(40, run.step())
    fs.invalidate_cache()
    assert json.loads(fs.cat_file("latest/metadata.json"))["step"] == 40
    another = fsspec.filesystem("lcstore", url=url)
    assert another is not fs


def test_a_state_that_was_saved_again_keeps_what_was_opened(url, fs, run):
    before = fs.cat_file(f"20/{WEIGHT}")
    with lcstore.open(url) as store:
        store.save(20, run.step())
    assert fs.cat_file(f"20/{WEIGHT}") == before
    fs.invalidate_cache()
    assert fs.cat_file(f"20/{WEIGHT}") != before


def test_what_paths_say_is_held_of_a_few_states_and_names_mean_the_same(url, fs, run, monkeypatch):
    """A loader that goes over thousands of states held the columns of the paths to all of them."""
    monkeypatch.setattr(catalogue, "_MOST_FOLDERS", 2)
    wanted = {name: fs.cat_file(f"{name}/{WEIGHT}") for name in ("0", "10", "20", "latest", "paper~1v1")}
    assert wanted["latest"] == wanted["20"] != wanted["10"] == wanted["paper~1v1"]
    assert len(fs._states._folders) == 2
    with lcstore.open(url) as store:
        for step in (20, 30):  # the one once more, and another that is the latest
            store.save(step, run.step())
    for name in (*wanted, *wanted):
        assert fs.cat_file(f"{name}/{WEIGHT}") == wanted[name], name
        assert pickle.loads(pickle.dumps(fs)).cat_file(f"{name}/{WEIGHT}") == wanted[name], name
    assert len(fs._states._folders) == 2


def test_states_that_are_found_while_a_filesystem_is_sent_are_no_trouble(fs, monkeypatch):
    """Other threads may find them: each that is asked for takes its place among those used last."""
    wanted = {name: fs.cat_file(f"{name}/{WEIGHT}") for name in ("0", "10")}

    class Asking(catalogue.StateFolder):
        @property
        def snapshot(self):
            fs._states.named("20")
            fs._states.named("0")
            return self._snapshot

        @snapshot.setter
        def snapshot(self, value):
            self._snapshot = value

    for folder in fs._states._folders.values():
        found = folder.snapshot
        folder.__class__ = Asking
        folder.snapshot = found
    there = pickle.loads(pickle.dumps(fs))
    assert {name: there.cat_file(f"{name}/{WEIGHT}") for name in wanted} == wanted


@pytest.mark.parametrize("forgets", [False, True])
def test_chunks_of_a_state_that_was_let_go_of_are_no_zeros(tmp_path, forgets):
    """Zarr takes a chunk whose file is not there, or not under that key, for one that holds zeros."""
    url = str(tmp_path / "store")
    values = np.random.default_rng(0).standard_normal((8, 600_000)).astype(np.float32)
    with lcstore.open(url, policy="lossless", grace=0) as store:
        for step in range(3):
            store.save(step, {"w": values + np.float32(step)})
        fs = LcstoreFileSystem(url, held=1)
        by_store = zarr.open_array(
            FsspecStore(AsyncFileSystemWrapper(fs, asynchronous=True), path="1/zarr/w", read_only=True)
        )
        by_url = zarr.open_group(f"lcstore://1/zarr::file://{url}", mode="r")["w"]
        by_map = zarr.open_group(fs.get_mapper("1/zarr"), mode="r")["w"]
        file = fs.open("1/tensors/w.npy")
        for array in (by_store, by_url, by_map):
            np.testing.assert_array_equal(array[0, :3], values[0, :3] + np.float32(1))
        store.retire(1)
        for _ in range(3):
            store.compact()
            store.collect()
    if forgets:
        fs.invalidate_cache()
    other = pickle.loads(pickle.dumps(fs))  # as another process has it
    ways = [lambda: by_store[6:], lambda: by_url[6:], lambda: by_map[6:], lambda: file.read(1 << 25)]
    for read in (*ways, lambda: other.cat_file("1/tensors/w.npy")):
        with pytest.raises(OSError, match=r"too late to read it|no state") as caught:
            read()
        assert not isinstance(caught.value, (FileNotFoundError, KeyError))


def test_a_listing_anew_disturbs_no_other_thread(url, fs):
    wanted, done = fs.info("10/metadata.json")["size"], threading.Event()

    def refresh() -> None:
        while not done.is_set():
            fs.invalidate_cache()

    thread = threading.Thread(target=refresh)
    thread.start()
    try:
        for _ in range(2_000):
            assert fs.info("10/metadata.json")["size"] == wanted
    finally:
        done.set()
        thread.join()
