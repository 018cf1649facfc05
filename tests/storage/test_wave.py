"""Objects of a wave go out side by side; when it has ended all are there, whatever happens to the power."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest
from kit import power_loss

from lcstore.errors import StorageError, UnknownOutcomeError
from lcstore.jobs.jobs import Workers
from lcstore.storage import local
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.patient import Patience, PatientBackend
from lcstore.storage.wave import Wave
from lcstore.testing.faults import FaultBackend

KEYS = [f"data/e/0/a{number % 3}.set/c.{number}" for number in range(9)] + ["data/e/0/zarr.json"]


@pytest.fixture
def workers():
    with Workers(8) as found:
        yield found


def put_all(wave: Wave, count: int) -> None:
    for number in range(count):
        wave.put(f"data/{number}", b"x")
    wave.end()


class Held(MemoryBackend):
    """Lets nothing go on until so many are under way."""

    def __init__(self, parties: int) -> None:
        super().__init__(f"held-{parties}")
        self.all_here = threading.Barrier(parties)

    def _put(self, key, data):
        self.all_here.wait(10)
        super()._put(key, data)


def test_objects_go_out_side_by_side(workers):
    backend = Held(8)
    wave = Wave(backend, workers)
    for number in range(8):
        wave.put(f"data/{number}", b"x")
    wave.end()
    assert len(backend.list("data")) == 8


def test_few_bytes_are_on_their_way(workers):
    most = []
    now = [0]
    lock = threading.Lock()

    class Slow(MemoryBackend):
        def _put(self, key, data):
            with lock:
                now[0] += len(data)
                most.append(now[0])
            super()._put(key, data)
            with lock:
                now[0] -= len(data)

    wave = Wave(Slow("slow"), workers, room=100)
    for number in range(50):
        wave.put(f"data/{number}", bytes(40))
    wave.put("data/large", bytes(1000))
    wave.end()
    assert max(most) == 1000
    assert sorted(most)[-2] <= 100


@pytest.mark.parametrize("fault", ["eio", "lost_reply", "lost_request"])
def test_what_could_not_be_stored_is_told_of_and_is_no_open_outcome(workers, fault):
    backend = FaultBackend(MemoryBackend.fresh(), {2: fault})
    wave = Wave(backend, workers)
    with pytest.raises(StorageError) as caught:
        put_all(wave, 5)
    assert not isinstance(caught.value, UnknownOutcomeError)
    wave.stop()


def test_a_failure_stops_what_comes_after_it(workers):
    wave = Wave(FaultBackend(MemoryBackend.fresh(), {0: "eio"}), workers)
    wave.put("data/0", b"x")
    workers.submit(lambda: None).result()
    with pytest.raises(StorageError):
        put_all(wave, 10_000)
    wave.stop()


def end_the_program(number, frame):
    """As jobs do that Slurm is about to end."""
    raise SystemExit(128 + number)


@pytest.mark.parametrize(
    ("number", "handler", "raised"),
    [
        (signal.SIGINT, signal.default_int_handler, KeyboardInterrupt),
        (signal.SIGTERM, end_the_program, SystemExit),
    ],
)
def test_what_is_stopped_is_waited_for_however_often_that_is_interrupted(workers, number, handler, raised):
    begun, go_on, stopped = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryBackend):
        def _put(self, key, data):
            begun.set()
            assert go_on.wait(30)
            super()._put(key, data)

    def interrupt(thread):
        for _ in range(2):
            if not stopped.wait(0.1):
                signal.pthread_kill(thread, number)
        stopped.wait(0.1)
        go_on.set()

    def stop():
        interrupts.start()
        try:
            wave.stop()
        finally:
            there.extend(backend.list("data"))  # before the put may go on
            stopped.set()

    backend, there = Slow.fresh(), list[str]()
    wave = Wave(backend, workers)
    wave.put("data/0", b"x")
    assert begun.wait(30)
    before = signal.signal(number, handler)
    interrupts = threading.Thread(target=interrupt, args=(threading.get_ident(),))
    try:
        with pytest.raises(raised):
            stop()
        assert there == ["data/0"]
    finally:
        interrupts.join()
        signal.signal(number, before)


def test_a_silent_target_is_waited_for_once(workers):
    class Silent(MemoryBackend):
        def _put(self, key, data):
            over.wait(20)

    over = threading.Event()
    backend = PatientBackend(Silent("silent-wave"), Patience(0.5, 0))
    started = time.monotonic()
    with pytest.raises(StorageError, match="no answer"):
        put_all(Wave(backend, workers), 100)
    assert time.monotonic() - started < 2.0
    over.set()


@pytest.mark.parametrize("wrap", [lambda b: b, FaultBackend, lambda b: PatientBackend(b, Patience(30.0, 0))])
@pytest.mark.skipif(sys.platform != "linux", reason="simulated on Linux only")
def test_a_wave_that_ended_outlives_any_power_cut(tmp_path, workers, wrap):
    top = tmp_path / "top"
    top.mkdir()
    contents = {key: os.urandom(100) for key in KEYS}
    with power_loss(top) as disk:
        wave = Wave(wrap(LocalBackend(top / "store")), workers)
        for key, data in contents.items():
            wave.put(key, data)
        for future in wave._futures:
            future.result()
        early = disk.now
        wave.end()
        ended = disk.now
        syncs = sum(change.kind == "sync" for change in disk.changes)
    # Every file, and the folders: three arrays, part, edge, data, root (and the one above, which holds it).
    assert syncs == len(KEYS) + 3 + 3 + 1 + 1
    lost = set()
    for at in range(ended + 1):
        for seed in range(20):
            left = disk.found(seed, at)
            for key, data in contents.items():
                found = left.get(f"store/{key}")
                assert found in (None, data)
                assert at < ended or found == data
                if found is None and at == early:
                    lost.add(key)
    assert lost  # or ending a wave would be for nothing


@pytest.mark.skipif(sys.platform == "win32", reason="directories are not synced")
def test_folders_that_could_not_be_made_durable_fail_the_wave(tmp_path, workers, monkeypatch):
    backend = LocalBackend(tmp_path / "store")
    wave = Wave(backend, workers)
    wave.put("data/e/0/zarr.json", b"{}")
    wave.put("data/e/0/leaves.json", b"[]")

    def fail(path):
        raise OSError(5, "broken")

    for future in wave._futures:
        future.result()
    monkeypatch.setattr(local, "sync_directory", fail)
    with pytest.raises(StorageError, match="durable"):
        wave.end()
    monkeypatch.undo()
    backend.put("data/e/0/zarr.json", b"{}")


def test_a_folder_that_a_collector_removed_is_made_durable_again(tmp_path, monkeypatch):
    synced = []
    sync = local.sync_directory
    monkeypatch.setattr(local, "sync_directory", lambda path: synced.append(path) or sync(path))
    backend, other = LocalBackend(tmp_path / "s"), LocalBackend(tmp_path / "s")
    backend.put("data/e/0/zarr.json", b"{}")
    other.delete("data/e/0/zarr.json")
    assert not (tmp_path / "s" / "data" / "e").exists()
    synced.clear()
    backend.put("data/e/0/zarr.json", b"{}")
    root = os.path.realpath(tmp_path / "s")
    assert {f"{root}/data", f"{root}/data/e", f"{root}/data/e/0"} == {*synced}
