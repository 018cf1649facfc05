"""The local backend: what appears appears whole and durable, and nothing lies outside the root."""

from __future__ import annotations

import errno
import gc
import json
import multiprocessing
import os
import pickle
import shlex
import shutil
import stat
import sys
import threading
import tracemalloc
import weakref
from typing import Any

import pytest

import lcstore
from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from lcstore.storage import local, wholefile
from lcstore.storage.latesync import LateSync, putting_off
from lcstore.storage.local import LocalBackend

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX semantics")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def backend(root):
    return LocalBackend(root)


class Calls:
    """The system calls of a put, in order; any of them can be made to fail."""

    def __init__(self, monkeypatch, root):
        self.made: list[tuple[str, str]] = []
        self.failing: dict[tuple[str, str], OSError] = {}
        self.files: dict[int, str] = {}
        self.root = str(root)
        for name in ("open", "write", "fsync", "replace", "mkdir", "unlink"):
            monkeypatch.setattr(local.os, name, self.recorded(name, getattr(os, name)))

    def recorded(self, name, call):
        def wrapper(first, *rest, **options):
            path = self.files.get(first, first) if isinstance(first, int) else os.fspath(first)
            path = "tmp" if ".tmp-" in str(path) else os.path.relpath(path, self.root)
            self.made.append((name, path))
            if (name, path) in self.failing:
                raise self.failing[name, path]
            done = call(first, *rest, **options)
            if name == "open":
                self.files[done] = os.fspath(first)
            return done

        return wrapper

    def named(self, *names):
        return [call for call in self.made if call[0] in names]


@pytest.fixture
def calls(monkeypatch, root):
    return Calls(monkeypatch, root)


@posix
def test_bytes_are_durable_before_the_name_and_the_name_before_the_return(backend, calls):
    backend.put("data/e/x", b"x")
    order = calls.named("write", "fsync", "replace")
    assert order[:3] == [("write", "tmp"), ("fsync", "tmp"), ("replace", "tmp")]
    assert order[3:7] == [("fsync", path) for path in ("data/e", "data", ".", "..")]
    assert all(call == "fsync" and set(path.split("/")) == {".."} for call, path in order[7:])


@posix
def test_a_known_directory_costs_one_fsync(backend, calls):
    backend.put("nodes/x", b"x")
    calls.made.clear()
    backend.put("nodes/y", b"y")
    assert calls.named("fsync", "mkdir") == [("fsync", "tmp"), ("fsync", "nodes")]


@posix
def test_a_root_that_was_made_again_is_durable_again(backend, root, calls):
    backend.put("nodes/x", b"x")
    shutil.rmtree(root)
    calls.made.clear()
    backend.put("nodes/y", b"y")
    assert {"nodes", ".", ".."} <= {path for _, path in calls.named("fsync")}


@posix
def test_directories_above_a_new_root_are_durable(tmp_path, monkeypatch):
    root = tmp_path / "a" / "b" / "store"
    calls = Calls(monkeypatch, tmp_path)
    LocalBackend(root).put("x", b"x")
    synced = [path for _, path in calls.named("fsync")]
    assert {".", "a", "a/b", "a/b/store"} <= set(synced)


@posix
@pytest.mark.parametrize("call", [("write", "tmp"), ("fsync", "tmp"), ("replace", "tmp"), ("open", "tmp")])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_a_put_that_fails_before_the_rename_leaves_nothing(backend, calls, root, call, code):
    backend.put("nodes/before", b"x")
    calls.failing[call] = OSError(code, os.strerror(code))
    with pytest.raises(StorageError, match=r"could not write|there is no room left on") as caught:
        backend.put("nodes/x", b"x")
    assert not caught.value.outcome_unknown
    assert caught.value.key == "nodes/x"
    calls.failing.clear()
    assert os.listdir(root / "nodes") == ["before"]
    backend.put("nodes/x", b"x")


@posix
def test_a_put_whose_directory_could_not_be_synced_says_so(backend, calls):
    backend.put("nodes/before", b"x")
    calls.failing["fsync", "nodes"] = OSError(errno.EIO, "io")
    with pytest.raises(UnknownOutcomeError):
        backend.put("nodes/x", b"x")
    assert backend.get("nodes/x") == b"x"


