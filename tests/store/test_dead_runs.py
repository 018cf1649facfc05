"""Collecting at once what a dead run leaves, and refusing to where the run may be alive."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

import lcstore
from lcstore import ConflictError, InvalidInputError
from lcstore.maintain.dead import LEAST
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, FaultBackend
from lcstore.write import instant
from lcstore.write.guard import RECENT

ORPHAN = "data/" + "5" * 32 + "/0/plain-float64.set/c.0"


def age(url: Path, ago: float, apart: float) -> None:
    """Have the store be as if its saves had been some seconds apart, the last one so long ago."""
    now = time.time()
    for path in url.rglob("*"):
        os.utime(path, (now - ago, now - ago))
    for number, path in enumerate(sorted((url / "nodes").iterdir(), reverse=True)):
        os.utime(path, (now - ago - number * apart,) * 2)


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """A store with a grace of a day, of which all but two states were let go."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(tmp_path / "run", threads=1) as store:
        for step in range(8):
            weights = weights + random.standard_normal((64, 64)).astype(np.float32) * np.float32(0.01)
            store.save(step, {"model": {"w.weight": weights}})
        store.retain("latest:1 | every:4")
        store.compact()
    return tmp_path / "run"


def test_space_is_free_at_once(url):
    with lcstore.open(url, "r+", threads=1) as store:
        wanted = {step: store.read(step, "model/w.weight") for step in store.steps()}
        store.backend.put(ORPHAN, b"12345")
        age(url, 1000, 400)
        before = store.forecast()
        report = store.collect(grace=0, run_is_dead=True)
        assert report.deleted_objects > 8
        assert report.waiting == 0
        assert (report.grace_seconds, report.silence.needed) == (0, 800)
        assert 1000 <= report.silence.seconds < 1100
        assert not (url / ORPHAN).exists()
        assert store.forecast().bytes_now <= before.bytes_collected
        for step, value in wanted.items():
            assert np.array_equal(store.read(step, "model/w.weight"), value)
        assert store.verify("checksum").ok


def test_a_shorter_grace_without_a_word_is_refused_and_says_which_word(url):
    age(url, 1000, 400)
    with lcstore.open(url, "r+") as store, pytest.raises(InvalidInputError, match="run_is_dead=True"):
        store.collect(grace=0)


@pytest.mark.parametrize(("ago", "apart"), [(700, 400), (50, 1), (-30, 1)])
def test_a_run_that_saved_lately_is_not_dead(url, ago, apart):
    age(url, ago, apart)
    before = sorted(path for path in url.rglob("*") if path.name != "clock")
    with lcstore.open(url, "r+") as store:
        found = store.collect(grace=0, run_is_dead=True, dry_run=True)
        assert found.silence is not None
        assert not found.silence.is_enough
        assert found.deleted_bytes > 0, "what would go is shown all the same"
        with pytest.raises(ConflictError, match="may be alive"):
            store.collect(grace=0, run_is_dead=True)
    assert sorted(path for path in url.rglob("*") if path.name != "clock") == before


def test_a_time_that_lies_ahead_is_told_with_what_to_do(url):
    age(url, -5000, 1)
    ahead = r"lies (499\d|5000) s ahead.*touch"
    with lcstore.open(url, "r+") as store, pytest.raises(ConflictError, match=ahead):
        store.collect(grace=0, run_is_dead=True)
    age(url, 61, 1)
    with lcstore.open(url, "r+") as store:
        assert store.collect(grace=0, run_is_dead=True).deleted_objects > 0


def test_what_a_save_under_way_has_stored_says_that_the_run_is_alive(url):
    age(url, 5000, 400)
    with lcstore.open(url, "r+") as store:
        store.backend.put(ORPHAN, b"12345")
        with pytest.raises(ConflictError, match="may be alive"):
            store.collect(grace=0, run_is_dead=True)
        assert (url / ORPHAN).exists()


def test_a_save_that_takes_long_is_told_by_what_it_stored_last(url):
    later = ORPHAN.replace("c.0", "c.1")
    with lcstore.open(url, "r+") as store:
        for key in (ORPHAN, later):
            store.backend.put(key, b"12345")
        age(url, 5000, 400)
        os.utime(url / later)
        with pytest.raises(ConflictError, match="may be alive"):
            store.collect(grace=0, run_is_dead=True)
        assert (url / later).exists()


def test_the_grace_itself_is_always_long_enough(url):
    """Saves that were two days apart: more than the grace of a day is not asked for."""
    age(url, 90_000, 200_000)
    with lcstore.open(url, "r+") as store:
        report = store.collect(grace="1h", run_is_dead=True)
        assert report.silence.needed == 86_400
        assert report.condemned > 0


