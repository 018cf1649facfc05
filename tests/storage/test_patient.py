"""Requests end in time and are tried again; what is known of a write is never more than what was seen."""

from __future__ import annotations

import copy
import errno
import logging
import math
import pickle
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lcstore.errors import InvalidInputError, NotFoundError, StorageError, UnknownOutcomeError
from lcstore.jobs import deadline as deadlines
from lcstore.jobs.deadline import deadline, end_soon, remaining
from lcstore.jobs.jobs import Workers
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.patient import Patience, PatientBackend, patient
from lcstore.storage.put import put_object, put_record
from lcstore.storage.remote import FsspecBackend
from lcstore.testing import BackendConformance
from lcstore.testing.faults import Fault, FaultBackend


class Silent(MemoryBackend):
    """Answers nothing while it is told not to; what it was asked happens or not."""

    def __init__(self, name: str = "silent", *, lands: bool = False) -> None:
        super().__init__(name)
        self.quiet = threading.Event()
        self.over = threading.Event()
        self.lands = lands
        self.asked = 0

    def _wait(self):
        self.asked += 1
        if self.quiet.is_set():
            self.over.wait(20)
            raise ConnectionError("cut")

    def _put(self, key, data):
        if self.lands:
            super()._put(key, data)
        self._wait()
        super()._put(key, data)

    def _get(self, key, start, end):
        self._wait()
        return super()._get(key, start, end)


CHECKS = {name: check for name, check in vars(BackendConformance).items() if name.startswith("check_")}


@pytest.fixture
def silent(request):
    backend = Silent(request.node.name)
    yield backend
    backend.over.set()


@pytest.mark.parametrize("check", CHECKS)
def test_it_is_a_backend(check):
    CHECKS[check](BackendConformance(PatientBackend(MemoryBackend.fresh(), Patience(30.0, 2))))


def busy(times, kind="eio"):
    return FaultBackend(MemoryBackend.fresh(), {0: Fault(kind, count=times)} if kind == "busy" else {0: kind})


def test_what_fails_says_at_which_target(silent):
    """A copy asks two, and a loop over stores many: credentials may be wrong for one of them."""
    backend = PatientBackend(silent, Patience(0.05, 0))
    silent.quiet.set()
    with pytest.raises(StorageError, match=f"^{re.escape(silent.url)}: could not read: no answer"):
        backend.get("a")


def test_what_fails_for_a_while_is_tried_again_and_told_of(caplog):
    with caplog.at_level(logging.WARNING, "lcstore"):
        backend = PatientBackend(busy(3, "busy"), Patience(20.0, 5))
        backend.put("a", b"a")
    assert backend.get("a") == b"a"
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert f"{backend.url}: could not write a" in told[0]
    assert "retry 1 of 5" in told[0]


def test_retries_are_bounded():
    faulty = busy(50, "busy")
    with pytest.raises(StorageError) as caught:
        PatientBackend(faulty, Patience(20.0, 2)).put("a", b"a")
    assert caught.value.gave_up
    assert len(faulty.log) == 3


def test_what_an_error_says_besides_goes_along_to_another_process():
    error = UnknownOutcomeError("no answer", key="a", step=3)
    error.gave_up = error.volatile = True
    error.add_note("of a pool")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is UnknownOutcomeError
        assert str(other) == str(error)
        assert vars(other) == vars(error)
        assert other.outcome_unknown


def test_no_answer_is_an_error_in_time(silent):
    backend = PatientBackend(silent, Patience(0.6, 3))
    backend.put("a", b"a")
    silent.quiet.set()
    for call, error in ((lambda: backend.get("a"), StorageError), (lambda: backend.put("b", b"b"), None)):
        started = time.monotonic()
        with pytest.raises(error or UnknownOutcomeError) as caught:
            call()
        assert 0.3 < time.monotonic() - started < 2.6
        assert caught.value.gave_up
        assert caught.value.outcome_unknown == (error is None)
    assert silent.asked == 5  # half of the time for a try while others may follow
    silent.quiet.clear()
    assert backend.get("a") == b"a"


