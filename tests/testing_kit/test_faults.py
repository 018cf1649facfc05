"""The fault backend does what it says, the same on every run; the loops reach every operation."""

from __future__ import annotations

import contextlib
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from lcstore.errors import InvalidInputError, LcstoreError, NotFoundError, StorageError, UnknownOutcomeError
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, Fault, FaultBackend, Operation, crash_points, every_point


def faulty(plan, **options):
    return FaultBackend(MemoryBackend.fresh({"a": b"0123456789", "b": b"b"}), plan, **options)


def test_without_a_plan_it_only_counts():
    backend = faulty({})
    backend.put("nodes/c", memoryview(b"cc"))
    backend.get("a", 1, 3)
    backend.list("nodes")
    backend.size("a")
    backend.created("a")
    backend.delete_many(["a", "b"])
    assert backend.log == [
        Operation(0, "put", "nodes/c", 2),
        Operation(1, "get", "a"),
        Operation(2, "list", "nodes"),
        Operation(3, "size", "a"),
        Operation(4, "created", "a"),
        Operation(5, "delete", "a"),
        Operation(6, "delete", "b"),
    ]
    assert backend.struck == []


@pytest.mark.parametrize(("kind", "landed"), [("crash_before", False), ("crash_after", True)])
def test_a_crash_kills_the_process(kind, landed):
    backend = faulty({0: kind})
    with pytest.raises(Crash):
        backend.put("c", b"c")
    assert backend.dead
    for call in (
        lambda: backend.get("a"),
        lambda: backend.list(""),
        lambda: backend.put("d", b""),
        lambda: backend.delete("a"),
    ):
        with pytest.raises(Crash):
            call()
    assert len(backend.log) == 1
    survivor = backend.revive()
    assert ("c" in survivor.list("")) == landed
    backend.put("d", b"")


def test_no_handler_of_exceptions_survives_a_crash():
    def stubborn(backend):
        while True:
            with contextlib.suppress(Exception):
                return backend.put("c", b"c")

    with pytest.raises(Crash):
        stubborn(faulty({0: "crash_before"}))


def test_a_crash_reaches_through_a_thread_pool():
    backend = faulty({3: "crash_after"})
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(backend.put, f"t{number}", b"x") for number in range(20)]
    crashed = [future for future in futures if isinstance(future.exception(), Crash)]
    assert len(crashed) == 17
    assert len(backend.log) == 4


def test_a_torn_write_leaves_a_proper_prefix():
    for seed in range(20):
        backend = faulty({0: "torn"}, seed=seed)
        with pytest.raises(Crash):
            backend.put("c", b"0123456789")
        left = backend.revive().get("c")
        assert b"0123456789".startswith(left)
        assert len(left) < 10


def test_an_error_happens_once_or_for_ever():
    once = faulty({1: "eio"})
    once.get("a")
    with pytest.raises(StorageError) as caught:
        once.put("c", b"c")
    assert (caught.value.key, caught.value.outcome_unknown) == ("c", False)
    once.put("c", b"c")
    for_ever = faulty({1: Fault("eio", times=None)})
    for_ever.get("a")
    for _ in range(3):
        with pytest.raises(StorageError):
            for_ever.get("a")
    assert "c" not in for_ever.revive().list("")
    assert for_ever.get("a")


def test_a_full_disk_stays_full_but_can_be_read_and_emptied():
    backend = faulty({1: "enospc"})
    backend.put("c", b"c")
    for _ in range(2):
        with pytest.raises(StorageError, match="space"):
            backend.put("d", b"d")
    backend.delete("b")
    assert sorted(backend.list("")) == ["a", "c"]
    backend.revive()
    backend.put("d", b"d")


@pytest.mark.parametrize(("kind", "landed"), [("lost_reply", True), ("lost_request", False)])
def test_a_lost_message_leaves_the_outcome_open(kind, landed):
    backend = faulty({0: kind, 1: kind})
    for call in (lambda: backend.put("c", b"c"), lambda: backend.delete("a")):
        with pytest.raises(UnknownOutcomeError) as caught:
            call()
        assert caught.value.outcome_unknown
    assert ("c" in backend.list("")) == landed
    assert ("a" not in backend.list("")) == landed


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_a_stale_listing_lacks_the_newest(count):
    backend = faulty({4: Fault("stale_listing", count=count)})
    for name in ("nodes/z", "nodes/x", "nodes/y", "edges/e"):
        backend.put(name, b"")
    order = ["nodes/z", "nodes/x", "nodes/y"]
    assert sorted(backend.list("nodes")) == sorted(order[: max(0, 3 - count)])
    assert sorted(backend.list("nodes")) == sorted(order)