class Waking(LocalBackend):
    """A directory to which a run saves at the n-th listing of the data."""

    def __init__(self, root: Path, wakes: int) -> None:
        super().__init__(root)
        self.listings, self.wakes = 0, wakes

    def list(self, prefix, foreign=None):
        if prefix == "data":
            self.listings += 1
            if self.listings == self.wakes:
                with lcstore.open(self.root, threads=1) as other:
                    other.save(9, other.resume())
        return super().list(prefix, foreign)


@pytest.mark.parametrize("wakes", [2, 3])
def test_a_run_that_wakes_up_meanwhile_loses_nothing(url, wakes):
    age(url, 1000, 400)
    waking = lcstore.open(Waking(url, wakes), "r+", threads=1)
    with waking as store, pytest.raises(ConflictError, match="something writes"):
        store.collect(grace=0, run_is_dead=True)
    with lcstore.open(url, "r") as store:
        assert store.steps() == [0, 4, 7, 9]
        assert store.verify("restore").ok
        assert len(list((url / "nodes").iterdir())) == 9


def test_nothing_is_asked_where_the_grace_is_kept(url):
    age(url, 10, 1)
    with lcstore.open(url, "r+") as store:
        report = store.collect(grace="2d", run_is_dead=True)
        assert (report.silence, report.deleted_objects) == (None, 0)


def weights(step: int) -> dict[str, np.ndarray]:
    return {
        "w.weight": np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) * (1 + step / 1000)
    }


def sleep(backend: MemoryBackend, passed: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have some seconds pass for a store and for whoever writes to it."""
    for key, (data, at) in list(backend._space.objects.items()):
        backend._space.objects[key] = data, at - passed
    clocks = instant._clocks
    monkeypatch.setattr(instant, "_clocks", lambda: tuple(clock + passed for clock in clocks()))


@pytest.mark.parametrize("url", ["memory://near", "s3://bucket/run", "sftp://host/run"])
@pytest.mark.parametrize("after", [6, 10])
def test_a_run_that_was_collected_as_dead_and_is_alive_stands_on_nothing_that_is_gone(
    url, after, monkeypatch
):
    """A bucket is looked at in turns: saves were acknowledged that nobody could read."""
    backend = MemoryBackend.fresh()
    backend._url = url
    with lcstore.open(backend) as other, lcstore.open(backend) as alive:
        other.save(0, weights(0))
        for step in range(12):
            alive.save(step, weights(step))
        sleep(backend, 3600.0, monkeypatch)
        with lcstore.open(backend, "r+") as upkeep:
            assert upkeep.retire_run(2, after=after, run_is_dead=True).states_let_go
            assert upkeep.collect(grace=0, run_is_dead=True).deleted_objects
        assert alive.save(12, weights(12)).kind == "anchor"
        alive.save(13, weights(13))
    with lcstore.open(backend, "r") as store:
        for step in (12, 13):
            assert np.allclose(store.restore(step)["w.weight"], weights(step)["w.weight"], atol=0.01)
        assert store.verify("restore").ok


def test_a_run_that_was_collected_as_dead_and_dies_in_its_next_save_stops_no_maintenance(monkeypatch):
    """A record was stored whose parent was gone, and only its writer could have found out."""
    backend = MemoryBackend.fresh()
    dies: set[str] = set()
    target = FaultBackend(
        backend,
        {lambda asked: bool(dies) and asked.name == "put" and asked.key.startswith("nodes/"): "crash_after"},
    )
    with lcstore.open(target) as alive:
        for step in range(4):
            alive.save(step, weights(step))
        sleep(backend, 3600.0, monkeypatch)
        with lcstore.open(backend, "r+") as upkeep:
            upkeep.retire_run(1, after=2, run_is_dead=True)
            upkeep.collect(grace=0, run_is_dead=True)
        dies.add("now")
        with pytest.raises(Crash):
            alive.save(4, weights(4))
    with lcstore.open(backend, "r+") as upkeep:
        upkeep.collect()
        upkeep.retain("latest:2")
        assert upkeep.steps() == [2, 4]
        assert upkeep.verify("restore").ok


def test_a_listing_that_took_long_is_as_old_as_its_beginning(monkeypatch):
    """A run is silent from its last record on, and its writer took the end of the listing behind that."""
    backend = MemoryBackend.fresh()
    passed, clocks = [0.0], instant._clocks
    monkeypatch.setattr(instant, "_clocks", lambda: tuple(clock + passed[0] for clock in clocks()))
    with lcstore.open(backend, threads=1) as store:
        store.save(0, weights(0))
        backend, slow = store._writer.backend, []
        put, listed = backend.put, backend.list

        def stored(key, data):
            put(key, data)
            slow.extend(["once"] * key.startswith("nodes/"))

        def late(*given):
            passed[0] += 40.0 * len(slow)
            slow.clear()
            return listed(*given)

        backend.put, backend.list = stored, late
        store.save(1, weights(1))
        assert not store._writer._guard.looked.is_within(RECENT)


def test_a_run_is_not_taken_for_dead_before_its_writer_looks_again():
    assert 2 * RECENT <= LEAST
