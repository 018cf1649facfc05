"""A night's maintenance: its order, what fails in a part, and going on after an interruption."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from kit.looks import values
from kit.weighing import Weighing
from states import same

import lcstore
from lcstore import CorruptionError, InvalidInputError, StorageError
from lcstore.compaction.making import Made, Maker
from lcstore.format import keys, markkeys
from lcstore.graph import newest
from lcstore.graph.graph import Graph
from lcstore.graph.paths import TwoWayPaths
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import Crash, FaultBackend

KEEP = "latest:2 | every:4"


def filled(count: int = 9) -> MemoryBackend:
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    weights = random.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(backend, threads=1, grace=0) as store:
        for step in range(count):
            weights = weights + random.standard_normal((64, 64)).astype(np.float32) * np.float32(0.01)
            store.save(step, {"model": {"w.weight": weights}, "n": step})
    return backend


def test_what_is_let_go_of_tonight_can_be_brought_back_until_tomorrow():
    backend = filled()
    before = values(backend)
    with lcstore.open(backend, "r+", threads=1) as store:
        first = store.maintain(KEEP)
        assert first.ok
        assert (first.collected.deleted_objects, len(first.retained.retired)) == (0, 5)
        assert first.compacted.added == first.compacted.planned
        assert first.verified.ok
        assert store.steps() == [0, 4, 7, 8]
        gone = next(one for one in first.retained.retired if one.step == 6)
        store.pin(gone.node)
        assert same(store.restore(6), before[6])
        second = store.maintain(KEEP)
        assert second.collected.deleted_objects > 0
        assert second.retained.retired == ()
    assert same(values(backend), {step: before[step] for step in (0, 4, 6, 7, 8)})


def test_a_budget_holds_where_states_have_exact_values():
    """As a preempted job leaves them: its manager saves exactly on SIGTERM."""
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    weights = random.standard_normal((128, 256)).astype(np.float32)
    full = weights.nbytes
    with lcstore.open(backend, threads=1, grace=0) as store:
        for step in range(20):
            weights = weights + random.standard_normal(weights.shape).astype(np.float32) * np.float32(0.001)
            store.save(step, {"model": {"w.weight": weights}}, exact=step % 4 == 0)
        # An anchor and one exact value have room, and not two.
        kept = store.maintain(f"budget:{5 * full}").retained.kept
        assert kept == tuple(range(13, 20))
        store.maintain("budget:10GB")
        stored = store.stats().bytes_stored
        assert stored["total"] - stored["records"] <= 5 * full
        # What the same rule lets go of takes no room.
        assert store.maintain(f"budget:{3 * full} | exact-only:latest:1").retained.kept == kept
        assert not store.info(16).exact
        assert store.maintain(f"budget:{3 * full}").retained.kept == kept


@pytest.mark.parametrize("how", ["maintain", "retain"])
def test_a_budget_keeps_each_night_what_it_keeps_at_the_end(how):
    kept = []
    for each in (60, 10):
        backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
        weights = random.standard_normal((128, 256)).astype(np.float32)
        with lcstore.open(backend, threads=1, grace=0) as store:
            for step in range(1, 61):
                weights = weights + random.standard_normal(weights.shape, np.float32) * np.float32(0.001)
                store.save(step, {"model": {"w.weight": weights}})
                if step % each == 0:
                    with lcstore.open(backend, "r+", threads=1) as other:
                        getattr(other, how)(f"budget:{4 * weights.nbytes}")
            kept.append(store.steps())
    assert kept[0] == kept[1]
    assert 5 < len(kept[0]) < 60


class Noting(MemoryBackend):
    """Knows in which order things were let go of."""

    let_go: tuple[str, ...] = ()

    def put(self, key: str, data: Any) -> None:
        super().put(key, data)
        if key.startswith(keys.RETIRED):
            self.let_go += (markkeys.parse_retired_key(key).what,)


def test_exact_values_are_let_go_of_before_states():
    """A budget that is decided again after an interruption finds those gone that it did not count."""
    backend, random = Noting.fresh(), np.random.default_rng(0)
    with lcstore.open(backend, threads=1) as store:
        weights = np.zeros((64, 64), np.float32)
        for step in range(6):
            weights = weights + random.standard_normal((64, 64)).astype(np.float32)
            store.save(step, {"model": {"w.weight": weights}}, exact=True)
        store.retain("latest:3 | exact-only:latest:1")
    assert backend.let_go == ("exact",) * 2 + ("state",) * 3


def read_by_a_restore(backend: Weighing) -> int:
    with lcstore.open(backend, "r", threads=1) as store:
        backend.nbytes = 0
        store.restore()
    return backend.nbytes


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("policy", ["balanced", "lossless"])
def test_what_restoring_the_latest_reads_is_what_it_reads(policy, exact):
    """An exact state is not read along its path, so a compaction saves it nothing."""
    backend, random = Weighing.fresh(), np.random.default_rng(0)
    weights, counts = random.standard_normal((128, 128)).astype(np.float32), np.arange(4096)
    with lcstore.open(backend, threads=1, policy=policy) as store:
        for step in range(9):
            weights = weights + random.standard_normal((128, 128)).astype(np.float32) * np.float32(0.001)
            counts = counts + 1
            store.save(step, {"w.weight": weights, "counts": counts}, exact=exact and step == 8)
        before = read_by_a_restore(backend)
        planned = store.compact(dry_run=True)
        done = store.compact()
    after = read_by_a_restore(backend)
    assert done.added > 0
    assert planned.latest_before == done.latest_before == before > 0
    assert done.latest_after == after
    if exact:
        assert planned.latest_after == after == before
    else:
        assert max(planned.latest_after, after) < 0.95 * before


def test_what_restoring_the_latest_reads_is_not_told_where_it_is_not_known():
    with lcstore.open(MemoryBackend.fresh(), threads=1) as store:
        assert store.compact(dry_run=True).latest_before is None
        store.save(0, {"n": 1})
        assert store.compact(dry_run=True).latest_before == 0
    backend = filled(3)
    with lcstore.open(backend, "r", threads=1) as store:
        first = store.at(0).name
    for key in (keys.node_key(first), keys.copy_key(first.node)):
        backend.delete(key)
    with lcstore.open(backend, "r", threads=1) as store:
        planned = store.compact(dry_run=True)
    assert planned.latest_before is planned.latest_after is None


def test_a_report_that_is_printed_has_a_line_for_each_part():
    with lcstore.open(MemoryBackend.fresh()) as store:
        for step in range(4):
            store.save(step, {"model": {"w": np.full((64, 64), 1 + step / 100, np.float32)}})
        lines = str(store.maintain("latest:2", dry_run=True)).splitlines()
    begins = store.url, "would be collected", "would be retained: 2 states kept, 2 let go of", "would be comp"
    assert [line.startswith(begin) for line, begin in zip(lines, begins, strict=False)] == [True] * 4
    assert lines[4].startswith("verified")
    assert re.fullmatch(r"[\d.]+ \w+ now, [\d.]+ \w+ once compacted, [\d.]+ \w+ once collected .*", lines[5])


def test_a_metric_that_no_state_has_is_an_error_and_no_quiet_night():
    with lcstore.open(filled(), "r+", threads=1) as store, pytest.raises(InvalidInputError, match="accuracy"):
        store.maintain("best:1:accuracy:max")


def test_one_compaction_is_enough_though_merged_edges_come_out_larger_than_estimated():
    """Saves that go on in one direction add up to more than saves that know nothing of each other."""
    random = np.random.default_rng(0)
    weights, going = random.standard_normal((64, 64)).astype(np.float32), np.zeros((64, 64), np.float32)
    with lcstore.open(MemoryBackend.fresh(), threads=1, durability="none") as store:
        for step in range(21):
            going = np.float32(0.9) * going + random.standard_normal((64, 64)).astype(
                np.float32
            ) * np.float32(1e-3)
            weights = weights + going
            store.save(step, {"model": {"w.weight": weights}})
        store.retain("latest:3 | every:5")
        foreseen = store.compact(dry_run=True)
        done = store.compact()
        assert done.planned == done.added > foreseen.planned
        assert done.longest_after <= foreseen.longest_after
        assert store.compact(dry_run=True).planned == 0
        assert store.compact().added == 0


def test_a_dry_run_changes_nothing_and_plans_without_what_would_go():
    backend = filled()
    there = backend.snapshot()
    with lcstore.open(backend, "r", threads=1) as store:
        shown = store.maintain(KEEP, dry_run=True)
        assert shown.ok
        assert len(shown.retained.retired) == 5
    assert backend.snapshot() == there
    with lcstore.open(backend, "r+", threads=1) as store:
        store.retain(KEEP)
        alone = store.compact(dry_run=True)
    assert (shown.compacted.planned, shown.compacted.bytes_after) == (alone.planned, alone.bytes_after)


@pytest.mark.parametrize(
    ("folder", "part", "done"),
    [("condemned", "collect", []), ("retired", "retain", ["collected"]),
     ("data", "compact", ["collected", "retained"])],
)  # fmt: skip
def test_what_fails_says_which_part_and_the_next_one_goes_on(folder, part, done):
    backend = filled(21)
    before = values(backend)
    with lcstore.open(backend, "r+", threads=1) as store:
        assert store.maintain("latest:12 | every:4").compacted.added
    fails = FaultBackend(backend, {lambda asked: asked.name == "put" and asked.key.startswith(folder): "eio"})
    with lcstore.open(fails, "r+", threads=1) as store:
        report = store.maintain("latest:1 | every:10")
        assert list(report.problems) == [part]
        assert isinstance(report.problems[part], StorageError)
        assert not report.ok
        named = ("collected", "retained", "compacted")
        assert [name for name in named if getattr(report, name) is not None] == done
        assert report.verified.ok
    with lcstore.open(backend, "r+", threads=1) as store:
        assert store.maintain("latest:1 | every:10").ok
        assert store.steps() == [0, 10, 20]
        while store.collect().deleted_objects:
            pass
        assert store.verify("restore").ok
    assert same(values(backend), {step: before[step] for step in (0, 10, 20)})


def test_damage_is_told_and_nothing_goes():
    backend = filled()
    with lcstore.open(backend, "r+", threads=1, durability="none") as store:
        lost = [key for key in backend.list("data") if "/weights" in key]
        for key in lost:
            backend.delete(key)
        there = backend.snapshot()
        report = store.maintain(KEEP)
    assert list(report.problems) == ["collect", "verify"]
    assert isinstance(report.problems["verify"], CorruptionError)
    assert report.retained is None
    assert backend.snapshot() == there


@pytest.mark.parametrize("level", ["structure", "checksum"])
def test_what_the_target_does_not_give_is_told_as_that(level):
    """It is no damage as far as anyone knows, and costs nothing yet: the parity of an object."""
    backend = filled(4)
    refusing = FaultBackend(
        backend, {lambda asked: asked.name in ("get", "size") and asked.key.endswith("/p.0"): "eio"}
    )
    with lcstore.open(refusing, "r+", threads=1) as store:
        report = store.maintain("latest:2", level=level)
    assert not report.ok
    assert list(report.problems) == ["verify"]
    problem = report.problems["verify"]
    assert "that the target did not give" in problem.message
    assert "`lcstore verify" in problem.message
    assert problem.key.endswith("/p.0")


@pytest.mark.parametrize("threads", [1, 2])
def test_damage_that_a_night_meets_and_gets_around_is_no_quiet_night(threads):
    backend = filled()
    before = values(backend)
    for key in [key for key in backend.list("data") if "/weights" in key and "/c." in key]:
        data = bytearray(backend.get(key))
        data[len(data) // 2] ^= 1
        backend.put(key, data)
        break
    with (
        lcstore.open(backend, "r+", threads=threads) as store,
        pytest.warns(lcstore.FallbackWarning, match="rebuilt"),
    ):
        report = store.maintain("latest:1 | every:8")
    assert report.retained is not None
    assert report.compacted.added
    assert not report.ok
    assert list(report.problems) == ["verify"]
    assert re.search(
        r"damage was met on the way: .*rebuilt.*run `lcstore repair", report.problems["verify"].message
    )
    assert report.next == "lcstore repair {url}"
    with lcstore.open(backend, "r+", threads=threads) as store:
        store.repair(dry_run=False)
        assert store.maintain("latest:1 | every:8").ok
    assert same(values(backend), {step: before[step] for step in (0, 8)})


@pytest.mark.filterwarnings("ignore::lcstore.FallbackWarning")
def test_damage_that_a_dry_run_meets_where_it_looks_ahead_is_no_quiet_night():
    """It had warned, and called the store good."""
    backend = filled()
    with lcstore.open(backend, "r+") as store:
        assert store.maintain("latest:1 | every:8", dry_run=True).ok
    for key in [key for key in backend.list("data") if "/weights" in key and "/c." in key]:
        data = bytearray(backend.get(key))
        data[len(data) // 2] ^= 1
        backend.put(key, data)
    there = backend.snapshot()
    with lcstore.open(backend, "r+") as store:
        report = store.maintain("latest:1 | every:8", dry_run=True)
    assert not report.ok
    assert list(report.problems) == ["verify"]
    assert re.search(r"damage was met .*`lcstore repair", report.problems["verify"].message)
    assert report.forecast is not None
    assert backend.snapshot() == there


def test_ways_around_what_is_missing_are_looked_for_once_for_all_states(monkeypatch):
    """For each state the whole graph was gone over: a day, where one object of 100,000 states was missing."""
    backend, made = filled(), []
    backend.delete(min(key for key in backend.list("data") if ".add/c." in key))

    def counted(edges):
        made.append(1)
        return TwoWayPaths(edges)

    monkeypatch.setattr("lcstore.graph.graph.TwoWayPaths", counted)
    with lcstore.open(backend, "r+", threads=1, durability="none") as store:
        for key in [key for key in backend.list("data") if "/p." in key]:
            backend.delete(key)
        with pytest.raises(CorruptionError, match="an object that it needs is missing"):
            store.collect()
    assert len(made) == 1


def test_what_is_no_rule_is_refused_before_anything_is_done():
    backend = filled(2)
    before = backend.snapshot()
    with lcstore.open(backend, "r+", threads=1) as store:
        for rule, bounds in (
            ("newest:3", {}),
            ("latest:1", {"level": "all"}),
            ("latest:1", {"max_bytes": "much"}),
            ("latest:1", {"max_seconds": "x"}),
        ):
            with pytest.raises(InvalidInputError):
                store.maintain(rule, **bounds)
    assert backend.snapshot() == before


@pytest.mark.parametrize("stride", [11, pytest.param(1, marks=pytest.mark.soak)])
def test_interrupted_anywhere_and_run_again_it_is_done(stride):
    backend = filled(6)
    before = values(backend)
    with lcstore.open(backend, "r+", threads=1) as store:
        store.retain("latest:4")
    start, number, struck = backend.snapshot(), 0, True
    while struck:
        left = MemoryBackend.fresh(start)
        dying = FaultBackend(left, {number: "crash_before"})
        try:
            with lcstore.open(dying, "r+", threads=1) as store:
                store.maintain("latest:1")
        except Crash:
            pass
        struck = bool(dying.struck)
        with lcstore.open(left, "r+", threads=1) as store:
            assert store.maintain("latest:1").ok
            assert store.maintain("latest:1").ok
            assert store.steps() == [5]
            assert same(store.restore(), before[5])
        number += stride
    assert number > 50


def test_edges_to_states_of_one_step_are_each_told_of_if_they_are_not_added(monkeypatch):
    """They are counted, too: what is left out is not taken for what there was no time for."""
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    weights = random.standard_normal((64, 64)).astype(np.float32)
    with lcstore.open(backend, threads=1) as store:
        first = store.save(0, {"model": weights}).node
        for _ in range(4):
            store.go_on_from(first)
            for step in range(1, 40):
                weights = weights + random.standard_normal((64, 64)).astype(np.float32) * np.float32(0.001)
                store.save(step, {"model": weights})
        monkeypatch.setattr(Maker, "make", lambda *_: Made(None, 0, "there is no room"))
        report = store.compact()
    assert len({step for step, _ in report.skipped}) < len(report.skipped) == report.planned
    assert not report.is_cut_short


def test_what_is_collected_meanwhile_is_not_taken_for_what_there_was_no_time_for(monkeypatch):
    def gone(self, *given):
        self.index.graph = Graph()
        return Made(None, 0, "collected meanwhile")

    monkeypatch.setattr(Maker, "make", gone)
    with lcstore.open(filled(40), "r+", threads=1) as store:
        report = store.compact()
    assert len(report.skipped) == report.planned > 0
    assert not report.is_cut_short


def test_what_is_left_of_small_forks_has_no_anchors_of_its_own(monkeypatch):
    """They took a quarter to a half of a sweep, to save reads of some MiB."""
    stored = []
    for free in (0, 1 << 22):
        monkeypatch.setattr(newest, "FREE_READS", free)
        backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
        weights = random.standard_normal((64, 64)).astype(np.float32)
        for fork in range(5):
            with lcstore.open(backend, grace=0, threads=1, durability="none") as store:
                weights = store.resume(0)["model"]["w.weight"] if fork else weights
                for step in range(12 * fork, 12 * (fork + 1)):
                    store.save(step, {"model": {"w.weight": weights}})
                    weights = weights + random.normal(0, 1e-3, weights.shape).astype(np.float32)
        before = values(backend)
        with lcstore.open(backend, "r+", threads=1, durability="none") as store:
            for _ in range(3):
                store.maintain("each-run:latest:2")
            assert store.compact(dry_run=True).planned == 0
            stored.append(store.stats().bytes_stored["total"])
        assert same(values(backend), {step: before[step] for step in range(60) if step % 12 > 9})
    assert stored[1] < 0.8 * stored[0]
