"""Targets that fill up, fall silent, lose buckets and change bytes: errors of ours, nothing left over."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from states import same

import lcstore
from lcstore import CorruptionError, InvalidInputError, NotFoundError, StorageError, UnknownOutcomeError
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import FsspecBackend

BLOCK = 4096


def state(number: int) -> dict[str, object]:
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((64, 64)).astype(np.float32)
    return {"w": weights + np.float32(1e-3 * number), "b": np.full(50, number, np.float32), "n": number}


def _below(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        yield entry
        if entry.is_dir(follow_symlinks=False):
            yield from _below(entry.path)


class SmallDisk(LocalBackend):
    """A directory on a disk of so many bytes, of which each file and directory takes whole blocks."""

    def __init__(self, root, size: int) -> None:
        super().__init__(root)
        self.size_of_disk = size

    def used(self) -> int:
        return sum(self._taken(entry) for entry in _below(self.root))

    @staticmethod
    def _taken(entry: os.DirEntry[str]) -> int:
        try:
            return BLOCK if entry.is_dir() else -(-entry.stat(follow_symlinks=False).st_size // BLOCK) * BLOCK
        except FileNotFoundError:  # a temporary file of another thread, renamed since it was listed
            return 0

    def _create(self, temporary, folder):
        self._room(BLOCK)
        return super()._create(temporary, folder)

    def _put(self, key, data):
        self._room(len(data))
        super()._put(key, data)

    def _room(self, nbytes: int) -> None:
        if self.used() + nbytes > self.size_of_disk:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("room", range(1, 12, 2))
def test_a_full_disk_is_as_full_after_twenty_failed_saves(tmp_path, room):
    disk = SmallDisk(tmp_path / "store", 1 << 30)
    with lcstore.open(disk, grace=0) as store:
        store.save(0, state(0))
        store.save(1, state(1))
        before = disk.used()
        disk.size_of_disk = before + room * BLOCK // 2
        for number in range(20):
            with pytest.raises(StorageError) as caught:
                store.save(2, state(2 + number), exact=True)
            assert not isinstance(caught.value, UnknownOutcomeError)
            assert disk.used() == before
        disk.size_of_disk += 64 * BLOCK
        store.retire(0)
        store.collect(grace=0)
        assert same(store.restore(1)["n"], 1)
        disk.size_of_disk = 1 << 30
        store.save(2, state(2))
        assert store.restore(2)["n"] == 2
        assert store.verify().ok


def test_a_save_takes_away_only_what_is_its_own():
    class Refusing(MemoryBackend):
        refused = "nodes/"

        def _put(self, key, data):
            if key.startswith(self.refused):
                raise PermissionError("403")
            super()._put(key, data)

    backend = Refusing.fresh()
    backend.refused = "nothing"
    with lcstore.open(backend) as store:
        store.save(0, state(0))
        stranger = {"data/" + "a" * 32 + "/0/zarr.json": b"{}"}
        backend.put(*stranger.popitem())
        there = backend.snapshot()
        backend.refused = "nodes/"
        with pytest.raises(StorageError):
            store.save(1, state(1))
        assert backend.snapshot() == there


def test_what_a_sent_record_may_name_stays():
    class Lost(MemoryBackend):
        lost = False

        def put(self, key, data):
            if self.lost and key.startswith("nodes/"):
                raise UnknownOutcomeError("no reply", key=key)
            super().put(key, data)

    backend = Lost.fresh()
    with lcstore.open(backend) as store:
        store.save(0, state(0))
        backend.lost = True
        before = len(backend.list("data"))
        with pytest.raises(UnknownOutcomeError):
            store.save(1, state(1))
        assert len(backend.list("data")) > before
        backend.lost = False
        store.save(2, state(2))
        assert store.steps() == [0, 1, 2]
        assert store.verify().ok


class Moody(MemoryBackend):
    """Answers nothing to some requests, or only after it has done what was asked."""

    silent: tuple[str, ...] = ()
    lands = False

    def _hang(self, name: str) -> None:
        if name in self.silent or "all" in self.silent:
            self.over.wait(20)
            raise ConnectionError("cut")

    def _put(self, key, data):
        if self.lands:
            super()._put(key, data)
        self._hang("put")
        self._hang(key.partition("/")[0])
        super()._put(key, data)

    def _get(self, key, start, end):
        self._hang("get")
        return super()._get(key, start, end)

    def _list(self, prefix):
        self._hang("list")
        return super()._list(prefix)

    def _delete(self, key):
        self._hang("delete")
        super()._delete(key)


@pytest.fixture
def moody():
    backend = Moody.fresh()
    backend.over = threading.Event()
    yield backend
    backend.over.set()


@pytest.mark.parametrize("lands", [False, True])
@pytest.mark.parametrize(
    "silent", [("all",), ("put",), ("put", "delete"), ("list",), ("nodes",), ("nodes", "get"), ("data",)]
)
def test_a_silent_target_gives_an_error_in_time_and_nothing_is_doubled(moody, silent, lands):
    with lcstore.open(moody, timeout=0.5, retries=2) as store:
        store.save(0, state(0))
        moody.silent, moody.lands = silent, lands
        started = time.monotonic()
        try:
            store.save(1, state(1))
        except StorageError as error:
            committed = any(part in silent for part in ("nodes", "list"))
            assert isinstance(error, UnknownOutcomeError) == committed
        else:
            assert lands
            assert silent == ("nodes",)
        assert time.monotonic() - started < 0.5 + 2
        moody.silent = ()
        store.save(2, state(2))
        assert store.steps() in ([0, 2], [0, 1, 2])
        assert len(list(store.states())) == len(store.steps())
        for step in store.steps():
            assert store.restore(step)["n"] == step
        assert store.verify().ok


def test_opening_a_silent_target_ends_in_time(moody):
    moody.silent = ("all",)
    started = time.monotonic()
    with pytest.raises(StorageError, match="no answer"):
        lcstore.open(moody, "r", timeout=0.5)
    assert time.monotonic() - started < 2.5


def test_a_save_as_a_whole_can_be_bounded(moody):
    with lcstore.open(moody, timeout=15) as store:
        store.save(0, state(0))
        moody.silent = ("put",)
        started = time.monotonic()
        with pytest.raises(StorageError):
            store.save(1, state(1), timeout=0.4)
        assert time.monotonic() - started < 2.4
    with lcstore.open(moody) as store, pytest.raises(InvalidInputError, match="timeout"):
        store.save(1, state(1), timeout=3)


@pytest.mark.parametrize("mode", ["r", "r+", "a", "w-"])
def test_a_missing_bucket_is_named(mode):
    from fsspec.implementations.memory import MemoryFileSystem

    class Bucketless(MemoryFileSystem):
        protocol = "s3"
        cachable = False

        def cat_file(self, path, start=None, end=None, **options):
            raise FileNotFoundError("The specified bucket does not exist")

    with pytest.raises(NotFoundError, match="no bucket 'lost'"):
        lcstore.open(FsspecBackend(Bucketless(), "lost/run", "s3://lost/run"), mode)


class Flipping(MemoryBackend):
    """Changes a byte of what is read, so many times of each object in a folder, or of its first one alone."""

    folder = "nothing"
    times = 0
    first = None

    def _get(self, key, start, end):
        data = super()._get(key, start, end)
        if self.times and key.startswith(self.folder) and data:
            if self.first == "":
                self.first = key
            if self.first in (None, key):
                self.times -= 1
                return data[:-1] + bytes([data[-1] ^ 1])
        return data


@pytest.mark.parametrize("folder", ["nodes/", "layouts/", "data/"])
def test_bytes_that_changed_on_the_way_are_read_again(folder):
    backend = Flipping.fresh()
    with lcstore.open(backend, durability="none") as store:
        for number in range(3):
            store.save(number, state(number))
    backend.folder, backend.times = folder, 1
    with lcstore.open(backend, "r") as store:
        assert store.restore()["n"] == 2
    backend.times = 1 << 30
    with lcstore.open(backend, "r") as store, pytest.raises(CorruptionError):
        store.restore(on_corrupt="previous")
    backend.times, backend.first = 2, ""
    with lcstore.open(backend, "r", threads=1) as store, pytest.warns(lcstore.FallbackWarning):
        assert store.restore(on_corrupt="previous")["n"] in (0, 1)


class Mute(MemoryBackend):
    """Does not say whether records of some folder arrived."""

    folder = ""

    def put(self, key: str, data: bytes) -> None:
        if self.folder and key.startswith(self.folder):
            raise UnknownOutcomeError("no reply", key=key)
        super().put(key, data)


@pytest.mark.parametrize(
    ("folder", "call"),
    [
        ("retired/", lambda store: store.retire(0)),
        ("names/", lambda store: store.pin(1)),
        ("condemned/", lambda store: store.collect(grace=0)),
        ("nodes/", lambda store: store.save(3, state(3))),
    ],
)
def test_what_is_to_be_done_again_is_what_was_done(folder, call):
    backend = Mute.fresh()
    with lcstore.open(backend, policy="lossless", durability="none", grace=0) as store:
        for number in range(3):
            store.save(number, state(number))
        if folder == "condemned/":
            store.retain("LatestN(1)")
        backend.folder = folder
        with pytest.raises(UnknownOutcomeError, match="again") as caught:
            call(store)
        backend.folder = ""
    assert ("save again" in caught.value.message) == (folder == "nodes/")
