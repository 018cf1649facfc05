"""What a store will take: told from listings and records, close to what maintenance then makes of it."""

from __future__ import annotations

import numpy as np
import pytest

import lcstore
from lcstore import CorruptionError
from lcstore.storage.memory import MemoryBackend
from lcstore.testing import FaultBackend


def filled(durability: str = "default", going_on: float = 0.0, decay: float = 1.0) -> MemoryBackend:
    """Thirty saves; each moves the weights in a new direction, or goes on with some of the last move.

    With `decay` each moves them less than the one before, and rows by unlike lengths.
    """
    backend = MemoryBackend.fresh()
    random = np.random.default_rng(0)
    weights = random.standard_normal((256, 64), dtype=np.float32)
    move = np.zeros_like(weights)
    rows = 1 if decay == 1 else np.logspace(-1, 0, len(weights), dtype=np.float32)[:, None]
    with lcstore.open(backend, grace=0, threads=1, durability=durability) as store:
        for step in range(30):
            fresh = random.standard_normal(weights.shape, dtype=np.float32) * np.float32(0.01)
            move = np.float32(going_on) * move + fresh * rows * np.float32(decay**step)
            weights = weights + move
            moment = {"exp_avg": weights * np.float32(0.1)}
            store.save(step, {"model": {"w.weight": weights}, "optim": {"state": {0: moment}}, "n": step})
    return backend


def taken(backend: MemoryBackend) -> int:
    return sum(map(len, backend.snapshot().values()))


@pytest.mark.parametrize("durability", ["default", "none"])
@pytest.mark.parametrize(
    "keep",
    [None, "latest:3 | every:10", "latest:3 | every:5 | strip:optim/**:latest:2", "latest:1",
     "latest:99 | exact-only:latest:1"],
)  # fmt: skip
@pytest.mark.parametrize("going_on", [0.0, 0.9])
def test_it_comes_close_to_what_happens(keep, durability, going_on):
    backend = filled(durability, going_on)
    with lcstore.open(backend, "r+", threads=1, durability=durability) as store:
        going = store.retain(keep, dry_run=True).retired if keep else ()
        told = store.forecast(going)
        assert told.bytes_now == pytest.approx(taken(backend), rel=0.02)
        if keep:
            store.retain(keep)
        planned = store.compact(dry_run=True).bytes_written
        assert planned == pytest.approx(store.compact().bytes_written, rel=0.15)
        assert told.bytes_compacted == pytest.approx(taken(backend), rel=0.1 if going_on else 0.05)
        while store.collect().deleted_objects:
            pass
        assert told.bytes_collected == pytest.approx(taken(backend), rel=0.1)
        after = store.forecast()
        assert after.bytes_now == after.bytes_compacted == after.bytes_collected == after.bytes_without


@pytest.mark.parametrize(("saved", "compacted"), [("default", "none"), ("none", "default")])
def test_parity_and_copies_count_where_the_compaction_stores_them(saved, compacted):
    """As after a copy from a disk to a bucket, and back."""
    with lcstore.open(filled(saved), "r+", threads=1, durability=compacted) as store:
        told = store.compact(dry_run=True)
        assert told.bytes_written == pytest.approx(store.compact().bytes_written, rel=0.1)


@pytest.mark.parametrize("durability", ["default", "none"])
def test_of_a_small_model_the_record_of_a_save_is_not_that_of_a_merge(durability):
    """A save's names moments, exact tensors and numbers besides."""
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    weights = random.standard_normal((32, 32), np.float32)
    with lcstore.open(backend, grace=0, threads=1, durability=durability) as store:
        for step in range(30):
            weights = weights + random.standard_normal(weights.shape, np.float32) * np.float32(0.01)
            moments = {"exp_avg": weights * np.float32(0.1), "exp_avg_sq": weights * weights}
            model = {"w.weight": weights, "w.bias": weights[0], "norm.weight": weights[1] + 1}
            seeds = {f"seed {at}": at for at in range(20)}
            store.save(step, {"model": model, "optim": {"state": {0: moments}}, "step": step} | seeds)
        store.retain("latest:3 | every:5")
        told = store.compact(dry_run=True)
        assert told.bytes_written == pytest.approx(store.compact().bytes_written, rel=0.1)


