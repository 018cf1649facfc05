"""Tasks that wait for each other, done here; and what a worker refuses to do."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from lcstore.cluster import tasks as module
from lcstore.cluster.tasks import Task, carried_out, check_seen_by_others
from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError
from lcstore.version import __version__


def adding(number: int, *after: int) -> Task[int]:
    return Task("add", "file:///nowhere", lambda inputs: number + sum(inputs), after)


def failing(*after: int, **more: object) -> Task[int]:
    def run(inputs: Sequence[int]) -> int:
        raise CorruptionError("it is damaged")

    return Task("fail", "file:///nowhere", run, after, **more)


def test_tasks_take_what_those_gave_that_they_wait_for():
    assert list(carried_out([adding(1), adding(2), adding(4, 1, 0), adding(8, 2)])) == [
        (0, 1),
        (1, 2),
        (2, 7),
        (3, 15),
    ]
    assert list(carried_out([])) == []


def test_a_task_begins_when_its_caller_has_taken_what_the_one_before_gave():
    seen = []

    def run(inputs: Sequence[int]) -> int:
        return len(seen)

    for _, given in carried_out([Task("look", "file:///nowhere", run)] * 3):
        seen.append(given)
    assert seen == [0, 1, 2]


def test_nothing_is_begun_once_the_time_is_over():
    assert list(carried_out([adding(1)], seconds=0)) == []
    slow = Task[int]("sleep", "file:///nowhere", lambda inputs: time.sleep(0.1) or 1)
    assert [place for place, _ in carried_out([slow, slow, slow], seconds=0.15)] == [0, 1]


def test_a_failure_ends_it_unless_something_is_given_instead():
    given = []
    with pytest.raises(CorruptionError, match="it is damaged"):
        given.extend(carried_out([adding(1), failing(), adding(2)]))

    def otherwise(error: LcstoreError) -> int:
        return 10 * len(error.message.split())

    instead = [adding(1), failing(otherwise=otherwise), adding(2, 1)]
    assert list(carried_out(instead)) == [(0, 1), (1, 30), (2, 32)]


class _Workers(deque):
    """Two threads of workers and the futures that they are given: done in the order of their submission."""

    loop, status = None, "running"

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[int] = []

    def nthreads(self) -> dict[str, int]:
        return {"one": 1, "two": 1}

    def submit(self, *what: object, key: str, **how: object) -> Future[tuple[int, list[str]]]:
        self.begun.append(int(key.rpartition("-")[2]))
        future = Future[tuple[int, list[str]]]()
        future.set_result((0, []))
        return future

    add, __next__, has_ready = deque.append, deque.popleft, deque.__len__


def test_no_task_is_queued_where_a_longer_row_would_wait_behind_it(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    workers = _Workers()
    monkeypatch.setattr(distributed, "as_completed", lambda loop: workers)
    row, leaves = [adding(0), adding(1, 0), adding(2, 1)], [adding(3), adding(4), adding(5)]
    done = module._Run(workers, row + leaves, until=0).results()
    assert sorted(place for place, _ in done) == [0, 1, 2, 3, 4, 5]
    # The second of the row begins as soon as the first is done, and no third task lies before it.
    assert workers.begun[:3] == [0, 3, 1]


def on_a_worker(url: str, version: str = __version__, seconds: float = 9) -> tuple[int, list[str]] | None:
    return module._do(version, url, sum, [1, 2], time.time() + seconds)


def test_a_worker_does_nothing_that_would_be_done_wrong(tmp_path):
    assert on_a_worker(f"file://{tmp_path}") == on_a_worker("s3://bucket/run") == (3, [])
    assert on_a_worker(f"file://{tmp_path}", seconds=-1) is None
    with pytest.raises(InvalidInputError, match="a worker sees nothing at file:"):
        on_a_worker(f"file://{tmp_path}/gone")
    with pytest.raises(InvalidInputError, match=rf"a worker has lcstore {__version__}, and here is 0\.0"):
        on_a_worker(f"file://{tmp_path}", "0.0")


def test_what_is_in_memory_is_not_sent():
    check_seen_by_others(["file:///x", "s3://memory/x"])
    with pytest.raises(InvalidInputError, match="memory://run is in the memory of this process"):
        check_seen_by_others(["file:///x", "memory://run"])
