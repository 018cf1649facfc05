"""The conformance suite passes good backends, and catches each of many broken ones by the right check."""

from __future__ import annotations

import contextlib
import os
import threading
import time

import pytest
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from lcstore.errors import InvalidInputError, NotFoundError, StorageError
from lcstore.storage.backend import Backend, Leftover
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import FsspecBackend
from lcstore.testing import BackendConformance, FaultBackend, checks, run


@pytest.fixture(params=["local", "memory", "fsspec-memory", "fsspec-local", "fsspec-dir", "faultless"])
def opener(request, tmp_path):
    """A function that opens one target, again and again."""
    name = f"conformance-{tmp_path.name}"
    return {
        "local": lambda: LocalBackend(tmp_path / "store"),
        "memory": lambda: MemoryBackend(name),
        "fsspec-memory": lambda: FsspecBackend(MemoryFileSystem(), f"/{name}"),
        "fsspec-local": lambda: FsspecBackend(LocalFileSystem(), str(tmp_path)),
        "fsspec-dir": lambda: FsspecBackend(DirFileSystem(str(tmp_path), LocalFileSystem()), "sub"),
        "faultless": lambda: FaultBackend(MemoryBackend(name)),
    }[request.param]


@pytest.mark.parametrize("check", checks())
def test_a_good_backend_passes(opener, check):
    backend = opener()
    assert isinstance(backend, Backend)
    getattr(BackendConformance(backend, opener), check)()
    assert backend.list("") == []


@pytest.fixture
def remote():
    """A target named by the environment: LCSTORE_TEST_URL=s3://bucket/prefix."""
    url = os.environ.get("LCSTORE_TEST_URL")
    if not url:
        pytest.skip("LCSTORE_TEST_URL is not set")
    from lcstore.storage.targets import open_backend

    return lambda: open_backend(url)


@pytest.mark.parametrize("check", checks())
def test_a_target_from_the_environment_passes(remote, check):
    getattr(BackendConformance(remote(), remote), check)()


class Broken(MemoryBackend):
    """The memory backend with one promise broken by each subclass."""


