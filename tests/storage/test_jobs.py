"""Jobs side by side: whoever hears of a failure finds nothing at work any more."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import _base
from functools import partial

import pytest

from lcstore import futures
from lcstore.errors import FallbackWarning
from lcstore.jobs import jobs
from lcstore.warned import warn


@pytest.fixture
def workers():
    with jobs.Workers(2) as workers:
        yield workers


@pytest.mark.parametrize("interruptions", [1, 2, 5])
def test_nothing_is_at_work_after_an_interrupt_however_often_it_comes(workers, monkeypatch, interruptions):
    begun, go_on, left = threading.Event(), threading.Event(), [interruptions]
    done: list[str] = []

    def slow():
        begun.set()
        go_on.wait(10)
        done.append("slow")

    def fail():
        begun.wait(10)
        raise ValueError("so the rest is waited for")

    def interrupted(seconds):
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        go_on.set()
        threading.Event().wait(seconds)

    monkeypatch.setattr(futures.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        jobs.run_all(workers, [slow, fail])
    assert done == ["slow"]


@pytest.mark.parametrize(("patience", "lines"), [(0.01, 1), (30, 0)])
def test_what_is_waited_for_long_after_a_failure_is_told_once(workers, monkeypatch, caplog, patience, lines):
    """A Ctrl-C while kernels are compiled ends the program a minute later, and nothing said why."""
    begun, failed = threading.Event(), threading.Event()

    def slow():
        begun.set()
        failed.wait(10)
        threading.Event().wait(0.3)

    def fail():
        begun.wait(10)
        failed.set()
        raise ValueError("so the rest is waited for")

    monkeypatch.setattr(futures, "_PATIENCE", patience)
    with pytest.raises(ValueError, match="so the rest"):
        jobs.run_all(workers, [slow, fail])
    assert [record.name for record in caplog.records] == ["lcstore"] * lines
    assert all("at work: 1)" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("begins_first", [True, False])
def test_a_job_that_an_interrupt_left_without_a_name_is_waited_for(monkeypatch, begins_first):
    begun, done = threading.Event(), []

    class Interrupted(jobs.Workers):
        def submit(self, *job, **how):
            super().submit(*job, **how)
            if begins_first:
                assert begun.wait(10)
            raise KeyboardInterrupt

    def slow():
        begun.set()
        threading.Event().wait(0.1)
        done.append("slow")

    with Interrupted(1) as workers:
        with pytest.raises(KeyboardInterrupt):
            jobs.run_all(workers, [slow, slow])
        there = [*done]
    assert done == there  # nothing went on
    assert there == ["slow"] or not begins_first


@pytest.mark.parametrize("how", ["run_all", "wait_for"])
def test_after_an_interrupt_what_waits_for_a_thread_still_gets_one(workers, monkeypatch, how):
    def interrupted(self):
        real(self)
        raise KeyboardInterrupt  # with the conditions of the futures held, as a signal has it

    real, done = _base._AcquireFutures.__enter__, []
    monkeypatch.setattr(_base._AcquireFutures, "__enter__", interrupted)
    if how == "run_all":
        jobs.run_all(workers, [partial(done.append, number) for number in range(9)])
    else:
        jobs.wait_for([workers.submit(done.append, number) for number in range(9)])
    assert sorted(done) == [*range(9)]


def test_what_computes_may_wait_for_requests_with_any_number_of_processors(monkeypatch):
    monkeypatch.setattr(jobs, "_shared", {})
    for cores in (1, jobs.REQUESTS, 2 * jobs.REQUESTS):
        monkeypatch.setattr(jobs, "default_threads", lambda cores=cores: cores)
        assert jobs.shared_workers() is not jobs.shared_requests()
    assert jobs.shared_requests() is jobs.shared_requests()


def test_a_failure_is_raised_once_the_rest_is_done(workers):
    both, done = threading.Barrier(2, timeout=10), []

    def fail():
        both.wait()
        raise ValueError("the first")

    def slow():
        both.wait()
        done.append("slow")

    with pytest.raises(ValueError, match="the first"):
        jobs.run_all(workers, [fail, slow])
    assert done == ["slow"]


def test_a_handle_that_is_closed_says_so():
    with jobs.Workers(1) as workers:
        pass
    with pytest.raises(jobs.ClosedError, match="closed"):
        jobs.run_all(workers, [lambda: None])


def test_a_save_as_python_ends_says_what_stands_in_its_way():
    """No thread is begun any more then: not by a handle that is opened in the handler of the end, either."""
    program = """
import atexit, numpy as np, lcstore
from lcstore.storage.memory import MemoryBackend

def late():
    try:
        lcstore.open(MemoryBackend.fresh()).save(0, {"w": np.ones(3)})
    except lcstore.LcstoreError as error:
        print(error)

atexit.register(late)
lcstore.open(MemoryBackend.fresh()).save(0, {"w": np.ones(3)})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Python is ending" in done.stdout, done.stderr


def test_a_warning_of_a_thread_points_at_whoever_asked():
    say = partial(warn, category=FallbackWarning)

    def nested(executor):
        jobs.run_all(executor, [partial(say, "inside a job")])
        list(executor.map(say, ["inside a map"]))

    with (
        jobs.Workers(2) as outer,
        jobs.Workers(2) as inner,
        pytest.warns(FallbackWarning, match="inside") as caught,
    ):
        jobs.run_all(
            outer, [partial(nested, inner), partial(list, outer.map(say, ["inside a map of its own"]))]
        )
    assert {one.filename for one in caught} == {__file__}


def test_jobs_behind_a_loop_run_in_threads_of_their_own_one_after_another(workers):
    at_work, most, order, told = 0, 0, [], []
    lock = threading.Lock()

    def job(number):
        nonlocal at_work, most
        with lock:
            at_work += 1
            most = max(most, at_work)
            order.append(number)
        threading.Event().wait(0.002)
        with lock:
            at_work -= 1

    with (
        jobs.Workers(1, behind=True) as behind,
        jobs.done_by(behind),
        jobs.telling(lambda *how: told.append(how), "save"),
    ):
        jobs.run_all(workers, [partial(job, number) for number in range(12)])
    assert most == 1
    assert order == [*range(12)]
    assert told == [("save", number, 12) for number in range(1, 13)]
    jobs.run_all(workers, [partial(job, number) for number in range(12)])
    assert most > 1


def test_a_failure_in_a_row_drops_the_rest(workers):
    done = []

    def fail():
        raise ValueError("the third")

    todo = [partial(done.append, 1), partial(done.append, 2), fail, partial(done.append, 4)]
    with (
        jobs.Workers(1, behind=True) as behind,
        jobs.done_by(behind),
        pytest.raises(ValueError, match="the third"),
    ):
        jobs.run_all(workers, todo)
    assert done == [1, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux may one thread step back by itself")
def test_threads_behind_a_loop_step_back_and_nobody_else_does(workers):
    def nice():
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    here = nice()
    with jobs.Workers(1, behind=True) as behind:
        assert behind.submit(nice).result() > here
    assert nice() == here
    assert workers.submit(nice).result() == here
