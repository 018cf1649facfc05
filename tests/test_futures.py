"""Waiting that may be interrupted anywhere leaves no lock taken; otherwise futures are as they were."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from concurrent.futures import FIRST_COMPLETED, CancelledError, ThreadPoolExecutor, wait

import numpy as np
import pytest

import lcstore
from lcstore import futures
from lcstore.errors import ClosedError
from lcstore.futures import Condition, SafeFuture
from lcstore.jobs.jobs import Workers
from lcstore.storage.memory import MemoryBackend


def state(step: int) -> dict[str, object]:
    random = np.random.default_rng(0)
    weights = {f"w{i}.weight": random.standard_normal((64, 64)).astype(np.float32) for i in range(4)}
    return {"model": {name: weight * np.float32(1 + step / 1000) for name, weight in weights.items()}}


def saved_async(store, step):
    store.save_async(step, state(step)).result()
    store.wait()


TASKS = {
    "save": lambda store: store.save(20, state(20)),
    "save_async": lambda store: saved_async(store, 20),
    "restore": lambda store: store.restore(3),
    "resume": lambda store: store.resume(),
    "compact": lambda store: store.compact(),
    "collect": lambda store: store.collect(),
    "verify": lambda store: store.verify("restore"),
    "history": lambda store: list(store.history("model/w0.weight")),
}


@pytest.mark.parametrize("task", TASKS)
def test_no_lock_is_taken_where_an_interrupt_would_leave_it_taken(task, monkeypatch):
    """One Ctrl-C within `threading.Condition.__enter__` had all later saves of the handle hang."""
    with lcstore.open(MemoryBackend.fresh(), threads=2, policy="lossless") as store:
        for step in range(12):
            store.save(step, state(step))
        saved_async(store, 12)
        own, main, taken = threading.Condition.__enter__, threading.get_ident(), []

        def enter(condition):
            if threading.get_ident() == main and not starting:
                taken.append(condition)
            return own(condition)

        starting: list[None] = []
        begin = threading.Thread.start

        def start(thread):  # of a new thread it is waited for by such a lock: pools have theirs by then
            starting.append(None)
            try:
                begin(thread)
            finally:
                starting.pop()

        monkeypatch.setattr(threading.Condition, "__enter__", enter)
        monkeypatch.setattr(threading.Thread, "start", start)
        TASKS[task](store)
        monkeypatch.undo()
        assert taken == []


def test_who_waits_is_told_or_goes_on_after_a_while():
    change, found = Condition(), []

    def wait_for(number):
        with change:
            change.wait_for(lambda: len(found) >= number)
            found.append(number)
            change.notify_all()

    threads = [threading.Thread(target=wait_for, args=(number,)) for number in (2, 1, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [0, 1, 2]
    with change:
        assert not change.wait(0.01)
        assert not change._waiting


@pytest.fixture
def interrupts():
    """Where tests run in the background, they may have been told to ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
def test_an_interrupt_of_who_waits_leaves_the_lock_free():
    change, future = Condition(), SafeFuture[int]()
    for waits in (lambda: change.wait(60), lambda: future.result(60)):
        timer = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt), change:
            waits()
        timer.join()
    free = []

    def take():
        with change:
            free.append(True)
        future.set_result(3)

    thread = threading.Thread(target=take)
    thread.start()
    thread.join(30)
    assert free == [True]
    assert future.result(1) == 3


def test_an_interrupt_while_the_lock_is_taken_again_leaves_it_taken():
    """It was not, and whoever then let go of it met an error in the place of the interrupt."""

    class Interrupted(Condition):
        def acquire(self, *given):
            raise KeyboardInterrupt

    condition = Interrupted()
    with condition:
        assert not condition.wait(0.01)
        assert condition._is_owned()


def test_an_interrupt_anywhere_in_a_wait_comes_as_one():
    """After the look whether the lock is taken it came as an error of whoever then let go of the lock."""

    def interrupted(at):
        condition, left = Condition(), iter(range(at))

        def look(frame, event, given):  # at each point where Python may be interrupted
            if frame.f_code.co_filename == futures.__file__ and next(left, None) is None:
                sys.setprofile(None)
                raise KeyboardInterrupt

        try:
            with condition:
                sys.setprofile(look)
                condition.wait(0.001)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
            assert not condition._is_owned()
        return False

    points = sum(1 for _ in itertools.takewhile(interrupted, itertools.count()))
    assert points > 10


def test_futures_are_those_of_the_standard_library():
    with Workers(2) as pool:
        slow = pool.submit(time.sleep, 0.2)
        bad = pool.submit(int, "x")
        assert isinstance(bad.exception(), ValueError)
        done, left = wait([slow, pool.submit(len, "abc")], return_when=FIRST_COMPLETED)
        assert {future.result() for future in done} == {3}
        assert left == {slow}
        assert [*pool.map(len, ["a", "bb"])] == [1, 2]
        called = []
        slow.add_done_callback(called.append)
        with pytest.raises(TimeoutError):
            slow.result(0.001)
        slow.result()
    assert called == [slow]


def test_what_is_refused_or_dropped_never_begins():
    pool, done, going = Workers(1), [], threading.Event()
    pool.submit(going.wait)
    late = [pool.submit(done.append, number) for number in range(3)]
    ends = threading.Thread(target=lambda: pool.shutdown(wait=True, cancel_futures=True))
    ends.start()
    while not all(future.done() for future in late):
        time.sleep(0.001)
    with pytest.raises(ClosedError):
        pool.submit(done.append, 9)
    going.set()
    ends.join(30)
    assert done == []
    for future in late:
        with pytest.raises(CancelledError):
            future.result()


def test_what_is_asked_for_beside_a_shutdown_ends(monkeypatch):
    """It was dropped by the pool and not by us, and its future never ended."""
    pool, going, late = Workers(1), threading.Event(), []
    pool.submit(going.wait)
    shutdown = ThreadPoolExecutor.shutdown

    def asked_first(self, wait=True, **how):
        if not late:
            late.append(pool.submit(print))
        shutdown(self, wait, **how)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", asked_first)
    threading.Timer(0.05, going.set).start()
    pool.shutdown(cancel_futures=True)
    with pytest.raises(CancelledError):
        late[0].result(5)


def test_what_a_thread_took_from_beside_a_shutdown_is_not_refused(monkeypatch):
    """It was called refused, and was done all the same."""
    pool, done = Workers(1), []

    def refuse(self, work):
        work()  # a thread that is at work comes by
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    pool.submit(done.append, 1).result(5)
    assert done == [1]


def test_a_job_that_nobody_began_for_an_interrupt_begins_with_the_next(monkeypatch):
    with Workers(1) as pool:
        done = []

        def interrupted(self, *given):
            raise KeyboardInterrupt

        monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(done.append, 1)
        monkeypatch.undo()
        pool.submit(done.append, 2).result(30)
        assert done == [1, 2]