@pytest.mark.parametrize("part", [0.3, 0.7])
def test_a_bound_bounds_what_is_foretold_as_what_is_written(part):
    with lcstore.open(filled(), "r+", threads=1) as store:
        most = int(part * store.compact(dry_run=True).bytes_written)
        told = store.compact(dry_run=True, max_bytes=most)
        assert 0 < told.bytes_written <= most
        assert store.forecast(max_bytes=most).compaction_writes == told.bytes_written
        assert told.bytes_written == pytest.approx(store.compact(max_bytes=most).bytes_written, rel=0.15)


@pytest.mark.parametrize("keep", [None, "latest:3 | every:10", "latest:1"])
def test_a_collection_tells_all_bytes_that_go_before_and_after(keep):
    with lcstore.open(filled(), "r+", threads=1) as store:
        if keep:
            store.retain(keep)
        store.compact()
        before, told, done = store.forecast(), store.collect(dry_run=True), store.collect()
        for name in ("deleted_objects", "deleted_bytes", "deleted_marks"):
            assert getattr(told, name) == getattr(done, name)
        assert done.deleted_bytes > 0
        assert (done.deleted_marks > 0) == (keep is not None)
        assert before.bytes_now - store.forecast().bytes_now == done.deleted_bytes


@pytest.mark.parametrize("keep", [None, "latest:3 | every:10", "latest:1"])
def test_it_says_what_is_left_without_compaction(keep):
    backend = filled()
    with lcstore.open(backend, "r+", threads=1) as store:
        told = store.forecast(store.retain(keep, dry_run=True).retired if keep else ())
        if keep:
            store.retain(keep)
        while store.collect().deleted_objects:
            pass
        assert told.bytes_without == pytest.approx(taken(backend), rel=0.05)  # marks besides


@pytest.mark.parametrize("keep", ["every:5", "every:15", "latest:9 | every:10"])
def test_smaller_and_smaller_moves_are_summed_on_the_smallest_step_size(keep):
    backend = filled(decay=0.9)
    with lcstore.open(backend, "r+", threads=1) as store:
        told = store.forecast(store.retain(keep, dry_run=True).retired)
        store.retain(keep)
        store.compact()
        assert told.bytes_compacted == pytest.approx(taken(backend), rel=0.05)
        while store.collect().deleted_objects:
            pass
        assert told.bytes_collected == pytest.approx(taken(backend), rel=0.1)


def forked(grace: float) -> MemoryBackend:
    """A run, one that took its place from step 10 on, and one that went on from step 5; each with a leap."""
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    base = random.standard_normal((64, 64), np.float32) * np.float32(0.01)
    for run, (first, end) in enumerate([(0, 24), (11, 19), (6, 14)]):
        with lcstore.open(backend, grace=grace, threads=1) as store:
            (lambda step: None, store.rewind, store.resume)[run](first - 1)
            weights = base + random.standard_normal((64, 64), np.float32) * np.float32(0.01)
            for step in range(first, end):
                weights = weights + random.standard_normal((64, 64), np.float32) * np.float32(0.001)
                loss = 100 - step if run else abs(step - 17.6)
                store.save(step, {"model": {"w.weight": weights}, "n": step}, metrics={"loss": loss})
    return backend


@pytest.mark.parametrize("grace", [0, 3600])
def test_a_dry_run_of_a_night_plans_for_what_its_own_collection_leaves(grace):
    backend, keep = forked(grace), "latest:3 | every:10 | best:2:loss"
    with lcstore.open(backend, "r+", threads=1) as store:
        store.maintain(keep)
        before = store.forecast().bytes_now
        told, done = store.maintain(keep, dry_run=True), store.maintain(keep)
        assert told.compacted.planned == done.compacted.added == 1
        assert told.compacted.bytes_written == pytest.approx(done.compacted.bytes_written, rel=0.35)
        after = store.forecast()
        assert told.forecast.bytes_now == before
        assert told.forecast.bytes_deleted == done.collected.deleted_bytes
        assert (done.collected.deleted_bytes > 0) == (grace == 0)
        assert told.forecast.bytes_compacted == pytest.approx(after.bytes_now, rel=0.02)
        assert told.forecast.bytes_collected == pytest.approx(after.bytes_collected, rel=0.05)