class SlowLink(MemoryBackend):
    """Takes a while for what carries bytes."""

    def _put(self, key, data):
        time.sleep(0.4 * (len(data) > 1000))
        super()._put(key, data)

    def _get(self, key, start, end):
        data = super()._get(key, start, end)
        time.sleep(0.4 * (len(data) > 1000))
        return data


def test_what_carries_bytes_over_a_slow_link_has_more_time():
    """Objects of a large save share the link: all were given up on their way, sent again, and given up."""
    backend = PatientBackend(SlowLink("slow-link"), Patience(0.2, 3))
    data = bytes(100_000)
    backend.put("a", data)
    assert backend.get("a", 0, 100_001) == data


@pytest.mark.parametrize(
    ("nbytes", "seconds"),
    [(0, 0), (1 << 15, 1), (1 << 20, 32), (1 << 23, 256), (1 << 26, 256), (1 << 29, 512)],
)
def test_how_much_more_time_it_has(nbytes, seconds):
    assert Patience(60, 5).carrying(nbytes) == seconds


def test_a_connection_that_dies_once_leaves_time_for_another_try(silent):
    """What carries bytes has minutes for a try: the first one took all of the time that a save has."""
    backend = PatientBackend(silent, Patience(60.0, 3))
    silent.quiet.set()
    threading.Timer(0.2, silent.quiet.clear).start()
    with deadline(2.0):
        backend.put("a", bytes(1 << 20))
    assert silent.asked == 2


def test_a_save_has_time_for_two_tries_of_what_it_carries():
    patience = Patience(2, 5)
    for mib in (1, 64, 4096):
        nbytes, busy = mib << 20, min(mib, 256)  # seconds that the last objects take at 1 MiB/s
        assert (patience.whole_save(nbytes) - (mib - busy)) / 2 >= busy


def test_silence_after_an_error_tells_that_error(silent, monkeypatch):
    def fails_once(key, start, end):
        monkeypatch.undo()
        raise StorageError("cannot connect to the endpoint", key=key)

    silent.quiet.set()
    monkeypatch.setattr(silent, "_get", fails_once)
    with pytest.raises(StorageError) as caught:
        PatientBackend(silent, Patience(1.5, 2)).get("a")
    assert "no answer within" in caught.value.message
    assert "before that: cannot connect to the endpoint" in caught.value.message


def test_a_refusal_after_a_lost_reply_leaves_the_outcome_open():
    class Refusing(MemoryBackend):
        asked = 0

        def _put(self, key, data):
            self.asked += 1
            raise ConnectionError("reset") if self.asked == 1 else PermissionError("403")

        def put(self, key, data):
            try:
                super().put(key, data)
            except StorageError as error:
                if isinstance(error.__cause__, ConnectionError):
                    raise UnknownOutcomeError("no reply", key=key) from error
                raise

    backend = Refusing("refusing")
    with pytest.raises(UnknownOutcomeError, match="403"):
        PatientBackend(backend, Patience(20.0, 5)).put("a", b"a")
    assert backend.asked == 2


@pytest.mark.parametrize("cause", [PermissionError("403"), OSError(errno.ENOSPC, "full"), ValueError("bad")])
def test_what_cannot_help_is_not_tried_again(cause):
    class Never(MemoryBackend):
        asked = 0

        def _put(self, key, data):
            self.asked += 1
            raise cause

    backend = Never("never")
    with pytest.raises(StorageError) as caught:
        PatientBackend(backend, Patience(20.0, 5)).put("a", b"a")
    assert backend.asked == 1
    assert not caught.value.gave_up


def test_absence_is_an_answer():
    backend = PatientBackend(MemoryBackend.fresh(), Patience(20.0, 5))
    with pytest.raises(NotFoundError):
        backend.get("a")


def test_all_requests_of_a_block_end_with_it(silent):
    backend = PatientBackend(silent, Patience(30.0, 3))
    silent.quiet.set()
    started = time.monotonic()
    with deadline(0.4), Workers(2) as workers:
        futures = [workers.submit(backend.get, "a") for _ in range(4)]
    for future in futures:
        with pytest.raises(StorageError):
            future.result()
    assert time.monotonic() - started < 2.4
    assert silent.asked <= 2 * len(futures)