def test_damage_on_reading_is_deterministic_and_real():
    flips = set()
    for seed in range(50):
        found = [faulty({0: "bit_flip"}, seed=seed).get("a") for _ in range(2)]
        assert found[0] == found[1]
        difference = int.from_bytes(found[0], "big") ^ int.from_bytes(b"0123456789", "big")
        assert difference.bit_count() == 1
        flips.add(difference)
        short = faulty({0: "short_read"}, seed=seed).get("a")
        assert b"0123456789".startswith(short)
        assert len(short) < 10
    assert len(flips) > 20
    once = faulty({0: "bit_flip"})
    assert once.get("a") != once.get("a") == b"0123456789"


def test_faults_by_predicate():
    backend = faulty({lambda operation: operation.key.startswith("nodes/"): Fault("eio", times=2)})
    backend.put("data/x", b"x")
    for _ in range(2):
        with pytest.raises(StorageError):
            backend.put("nodes/x", b"x")
    backend.put("nodes/x", b"x")
    assert [(operation.number, kind) for operation, kind in backend.struck] == [(1, "eio"), (2, "eio")]


def test_a_fault_that_does_not_fit_does_not_happen():
    backend = faulty({0: "bit_flip", 1: "torn", 2: "stale_listing"})
    backend.put("c", b"c")
    assert backend.get("c") == b"c"
    assert backend.size("c") == 1
    assert backend.struck == []
    with pytest.raises(InvalidInputError):
        faulty({0: "meteor"})


def test_errors_of_the_inner_backend_pass():
    backend = faulty({})
    with pytest.raises(NotFoundError):
        backend.get("absent")
    with pytest.raises(InvalidInputError):
        backend.put("../x", b"")


def careful(backend):
    """Data, then the record that makes it so."""
    backend.put("data/x", b"x")
    backend.put("nodes/x", b"x")


def careless(backend):
    backend.put("nodes/x", b"x")
    backend.put("data/x", b"x")


def broken_points(run):
    def whole(backend):
        return "nodes/x" not in backend.list("") or "data/x" in backend.list("")

    return [
        point.operation.number for point in crash_points(MemoryBackend.fresh, run) if not whole(point.backend)
    ]


def test_crash_points_find_the_wrong_order():
    assert broken_points(careful) == []
    assert broken_points(careless) == [1, 0]


def test_crash_points_reach_every_operation_and_no_more():
    points = list(crash_points(MemoryBackend.fresh, careful))
    assert [(point.kind, point.operation.number) for point in points] == [
        ("crash_before", 0), ("crash_before", 1), ("crash_after", 0), ("crash_after", 1),
    ]  # fmt: skip
    assert all(isinstance(point.error, Crash) for point in points)


def test_reads_are_points_too():
    def look(backend):
        backend.list("")
        backend.get("a")

    def make():
        return MemoryBackend.fresh({"a": b"0"})

    kinds = ("crash_before", "crash_after", "eio", "bit_flip", "short_read", "stale_listing", "torn")
    found = [(point.kind, point.operation.name) for point in every_point(make, look, kinds)]
    assert found == [
        ("crash_before", "list"), ("crash_before", "get"), ("eio", "list"), ("eio", "get"),
        ("bit_flip", "get"), ("short_read", "get"), ("stale_listing", "list"),
    ]  # fmt: skip


def test_a_run_that_retries_gets_further_points():
    def stubborn(backend):
        for _ in range(3):
            try:
                return backend.put("x", b"x")
            except LcstoreError:
                continue
        return None

    once = list(every_point(MemoryBackend.fresh, stubborn, ["eio"]))
    assert [point.error for point in once] == [None]
    for_ever = list(every_point(MemoryBackend.fresh, stubborn, ["eio"], forever=True))
    assert [point.operation.number for point in for_ever] == [0]
    assert "x" not in for_ever[0].backend.list("")


def test_other_exceptions_are_findings():
    def sloppy(backend):
        try:
            backend.put("x", b"x")
        except StorageError as error:
            raise RuntimeError("oops") from error

    with pytest.raises(RuntimeError):
        list(every_point(MemoryBackend.fresh, sloppy, ["eio"]))


def test_points_of_pickled_names():
    assert pickle.loads(pickle.dumps(Operation(0, "put", "x", 1))) == Operation(0, "put", "x", 1)