class ExposesPrefixes(Broken):
    def put(self, key, data):
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        super().put(key, view[: len(view) // 2])
        time.sleep(0.002)
        super().put(key, view)


class ListsBeforeItIsThere(Broken):
    """A name that is listed and read as empty first, as a file opened for writing is."""

    def put(self, key, data):
        super().put(key, b"")
        time.sleep(0.002)
        super().put(key, data)


class LosesData(Broken):
    def put(self, key, data):
        super().put(key, b"" if len(data) > 4096 else data)


class DropsTheLastByte(Broken):
    def get(self, key, start=None, end=None):
        return super().get(key, start, end)[: 1 << 20]


class ReturnsArrays(Broken):
    def get(self, key, start=None, end=None):
        return bytearray(super().get(key, start, end))


class KeepsTheCallersBuffer(Broken):
    def __init__(self, name):
        super().__init__(name)
        self.kept = {}

    def put(self, key, data):
        super().put(key, data)
        self.kept[key] = data

    def get(self, key, start=None, end=None):
        super().get(key)
        return bytes(memoryview(self.kept[key]).cast("B") if len(self.kept[key]) else b"")[start:end]


class RefusesARetry(Broken):
    def put(self, key, data):
        if key in self.list(key.rpartition("/")[0]):
            raise StorageError("exists", key=key)
        super().put(key, data)


class EmptyForMissing(Broken):
    def get(self, key, start=None, end=None):
        try:
            return super().get(key, start, end)
        except NotFoundError:
            return b""


class RawErrorForMissing(Broken):
    def get(self, key, start=None, end=None):
        try:
            return super().get(key, start, end)
        except NotFoundError as error:
            raise FileNotFoundError(key) from error


class StorageErrorForMissing(Broken):
    def size(self, key):
        try:
            return super().size(key)
        except NotFoundError as error:
            raise StorageError("404", key=key) from error


class ZeroSizeForMissing(Broken):
    def size(self, key):
        try:
            return super().size(key)
        except NotFoundError:
            return 0


class InclusiveRanges(Broken):
    def get(self, key, start=None, end=None):
        return super().get(key, start, end if end is None else end + 1)


class IgnoresRanges(Broken):
    def get(self, key, start=None, end=None):
        return super().get(key)


class FailsPastTheEnd(Broken):
    def get(self, key, start=None, end=None):
        if start is not None and start >= self.size(key):
            raise StorageError("416", key=key)
        return super().get(key, start, end)


class WrongSize(Broken):
    def size(self, key):
        return super().size(key) + 1


class ListsByText(Broken):
    """Takes ab/z to lie below a."""

    def list(self, prefix, foreign=None):
        return [key for key in super().list("") if key.startswith(prefix)]


class ListsOneLevel(Broken):
    def list(self, prefix, foreign=None):
        return [key for key in super().list(prefix) if "/" not in key[len(prefix) + 1 :]]


class ListsTwice(Broken):
    def list(self, prefix, foreign=None):
        return super().list(prefix) * 2


class FailsToListNothing(Broken):
    def list(self, prefix, foreign=None):
        found = super().list(prefix)
        if not found and prefix:
            raise NotFoundError("no such folder", key=prefix)
        return found


class StaleList(Broken):
    """Remembers listings, as fsspec's caches do."""

    def __init__(self, name):
        super().__init__(name)
        self.remembered = {}

    def list(self, prefix, foreign=None):
        return self.remembered.setdefault(prefix, super().list(prefix))


class LateList(Broken):
    """Lists what was there a moment ago."""

    def list(self, prefix, foreign=None):
        return [
            key for key in super().list(prefix) if time.time() - super(LateList, self).created(key) > 0.005
        ]


class DeleteRaises(Broken):
    def delete(self, key):
        self.get(key)
        super().delete(key)


class DeletesNothing(Broken):
    def delete(self, key):
        self._check_writable(key)
        if not key or ".." in key:
            super().delete(key)


class DeletesFolders(Broken):
    def delete(self, key):
        for other in self.list(key.rpartition("/")[0]):
            super().delete(other)
        super().delete(key)


class DeletesTooFew(Broken):
    def delete_many(self, keys):
        for key in list(keys)[1:]:
            self.delete(key)


class TakesAnyKey(Broken):
    def put(self, key, data):
        self._put(str(key), memoryview(data))

    def delete(self, key):
        self._delete(str(key))


class TakesCapitals(Broken):
    def put(self, key, data):
        with contextlib.suppress(InvalidInputError):
            super().put(key.lower(), data)
            return
        super().put(key, data)


class EscapesItsRoot(Broken):
    def get(self, key, start=None, end=None):
        if ".." in key:
            return b"root:x:0:0"
        return super().get(key, start, end)


class MixesUpThreads(Broken):
    """Passes data from method to method in an attribute."""

    def put(self, key, data):
        self.current = (key, bytes(data))
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.001)
        super().put(*self.current if key == self.current[0] or "/t/" in key else (key, data))


class ClockRunsBackwards(Broken):
    def created(self, key):
        return 1e9 - super().created(key) * 1000


class ClockForSome(Broken):
    def created(self, key):
        moment = super().created(key)
        return None if key.endswith("b") else moment


class CountsObjects(Broken):
    def leftovers(self, folders, before=None):
        return [Leftover(1, 0.0) for key in self.list("") if key.split("/")[0] in "/".join(folders)]


class PrivateView(Broken):
    """What it puts, nobody else sees: a write-back cache."""

    def __init__(self, name):
        super().__init__(os.urandom(8).hex())


CAUGHT_BY = {
    ExposesPrefixes: "atomic_put",
    ListsBeforeItIsThere: "atomic_put",
    LosesData: "round_trip",
    DropsTheLastByte: "round_trip",
    ReturnsArrays: "round_trip",
    KeepsTheCallersBuffer: "buffers",
    RefusesARetry: "retry",
    EmptyForMissing: "missing",
    RawErrorForMissing: "missing",
    StorageErrorForMissing: "missing",
    ZeroSizeForMissing: "missing",
    InclusiveRanges: "ranges",
    IgnoresRanges: "ranges",
    FailsPastTheEnd: "ranges",
    WrongSize: "size",
    ListsByText: "list",
    ListsOneLevel: "list",
    ListsTwice: "list",
    FailsToListNothing: "list",
    StaleList: "fresh_list",
    LateList: "fresh_list",
    DeleteRaises: "delete",
    DeletesNothing: "delete",
    DeletesFolders: "delete",
    DeletesTooFew: "delete",
    TakesAnyKey: "hostile_keys",
    TakesCapitals: "hostile_keys",
    EscapesItsRoot: "hostile_keys",
    MixesUpThreads: "threads",
    ClockRunsBackwards: "created",
    ClockForSome: "created",
    CountsObjects: "leftovers",
    PrivateView: "round_trip",
}


@pytest.mark.parametrize("broken", CAUGHT_BY, ids=lambda kind: kind.__name__)
def test_a_broken_backend_is_caught_by_the_right_check(broken, tmp_path):
    name = f"broken-{tmp_path.name}"
    backend = broken(name)
    findings = {finding.check: finding.problem for finding in run(backend, lambda: broken(name))}
    assert findings[CAUGHT_BY[broken]] is not None, findings
    assert sorted(findings) == sorted(name.removeprefix("check_") for name in checks())


def test_every_check_catches_something():
    caught = set(CAUGHT_BY.values()) | {"delete_races_put"}
    assert {f"check_{name}" for name in caught} == set(checks())


class ForgetsFolders(LocalBackend):
    """Does not expect that another thread removes the folder into which it is about to write."""

    turn = threading.Lock()

    def _create(self, temporary, folder):
        os.makedirs(folder, exist_ok=True)
        if folder.endswith("deep/er") and self.turn.acquire(blocking=False):
            # One writer waits until the others have emptied its folder: they end, so that happens.
            found, end = os.open(folder, os.O_RDONLY), time.monotonic() + 0.2
            while os.fstat(found).st_nlink and time.monotonic() < end:
                time.sleep(0.0002)
            self.turn.release()
            try:
                return os.open(os.path.basename(temporary), os.O_WRONLY | os.O_CREAT, dir_fd=found)
            finally:
                os.close(found)
        return os.open(temporary, os.O_WRONLY | os.O_CREAT)


class WritesInPlace(LocalBackend):
    def _put(self, key, data):
        path = self._path(key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb", buffering=0) as file:
            for start in range(0, len(data), 1 << 16):
                file.write(data[start : start + (1 << 16)])
                time.sleep(0.001)  # so that a watcher gets its turn, however busy the machine


class LeavesTemporaries(LocalBackend):
    def _put(self, key, data):
        super()._put(f"{key}~tmp", data)
        super()._put(key, data)


class FollowsDots(LocalBackend):
    def _path(self, key):
        return f"{self.root}/{key}"

    def get(self, key, start=None, end=None):
        return self._get(key, start or 0, end)


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (ForgetsFolders, "delete_races_put"),
        (WritesInPlace, "atomic_put"),
        (LeavesTemporaries, "list"),
        (FollowsDots, "missing"),
    ],
)
def test_broken_files_are_caught(broken, check, tmp_path):
    findings = {finding.check: finding.problem for finding in run(broken(tmp_path))}
    assert findings[check] is not None, findings