def test_of_the_data_some_chunks_are_read():
    backend = FaultBackend(filled())
    with lcstore.open(backend, "r", threads=1) as store:
        going = store.retain("latest:3 | every:5", dry_run=True).retired
        backend.log.clear()
        store.forecast(going)
    assert {asked.name for asked in backend.log} <= {"get", "list", "size"}
    read = [asked.key for asked in backend.log if asked.name == "get" and asked.key.startswith("data/")]
    assert 0 < len(read) <= 96
    assert sum(asked.name == "size" for asked in backend.log) <= 2


def test_what_is_damaged_is_not_foretold():
    backend = filled("none")
    backend.put(min(backend.list("nodes")), b"{}")
    with lcstore.open(backend, "r") as store, pytest.raises(CorruptionError):
        store.forecast()


@pytest.mark.filterwarnings("ignore::lcstore.UnrecognisedWarning")
def test_what_is_plain_and_changes_is_foretold_too():
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    weights = {f"{layer}.weight": random.standard_normal((128, 128), np.float32) for layer in range(4)}
    first = {name: np.zeros_like(values) for name, values in weights.items()}
    second = {name: np.zeros_like(values) for name, values in weights.items()}
    with lcstore.open(backend, grace=0, threads=1) as store:
        for step in range(100):
            for name, values in weights.items():
                move = random.standard_normal(values.shape, np.float32)
                first[name] = np.float32(0.9) * first[name] + np.float32(0.1) * move
                second[name] = np.float32(0.99) * second[name] + np.float32(0.01) * move * move
                weights[name] = values - np.float32(1e-4) * first[name] / np.sqrt(second[name])
            # Without a counter beside nothing says that this is Adam.
            store.save(step, {"params": weights, "opt_state": {"mu": first, "nu": second}})
        before, told = taken(backend), store.compact(dry_run=True)
        done = store.compact()
        assert done.bytes_written == pytest.approx(taken(backend) - before, rel=0.02)
        assert told.bytes_written == pytest.approx(done.bytes_written, rel=0.35)


def test_a_forecast_beside_a_run_that_saves_is_of_what_is_kept():
    """All that was kept had been saved meanwhile, and nothing of what was seen was to be left."""
    backend, left = filled(), []
    with lcstore.open(backend, threads=1) as run:
        weights = run.resume()["model"]["w.weight"]

        def saves(asked):
            if left and (asked.name, asked.key) == ("list", left[-1]):
                left.pop()
                for step in range(30, 33) if not left else ():
                    run.save(step, {"model": {"w.weight": weights * np.float32(step / 30)}, "n": step})
            return False

        with lcstore.open(FaultBackend(backend, {saves: "eio"}), "r+", threads=1) as store:
            quiet = store.maintain("latest:2", dry_run=True).forecast
            left += ["retired", "retired"]  # its second listing, which says what is to be let go of
            found = store.maintain("latest:2", dry_run=True).forecast
    assert not left
    assert quiet.bytes_collected / 2 < found.bytes_collected < found.bytes_now / 2


def test_tables_of_which_some_change_in_few_rows_are_foretold_too():
    """Their chunks are unlike: sums of few rows grow with each save, and sums of most rows hardly do."""
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    shares = {"user.weight": (20_000, 0.06), "item.weight": (5_000, 0.6)}
    tables = {name: random.standard_normal((rows, 64), np.float32) for name, (rows, _) in shares.items()}
    with lcstore.open(backend, grace=0, threads=1, policy="lossless", durability="none") as store:
        for step in range(25):
            for name, (rows, share) in shares.items():
                some = random.choice(rows, round(share * rows), replace=False)
                tables[name][some] += random.standard_normal((len(some), 64), np.float32) * np.float32(0.01)
            store.save(step, {"model": tables})
        store.retain("latest:1 | every:4")
        told = store.compact(dry_run=True).bytes_written
        assert told == pytest.approx(store.compact().bytes_written, rel=0.15)
