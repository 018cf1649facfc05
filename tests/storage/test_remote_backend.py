"""The fsspec backend: listings that never lie, outcomes that are never guessed, read-only targets."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import secrets
import time
from datetime import UTC, datetime
from typing import ClassVar

import fsspec
import pytest
from fsspec.asyn import AsyncFileSystem, _run_coros_in_chunks
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from lcstore.errors import (
    InvalidInputError,
    LcstoreError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from lcstore.jobs.deadline import deadline
from lcstore.storage import remote
from lcstore.storage.remote import FsspecBackend
from lcstore.storage.sftp import SftpBackend
from lcstore.storage.web import WebBackend


class Flaky(MemoryFileSystem):
    """A filesystem whose methods can be made to fail, under a protocol of choice."""

    cachable = False
    failing: dict[str, Exception]

    def __init__(self, protocol="s3", **options):
        super().__init__(**options)
        self.protocol = protocol
        self.failing = {}
        self.calls: list[str] = []

    def _step(self, name):
        self.calls.append(name)
        if name in self.failing:
            raise self.failing[name]

    def pipe_file(self, path, value, **options):
        assert type(value) is bytes
        self._step("pipe_file")
        super().pipe_file(path, value, **options)

    def cat_file(self, path, start=None, end=None, **options):
        self._step("cat_file")
        return super().cat_file(path, start=start, end=end, **options)

    def ls(self, path, detail=True, **options):
        self._step("ls")
        return super().ls(path, detail=detail, **options)

    def find(self, path, **options):
        self._step("find")
        return super().find(path, **options)

    def mv(self, path1, path2, **options):
        self._step("mv")
        super().mv(path1, path2, **options)

    def rm(self, path, **options):
        self._step("rm")
        super().rm(path, **options)


@pytest.fixture
def root():
    return f"/{secrets.token_hex(8)}/store"


class Bucket(AsyncFileSystem):
    """Deletes objects, each of which may fail once, or always."""

    protocol = "az"
    cachable = False
    objects: set[str]
    fails: dict[str, Exception]
    always = False

    async def _rm_file(self, path, **options):
        if self.always:
            raise OSError("503")
        if path in self.fails:
            raise self.fails.pop(path)
        self.objects.discard(path)


@pytest.fixture(params=["s3", "unheard-of"])
def fs(request):
    return Flaky(request.param)


@pytest.fixture
def backend(fs, root):
    return FsspecBackend(fs, root, "x://store")


FAILURES = [
    OSError("network"),
    PermissionError("403"),
    TimeoutError("late"),
    ValueError("client"),
    KeyError("x"),
    RuntimeError("loop"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda error: type(error).__name__)
def test_a_listing_that_fails_is_not_an_empty_one(backend, fs, failure):
    backend.put("nodes/x", b"x")
    fs.failing = {"ls": failure, "find": failure}
    with pytest.raises(StorageError) as caught:
        backend.list("nodes")
    assert caught.value.key == "nodes"


@pytest.mark.parametrize("failure", FAILURES, ids=lambda error: type(error).__name__)
def test_a_read_that_fails_is_not_a_missing_object(backend, fs, failure):
    backend.put("nodes/x", b"x")
    fs.failing = {"cat_file": failure}
    with pytest.raises(StorageError) as caught:
        backend.get("nodes/x")
    assert not isinstance(caught.value, NotFoundError)


@pytest.mark.parametrize(
    "failure", [OSError("cut"), TimeoutError(), RuntimeError("client"), ValueError("412")]
)
@pytest.mark.parametrize("method", ["pipe_file", "mv"])
def test_a_write_without_a_reply_is_undecided(root, failure, method):
    fs = Flaky("unheard-of" if method == "mv" else "s3")
    backend = FsspecBackend(fs, root)
    fs.failing = {method: failure}
    with pytest.raises(UnknownOutcomeError) as caught:
        backend.put("nodes/x", b"x")
    assert caught.value.outcome_unknown
    assert caught.value.message.endswith(f": {type(failure).__name__}: {failure}".removesuffix(": "))
    fs.failing = {}
    assert backend.list("") == []


@pytest.mark.parametrize(
    "failure", [PermissionError("403"), FileNotFoundError("bucket"), NotImplementedError()]
)
def test_a_write_that_was_refused_did_not_happen(root, failure):
    fs = Flaky("s3")
    fs.failing = {"pipe_file": failure}
    with pytest.raises(StorageError) as caught:
        FsspecBackend(fs, root).put("nodes/x", b"x")
    assert not caught.value.outcome_unknown
    assert not isinstance(caught.value, NotFoundError)


def test_whole_objects_are_read_with_an_explicit_range(root):
    seen = []

    class Recording(Flaky):
        def cat_file(self, path, start=None, end=None, **options):
            seen.append((start, end))
            return super().cat_file(path, start=start, end=end, **options)

    backend = FsspecBackend(Recording("s3"), root)
    backend.put("x", b"abc")
    backend.get("x")
    backend.get("x", 1, 2)
    assert seen == [(0, None), (1, 2)]


def test_a_bucket_that_refuses_ranges_past_the_end_is_understood(root):
    class Strict(Flaky):
        def cat_file(self, path, start=None, end=None, **options):
            if (start or 0) >= self.size(path):
                raise OSError(22, "InvalidRange")
            return super().cat_file(path, start=start, end=end, **options)

    backend = FsspecBackend(Strict("s3"), root)
    backend.put("empty", b"")
    backend.put("x", b"abc")
    assert backend.get("empty") == b""
    assert backend.get("x", 3, 9) == backend.get("x", 100) == b""
    assert backend.get("x", 2, 9) == b"c"
    with pytest.raises(NotFoundError):
        backend.get("y")


def test_a_server_that_ignores_ranges_is_noticed(root):
    class Whole(Flaky):
        def cat_file(self, path, start=None, end=None, **options):
            return super().cat_file(path)

    backend = FsspecBackend(Whole("s3"), root)
    backend.put("x", b"abcdef")
    assert backend.get("x", 0, 2) == b"ab"
    with pytest.raises(StorageError):
        backend.get("x", 1, 3)
    assert backend.get("x", 3, 3) == b""
    with pytest.raises(NotFoundError):
        backend.get("y", 3, 3)
    web = FsspecBackend(Whole("http"), backend._root)
    assert web.get("x", 1, 3) == b"bc"


def test_a_listing_cache_is_emptied_before_every_listing(root):
    class Cached(Flaky):
        remembered: ClassVar[dict] = {}

        def find(self, path, **options):
            return self.remembered.setdefault(path, super().find(path, **options))

        def invalidate_cache(self, path=None):
            self.remembered.clear()

    fs = Cached("s3")
    backend, other = FsspecBackend(fs, root), FsspecBackend(fs, root)
    assert backend.list("nodes") == []
    other.put("nodes/x", b"x")
    assert backend.list("nodes") == ["nodes/x"]


def test_names_outside_what_was_asked_for_are_an_error(root):
    class Lost(Flaky):
        def find(self, path, **options):
            return {"another/root/nodes/x": {"size": 1}}

    with pytest.raises(StorageError, match="outside"):
        FsspecBackend(Lost("s3"), root).list("nodes")


def test_a_listing_holds_keys_only(root):
    class Odd(Flaky):
        def find(self, path, **options):
            names = ("nodes/x", "nodes/.tmp-1", "nodes/../../etc/passwd", "nodes/X", "nodesy/x")
            return {f"{root}/{name}": {"size": 1} for name in names}

    foreign: list[str] = []
    assert FsspecBackend(Odd("s3"), root).list("nodes", foreign) == ["nodes/x"]
    assert foreign == ["nodes/X"]


class Renaming(LocalFileSystem):
    """A server that publishes in parts, and does not rename onto an existing name."""

    cachable = False
    protocol = "sftp-like"
    parts = 4

    def pipe_file(self, path, value, **options):
        with self.open(path, "wb") as file:
            step = max(1, len(value) // self.parts)
            for start in range(0, len(value), step):
                file.write(value[start : start + step])
                file.flush()

    def mv(self, path1, path2, **options):
        if os.path.exists(path2):
            raise OSError("exists")
        os.rename(path1, path2)


def test_beside_and_rename_where_a_target_publishes_in_parts(tmp_path):
    backend = FsspecBackend(Renaming(), str(tmp_path))
    backend.put("data/e/x", b"same bytes")
    backend.put("data/e/x", b"same bytes")
    with pytest.raises(UnknownOutcomeError):
        backend.put("data/e/x", b"other bytes")
    assert backend.get("data/e/x") == b"same bytes"
    assert os.listdir(tmp_path / "data/e") == ["x"]


class Copying(Renaming):
    """A server of which fsspec knows no rename: it copies and deletes."""

    mv = AbstractFileSystem.mv


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_target_that_renames_by_copying_is_only_read(tmp_path, wrapped):
    fs = DirFileSystem(str(tmp_path), Copying()) if wrapped else Copying()
    root = "" if wrapped else str(tmp_path)
    (tmp_path / "x").write_bytes(b"x")
    backend = FsspecBackend(fs, root)
    assert backend.get("x") == b"x"
    assert not backend.writable
    for call in (lambda: backend.put("y", b"y"), lambda: backend.delete("x")):
        with pytest.raises(InvalidInputError, match="copying and deleting"):
            call()
    assert os.listdir(tmp_path) == ["x"]


def test_a_class_that_says_that_it_puts_whole_objects_is_written_to_as_a_bucket(tmp_path):
    with pytest.raises(InvalidInputError, match="says so: puts_whole_objects = True"):
        FsspecBackend(Copying(), str(tmp_path)).put("x", b"x")

    class Whole(Copying):
        puts_whole_objects = True

    backend = FsspecBackend(Whole(), str(tmp_path))
    backend.put("x", b"x")
    assert (backend.get("x"), backend.durable) == (b"x", True)


def test_a_folder_of_a_bucket_is_written_as_the_bucket_is(root):
    bucket = Flaky("s3")
    backend = FsspecBackend(DirFileSystem(root, bucket), "run")
    backend.put("x", b"x")
    assert backend.durable
    assert FsspecBackend(bucket, f"{root}/run").get("x") == b"x"
    assert "mv" not in bucket.calls


def test_only_some_of_the_folders_that_were_made_are_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "_MOST_MADE", 4)
    backend = FsspecBackend(Renaming(), str(tmp_path))
    wanted = {f"data/e{number}/x" for number in range(10)}
    for key in sorted(wanted) * 2:
        backend.put(key, b"x")
    assert {*backend.list("")} == wanted
    assert len(backend._made) <= 4


def test_a_directory_that_a_collector_removed_is_made_again(tmp_path):
    backend = FsspecBackend(Renaming(), str(tmp_path))
    backend.put("data/e/x", b"x")
    (tmp_path / "data/e/x").unlink()
    (tmp_path / "data/e").rmdir()
    backend.put("data/e/y", b"y")
    backend.delete_many(["data/e/y"])
    assert os.listdir(tmp_path / "data") == []


@pytest.mark.parametrize(
    "fails", [{}, {"a": OSError("503")}, {"absent": FileNotFoundError(), "b": OSError("503")}]
)
def test_a_deletion_that_fails_among_many_is_made_up_for(fails):
    """A client of Azure passed over what failed behind an object that was absent."""
    fs = Bucket()
    fs.objects = {f"bucket/run/{name}" for name in "abc"}
    fs.fails = {f"bucket/run/{name}": failure for name, failure in fails.items()}
    FsspecBackend(fs, "bucket/run", "az://bucket/run").delete_many(["a", "absent", "b", "c"])
    assert not fs.objects
    fs.objects, fs.always = {"bucket/run/a"}, True
    with pytest.raises(LcstoreError, match="503"):
        FsspecBackend(fs, "bucket/run", "az://bucket/run").delete_many(["absent", "a"])


def test_deletions_do_not_take_the_path_of_a_store_for_a_pattern(root):
    """``run[1]`` matches ``run1``: objects of the store beside were deleted, and its own were not."""
    fs = Flaky()
    own, other = (FsspecBackend(fs, f"{root}/{name}") for name in ("run[1]", "run1"))
    through = FsspecBackend(DirFileSystem(f"{root}/run[1]", fs), "")
    for name in ("a", "b"):
        for backend in (own, other):
            backend.put(f"data/{name}", b"x")
        (own if name == "a" else through).delete_many([f"data/{name}"])
    assert (own.list(""), other.list("")) == ([], ["data/a", "data/b"])


@pytest.mark.parametrize("protocol", ["http", "zip", "simplecache", "filecache", "reference", "github"])
def test_targets_that_are_only_read(protocol, root):
    backend = FsspecBackend(Flaky(protocol), root)
    assert not backend.writable
    for call in (
        lambda: backend.put("x", b"x"),
        lambda: backend.delete("x"),
        lambda: backend.delete_many(["x"]),
    ):
        with pytest.raises(InvalidInputError, match="only be read"):
            call()
    assert backend.list("") == []


def test_passwords_are_not_shown(root):
    backend = FsspecBackend(Flaky("sftp"), root, "sftp://me:pa55@host/x")
    assert "pa55" not in backend.url + repr(backend)
    backend._fs.failing = {"ls": OSError("x")}
    with pytest.raises(LcstoreError) as caught:
        backend.list("")
    assert "pa55" not in str(caught.value)


def test_an_asynchronous_filesystem_does_not_survive_a_fork(backend, fs, monkeypatch):
    backend.put("x", b"x")
    monkeypatch.setattr(type(fs), "async_impl", True)
    assert backend.get("x") == b"x"
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StorageError, match="fork"):
        backend.get("x")


class Slow(AsyncFileSystem):
    """Deletes in tasks of its own, as clients of buckets do, and fails after a while."""

    protocol = "s3"

    async def _rm(self, path, recursive=False, **options):
        await _run_coros_in_chunks([self._refused()], batch_size=3, nofiles=True)

    async def _rm_file(self, path, **options):
        await self._refused()

    async def _refused(self):
        await asyncio.sleep(0.2)
        raise OSError("the server is down")


def test_a_deletion_that_nobody_waits_for_any_more_logs_nothing(caplog):
    backend = FsspecBackend(Slow(), "bucket/run", "s3://bucket/run")
    assert backend.traits.together
    with pytest.raises(LcstoreError), deadline(0.05):
        backend.delete_many(["x", "y"])
    time.sleep(0.5)
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [(datetime(2026, 1, 1, tzinfo=UTC), 1767225600.0), (datetime(2026, 1, 1), 1767225600.0), (None, None)],
)
def test_the_storage_s_clock(root, moment, seconds):
    class Clock(Flaky):
        def modified(self, path):
            if moment is None:
                raise NotImplementedError
            return moment

    backend = FsspecBackend(Clock("s3"), root)
    backend.put("x", b"x")
    assert backend.created("x") == seconds


def test_it_travels_to_other_processes(tmp_path):
    backend = FsspecBackend(DirFileSystem(str(tmp_path), LocalFileSystem()), "sub", "dir://sub")
    backend.put("x", b"x")
    other = pickle.loads(pickle.dumps(backend))
    assert (other.get("x"), other.url, other.writable) == (b"x", "dir://sub", True)


@pytest.mark.parametrize("kind", [SftpBackend, WebBackend])
def test_each_kind_travels_as_what_it_is(kind, tmp_path):
    """A store behind http lost its way to list folders in a pool of processes."""
    sent = kind(DirFileSystem(str(tmp_path), LocalFileSystem()), "sub", "dir://sub", read_only="zip")
    other = pickle.loads(pickle.dumps(sent))
    assert (type(other), other.url, other.refusal) == (kind, "dir://sub", sent.refusal)


def test_it_reads_what_the_local_backend_wrote(tmp_path):
    from lcstore.storage.local import LocalBackend

    LocalBackend(tmp_path).put("nodes/x", b"x")
    remote = FsspecBackend(fsspec.filesystem("file"), str(tmp_path))
    assert (remote.list(""), remote.get("nodes/x"), remote.size("nodes/x")) == (["nodes/x"], b"x", 1)