def test_for_ever_is_no_deadline():
    with deadline(math.inf):
        assert remaining() is None  # clients that are asked asynchronously take no infinity
        with deadline(5.0):
            assert 0 < remaining() <= 5


def test_an_inner_deadline_is_never_later():
    assert remaining() is None
    with deadline(5.0), deadline(50.0):
        assert remaining() < 5.0
    with deadline(0.0):
        assert remaining() == 0.0
    assert remaining() is None


def test_a_process_that_ends_leaves_behind_what_it_waits_for(silent, monkeypatch):
    """Threads too that know of no deadline, as those of a pool: they would hold the process."""
    monkeypatch.setattr(deadlines, "_process_ends", math.inf)
    backend = PatientBackend(silent, Patience(60.0, 5))
    backend.put("a", b"a")
    silent.quiet.set()
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(backend.get, "a")
        time.sleep(0.3)
        end_soon(0.5)
        end_soon(50)
        with deadline(60), pytest.raises(StorageError, match="no answer within"):
            backend.get("a")
        with pytest.raises(StorageError, match="no answer within"):
            asked.result(10)
    silent.quiet.clear()
    with pytest.raises(StorageError, match="the time for the whole is over"):
        backend.get("a")


def test_who_is_waited_for_with_patience():
    memory = MemoryBackend.fresh()
    assert patient(memory, None, None) is memory
    local = FsspecBackend(MemoryFileSystem(), "/x")
    assert patient(local, None, None) is local
    assert patient(memory, 3, None).patience == Patience(3.0, 0)
    remote = FsspecBackend(MemoryFileSystem(), "/x")
    remote.remote = True
    assert patient(remote, None, None).patience == Patience(60.0, 5)
    assert patient(remote, None, 1).patience == Patience(60.0, 1)
    for wrong in ((0, None), ("1s", None), (None, -1), (None, 1.5)):
        with pytest.raises(InvalidInputError):
            patient(memory, *wrong)


@pytest.mark.parametrize("lands", [False, True])
def test_a_record_without_reply_is_looked_for_and_open_otherwise(request, lands):
    silent = Silent(request.node.name, lands=lands)
    backend = PatientBackend(silent, Patience(0.4, 1))
    silent.quiet.set()
    started = time.monotonic()
    with pytest.raises(UnknownOutcomeError):
        put_record(backend, "nodes/a", b"a")
    with pytest.raises(StorageError) as caught:
        put_object(backend, "data/a", b"a")
    assert not caught.value.outcome_unknown
    assert time.monotonic() - started < 4.0
    silent.quiet.clear()
    put_record(backend, "nodes/a", b"a")
    silent.over.set()


class Reliable(FaultBackend):
    durable = True


@pytest.mark.parametrize("fault", ["lost_reply", "lost_request"])
def test_a_record_that_is_read_back_is_there(fault):
    backend = Reliable(MemoryBackend.fresh(), {0: fault, 1: "lost_request"})
    if fault == "lost_reply":
        put_record(backend, "nodes/a", b"a")
        assert backend.get("nodes/a") == b"a"
    else:
        with pytest.raises(UnknownOutcomeError, match="may still land"):
            put_record(backend, "nodes/a", b"a")


def test_a_record_that_may_not_outlive_a_power_cut_is_open():
    class Volatile(MemoryBackend):
        def put(self, key, data):
            super().put(key, data)
            error = UnknownOutcomeError("could not make the write durable", key=key)
            error.volatile = True
            raise error

    with pytest.raises(UnknownOutcomeError, match="power cut"):
        put_record(Volatile("volatile"), "nodes/a", b"a")


def test_commands_wait_with_patience_from_their_first_look_on(monkeypatch):
    from lcstore.storage import targets
    from lcstore.terminal.answer import Answer

    far = MemoryBackend.fresh()
    far.remote = True
    monkeypatch.setattr(targets, "open_backend", lambda url, options: far)
    assert isinstance(Answer("s3://bucket/run", False, {}).backend(), PatientBackend)
