"""Jobs side by side: whoever hears of a failure finds nothing at work any more."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import wait
from functools import partial

import pytest

from lcstore.errors import FallbackWarning
from lcstore.storage import jobs
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

    def interrupted_wait(futures, **how):
        if left[0]:
            left[0] -= 1
            raise KeyboardInterrupt
        threading.Timer(0.05, go_on.set).start()
        return wait(futures, **how)

    monkeypatch.setattr(jobs, "wait", interrupted_wait)
    with pytest.raises(KeyboardInterrupt):
        jobs.run_all(workers, [slow, fail])
    assert done == ["slow"]


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