@posix
@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_mount_without_directory_fsync_will_do(backend, calls, code):
    backend.put("nodes/before", b"x")
    calls.failing["fsync", "nodes"] = OSError(code, "not here")
    backend.put("nodes/x", b"x")


def test_a_put_does_not_copy(backend):
    data = memoryview(bytearray(32 << 20))
    backend.put("warm", b"")
    tracemalloc.start()
    try:
        backend.put("data/e/x", data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert backend.size("data/e/x") == len(data)


def test_large_objects_take_several_system_calls(backend, monkeypatch):
    monkeypatch.setattr(wholefile, "_MOST_AT_ONCE", 1000)
    data = os.urandom(12_345)
    backend.put("x", data)
    assert backend.get("x") == data
    assert backend.get("x", 1, 12_000) == data[1:12_000]


def test_large_objects_are_read_whole_to_bytes_of_their_own(backend, root, monkeypatch):
    data = os.urandom((9 << 20) + 7)
    backend.put("x", data)
    for most in (1 << 30, 1 << 20):  # bytes of one call
        monkeypatch.setattr(wholefile, "_MOST_AT_ONCE", most)
        first, second = backend.get("x"), backend.get("x", 3, (5 << 20) + 1)
        assert first == data
        assert hash(first) == hash(data)  # of bytes, not of a view
        assert second == data[3 : (5 << 20) + 1]
        assert backend.get("x", 1 << 20, 99 << 20) == data[1 << 20 :]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody asks for huge pages")
def test_a_large_object_that_is_cut_off_while_it_is_read_is_what_is_there(backend, root, monkeypatch):
    backend.put("x", bytes(8 << 20))
    readv = os.readv

    def cut(fd, views):
        monkeypatch.setattr(os, "readv", readv)
        os.truncate(root / "x", 5 << 20)
        return readv(fd, views)

    monkeypatch.setattr(os, "readv", cut)
    assert backend.get("x") == bytes(5 << 20)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody asks for huge pages")
def test_where_no_such_memory_is_to_be_had_large_objects_are_read_all_the_same(backend, monkeypatch):
    data = os.urandom(5 << 20)
    backend.put("x", data)
    monkeypatch.setattr(wholefile, "_maker", lambda: None)
    assert backend.get("x") == data


@posix
def test_files_have_the_mode_of_the_umask(backend, root):
    old = os.umask(0o027)
    try:
        backend.put("nodes/x", b"x")
    finally:
        os.umask(old)
    assert stat.S_IMODE(os.stat(root / "nodes/x").st_mode) == 0o640
    assert stat.S_IMODE(os.stat(root / "nodes").st_mode) == 0o750


def test_what_dead_writers_and_desktops_leave_is_no_object(backend, root):
    backend.put("nodes/x", b"x")
    for name in (".tmp-0123", ".DS_Store", "Thumbs.db", "x (conflicted copy).json", "ümlaut"):
        (root / "nodes" / name).write_bytes(b"?")
    foreign: list[str] = []
    assert backend.list("nodes", foreign) == ["nodes/x"]
    assert sorted(foreign) == ["nodes/Thumbs.db", "nodes/x (conflicted copy).json", "nodes/ümlaut"]


@posix
def test_links_are_never_followed(backend, root, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    backend.put("nodes/x", b"x")
    (root / "nodes/link").symlink_to(outside / "secret")
    (root / "data").symlink_to(outside)
    for key, error in (("nodes/link", CorruptionError), ("data/secret", StorageError)):
        for call in (backend.get, backend.size, backend.created):
            with pytest.raises(error):
                call(key)
    for call in (
        lambda: backend.put("data/x", b"x"),
        lambda: backend.delete("data/secret"),
        lambda: backend.list("data"),
    ):
        with pytest.raises(StorageError):
            call()
    with pytest.raises(StorageError):
        backend.delete_many(["data/secret"])
    # It is listed as what it stands in the place of, so that nobody takes that for absent.
    assert sorted(backend.list("")) == ["data", "nodes/link", "nodes/x"]
    assert os.listdir(outside) == ["secret"]
    # A link in the place of an object is replaced, not written through.
    backend.put("nodes/link", b"mine")
    assert (outside / "secret").read_bytes() == b"secret"


@posix
@pytest.mark.timeout(10)
def test_a_pipe_in_the_place_of_an_object_does_not_block(backend, root):
    backend.put("nodes/x", b"x")
    os.mkfifo(root / "nodes/pipe")
    with pytest.raises(CorruptionError):
        backend.get("nodes/pipe")


@posix
def test_the_root_may_be_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    LocalBackend(tmp_path / "link").put("x", b"x")
    assert LocalBackend(tmp_path / "real").get("x") == b"x"


def test_what_is_put_in_the_place_of_a_directory_is_refused_with_what_to_do(backend):
    backend.put("data/c.0/x", b"x")
    with pytest.raises(StorageError, match="a directory is in its place: move it away") as error:
        backend.put("data/c.0", b"y")
    assert error.value.key == "data/c.0"
    backend.put("data/e", b"a file")
    for key in ("data/e/x", "data/e/0/x"):
        with pytest.raises(StorageError, match="a file is in the place of its folder: move it away") as error:
            backend.put(key, b"y")
        assert error.value.key == key
    assert not [*backend.leftovers(["data"])]


def test_a_directory_of_a_records_name_is_listed_as_the_record(backend):
    backend.put("nodes/a.json/x", b"x")
    assert backend.list("nodes") == ["nodes/a.json"]
    with pytest.raises(CorruptionError):
        backend.get("nodes/a.json")


def test_directories_are_no_objects(backend):
    backend.put("data/e/x", b"x")
    backend.delete("data/e")
    backend.delete_many(["data/e", "data"])
    assert backend.get("data/e/x") == b"x"
    with pytest.raises(StorageError):
        backend.put("data/e", b"x")
    with pytest.raises(StorageError):
        backend.put("data/e/x/y", b"x")
    assert backend.list("") == ["data/e/x"]


def test_deleting_removes_empty_directories_but_the_first(backend, root):
    backend.put("data/e/p.add/c.0", b"x")
    backend.put("data/e/p.add/c.1", b"x")
    backend.put("lcstore.json", b"x")
    backend.delete("data/e/p.add/c.0")
    assert (root / "data/e/p.add").is_dir()
    backend.delete("data/e/p.add/c.1")
    assert sorted(os.listdir(root)) == ["data", "lcstore.json"]
    assert os.listdir(root / "data") == []
    backend.delete("lcstore.json")
    assert (root / "data").is_dir()
    backend.put("data/e/p.add/c.0", b"again")
    assert backend.get("data/e/p.add/c.0") == b"again"


@posix
def test_many_deletions_cost_one_fsync_for_each_directory(backend, calls):
    names = [f"data/{edge}/{number}" for edge in "ab" for number in range(50)]
    for name in names:
        backend.put(name, b"x")
    calls.made.clear()
    backend.delete_many([*names, "data/absent/x"])
    assert sorted(calls.named("fsync")) == [("fsync", "data/a"), ("fsync", "data/b")]
    assert backend.list("") == []


def test_nothing_is_created_by_looking(backend, root):
    assert backend.list("") == []
    assert backend.list("nodes") == []
    with pytest.raises(NotFoundError):
        backend.get("nodes/x")
    backend.delete("nodes/x")
    assert not root.exists()


@posix
@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_cannot_be_listed_is_not_an_empty_one(backend, root):
    backend.put("nodes/x", b"x")
    os.chmod(root / "nodes", 0)
    try:
        with pytest.raises(StorageError):
            backend.list("nodes")
    finally:
        os.chmod(root / "nodes", 0o700)


def test_a_failing_listing_is_not_an_empty_one(backend, monkeypatch):
    backend.put("nodes/x", b"x")

    def fail(path):
        raise OSError(errno.EIO, "io")

    monkeypatch.setattr(local.os, "scandir", fail)
    with pytest.raises(StorageError):
        backend.list("nodes")


def test_it_travels_to_other_processes(backend, root):
    backend.put("x", b"x")
    other = pickle.loads(pickle.dumps(backend))
    assert other.get("x") == b"x"
    assert other.url == backend.url == f"file://{root}"


def _put_for_ever(root):
    backend = LocalBackend(root)
    number = 0
    while True:
        backend.put(f"data/e/{number}", bytes([number % 256]) * 1_000_000)
        number += 1


@posix
def test_a_killed_writer_leaves_whole_objects_only(backend, root):
    context = multiprocessing.get_context("spawn")
    for _ in range(2):
        child = context.Process(target=_put_for_ever, args=(root,), daemon=True)
        child.start()
        have = len(backend.list("data"))
        while len(backend.list("data")) < have + 3:
            assert child.is_alive()
            threading.Event().wait(0.005)
        child.kill()
        child.join()
        for key in backend.list("data"):
            number = int(key.rpartition("/")[2])
            assert backend.get(key) == bytes([number % 256]) * 1_000_000


@pytest.mark.parametrize("mode", ["a", "w-", "r"])
def test_a_file_is_no_place_for_a_store(tmp_path, mode):
    (tmp_path / "model.pt").write_bytes(b"weights")
    with pytest.raises(InvalidInputError, match="is a file; a store is a folder: name one, or a new one"):
        lcstore.open(tmp_path / "model.pt", mode)
    assert (tmp_path / "model.pt").read_bytes() == b"weights"


@pytest.mark.parametrize(("kind", "of"), [("zip", "zip"), ("tar", "tar"), ("gztar", "tar")])
def test_an_archive_is_answered_with_the_url_of_its_store(tmp_path, kind, of):
    with lcstore.open(tmp_path / "run") as store:
        store.save(7, {"step": 7})
    file = shutil.make_archive(str(tmp_path / "a copy"), kind, tmp_path, "run")
    with pytest.raises(InvalidInputError, match="to read one in this archive: `lcstore ls '") as caught:
        lcstore.open(file, "r")
    with lcstore.open(str(caught.value).split("'")[1], "r") as store:
        assert (store.steps(), store.url.partition(":")[0]) == ([7], of)


def test_of_a_compressed_archive_by_another_name_the_compression_is_named(tmp_path):
    with lcstore.open(tmp_path / "run") as store:
        store.save(7, {"step": 7})
    made = shutil.make_archive(str(tmp_path / "run"), "gztar", tmp_path, "run")
    file = shutil.move(made, tmp_path / "run.tgz")
    with pytest.raises(InvalidInputError, match="to read one in this archive") as caught:
        lcstore.open(file, "r")
    command = shlex.split(str(caught.value).partition("`")[2].rpartition("`")[0])
    assert command[:2] == ["lcstore", "ls"]
    assert command[3] == "--storage-options"
    with lcstore.open(command[2], "r", storage_options=json.loads(command[4])) as store:
        assert store.steps() == [7]


def test_a_folder_that_a_collector_took_before_it_was_made_durable_is_no_failure(tmp_path):
    backend, late_sync = LocalBackend(tmp_path / "store"), LateSync()
    backend.put("first", b"1")
    with putting_off(late_sync):
        for key in ("data/a/0/x", "data/b/0/y"):
            backend.put(key, b"2")
    shutil.rmtree(tmp_path / "store" / "data" / "a")
    late_sync.run()
    assert backend.get("data/b/0/y") == b"2"
    with putting_off(late_sync):
        backend.put("data/c/0/z", b"3")
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(FileNotFoundError):
        late_sync.run()


def test_a_folder_that_goes_while_it_is_made_is_made_again(backend, monkeypatch):
    mkdir, gone = os.mkdir, []

    def there_and_gone(path, *args, **kwargs):
        if str(path).endswith("er") and len(gone) < 3:
            gone.append(path)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        mkdir(path, *args, **kwargs)

    monkeypatch.setattr(os, "mkdir", there_and_gone)
    backend.put("deep/er/x", b"1")
    assert len(gone) == 3
    assert backend.get("deep/er/x") == b"1"


def test_an_object_that_is_not_there_leaves_nothing_behind(tmp_path):
    """What an error leads to, as all that those who asked held, would stay until the collector comes."""
    backend = LocalBackend(tmp_path)
    backend.put("lcstore.json", b"{}")

    def ask() -> weakref.ref[Any]:
        held = Held()
        with pytest.raises(NotFoundError):
            backend.get("copies/lcstore.json")
        return weakref.ref(held)

    gc.disable()
    try:
        assert ask()() is None
    finally:
        gc.enable()


class Held:
    """Something that a function has at hand."""
