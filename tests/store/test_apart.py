"""A new store lies in no other one, and none in it: also where the first save is what looks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import lcstore
from lcstore import InvalidInputError
from lcstore.jobs.deadline import remaining
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.targets import backend_on


class Bucket(MemoryFileSystem):
    """A filesystem as a bucket is one, that notes what it is asked for and denies some of it."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.denied: dict[str, Exception] = {}

    def ls(self, path, detail=True, **how):
        self._note("ls", path)
        return super().ls(path, detail, **how)

    def cat_file(self, path, start=None, end=None, **how):
        self._note("get", path)
        return super().cat_file(path, start, end, **how)

    def _note(self, what: str, path: str) -> None:
        name = f"{what} {path.strip('/')}"
        self.asked.append(name)
        if name in self.denied:
            raise self.denied[name]


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    fs = Bucket()
    yield fs
    fs.rm("/lab", recursive=True)


def save(fs: Bucket, path: str, step: int = 0) -> None:
    with lcstore.open(fs=fs, path=path, threads=1, timeout=60) as store:
        store.save(step, {"w": np.full((8, 8), step, np.float32)})


def there(fs: Bucket) -> list[str]:
    return fs.find("/lab")


def test_no_save_makes_a_store_in_another_one_of_a_bucket(bucket):
    save(bucket, "/lab/nest/gpt")
    before = there(bucket)
    with pytest.raises(
        InvalidInputError, match=r"/lab/nest/gpt/a/lr1 lies inside the store .*/lab/nest/gpt:"
    ):
        save(bucket, "/lab/nest/gpt/a/lr1")
    assert there(bucket) == before


def test_no_save_makes_a_place_of_stores_of_a_bucket_one_store(bucket):
    for name in ("alice/run00", "alice/proj/run08", "bob"):
        save(bucket, f"/lab/runs/{name}")
    before = there(bucket)
    for place, inside in (("/lab/runs/alice", "alice/run00"), ("/lab/runs", "bob"), ("/lab", "bob")):
        with pytest.raises(InvalidInputError, match=f"the store .*/lab/runs/{inside} lies in .*{place}:"):
            save(bucket, place)
    assert there(bucket) == before
    save(bucket, "/lab/runs/alice/run01")
    save(bucket, "/lab/runs/bob", 1)


def test_no_store_is_called_as_the_second_copies_of_the_folder_above_it(bucket, tmp_path):
    """There it hid itself, and made that folder a damaged store."""
    for place in (tmp_path / "copies", "memory://lab/copies/"):
        with pytest.raises(InvalidInputError, match="second copies of a store in the folder above"):
            lcstore.open(place)
    with pytest.raises(InvalidInputError, match="second copies"):
        save(bucket, "/lab/runs/copies")
    save(bucket, "/lab/runs/a")
    with pytest.raises(InvalidInputError, match="second copies"):
        lcstore.copy(backend_on(bucket, "/lab/runs/a"), tmp_path / "copies")
    assert not (tmp_path / "copies").exists()
    save(bucket, "/lab/runs/copies/b")


def test_a_save_that_failed_is_no_store_in_another(bucket):
    bucket.pipe_file("/lab/run/data/rest", b"")
    bucket.pipe_file("/lab/run/logs/events", b"")
    save(bucket, "/lab/run")


def test_the_first_save_of_a_store_alone_looks_around(bucket):
    with lcstore.open(fs=bucket, path="/lab/runs/gpt", threads=1) as store:
        for step in range(2):
            bucket.asked.clear()
            store.save(step, {"w": np.ones((8, 8), np.float32)})
            around = {"ls lab/runs/gpt", "get lab/runs/lcstore.json", "get lab/lcstore.json"}
            assert around.intersection(bucket.asked) == (set() if step else around)
    bucket.asked.clear()
    save(bucket, "/lab/runs/gpt", 2)
    assert around.isdisjoint(bucket.asked)


def test_what_may_not_be_looked_at_hinders_no_save(bucket):
    bucket.denied = {
        "get lab/lcstore.json": PermissionError("Access Denied"),
        "get lab/runs/lcstore.json": OSError("no idea"),
        "ls lab/runs/gpt": NotImplementedError("no listing"),
        "ls lab/runs/bert/sealed": PermissionError("Access Denied"),
    }
    bucket.pipe_file("/lab/runs/bert/sealed/lcstore.json", b"{}")
    for name in ("gpt", "bert"):
        save(bucket, f"/lab/runs/{name}")
        with lcstore.open(fs=bucket, path=f"/lab/runs/{name}", mode="r") as store:
            assert store.steps() == [0]


def test_no_save_waits_long_for_the_look_around(bucket, monkeypatch):
    """A folder of 400,000 pictures beside the store's own had the first save wait for a minute."""
    left = list[float | None]()

    def note(what: str, path: str) -> None:
        if (what, path.strip("/")) in (("ls", "lab/runs/gpt"), ("get", "lab/lcstore.json")):
            left.append(remaining())

    monkeypatch.setattr(bucket, "_note", note)
    save(bucket, "/lab/runs/gpt")
    assert len(left) >= 2
    assert all(seconds is not None and seconds <= 5 for seconds in left[:2])


def test_the_look_around_has_its_time_whole(bucket, monkeypatch, caplog):
    """It was left after half of its time, begun anew, and told of as a target that fails."""
    save(bucket, "/lab")
    monkeypatch.setattr("lcstore.write.apart._LONGEST", 4.0)
    monkeypatch.setattr(bucket, "_note", lambda what, path: time.sleep(2.2 * (path == "/lab/lcstore.json")))
    with pytest.raises(InvalidInputError, match="inside the store"):
        save(bucket, "/lab/runs/gpt")
    assert not caplog.records


def test_who_opened_a_store_before_it_was_made_may_save(bucket):
    late = lcstore.open(fs=bucket, path="/lab/run", threads=1)
    save(bucket, "/lab/run")
    bucket.pipe_file("/lab/lcstore.json", b"{}")
    with late:
        late.save(1, {"w": np.ones((8, 8), np.float32)})


@pytest.fixture
def memory() -> Iterator[str]:
    url = "memory://apart/runs"
    with lcstore.open(f"{url}/a", threads=1) as store:
        store.save(0, {"n": 0})
    yield url
    for name in ("", "/a", "/a/b", "/ab"):
        backend = MemoryBackend(f"apart/runs{name}")
        backend.delete_many(backend.list(""))


def test_in_memory(memory):
    with lcstore.open(memory) as store, pytest.raises(InvalidInputError, match=f"store {memory}/a lies in"):
        store.save(0, {"n": 0})
    with lcstore.open(f"{memory}/a/b") as store, pytest.raises(InvalidInputError, match="lies inside"):
        store.save(0, {"n": 0})
    with lcstore.open(f"{memory}/ab", timeout=5) as store:
        store.save(0, {"n": 0})


def test_no_copy_makes_a_store_in_another_one_of_a_bucket(bucket, memory):
    save(bucket, "/lab/runs/gpt")
    before = there(bucket)
    for place in ("/lab/runs", "/lab/runs/gpt/copy"):
        with pytest.raises(InvalidInputError, match="stores do not lie in each other"):
            lcstore.copy(f"{memory}/a", backend_on(bucket, place))
    assert there(bucket) == before
    for _ in range(2):
        lcstore.copy(f"{memory}/a", backend_on(bucket, "/lab/runs/copy"))
