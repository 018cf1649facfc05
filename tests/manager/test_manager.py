"""A loop saves when it is due, goes on where it was, and hears of every failure."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from kit import programs
from kit.around import Gate
from kit.fulldisk import Disk
from loop import trained

import lcstore
from lcstore import (
    CheckpointManager,
    FallbackWarning,
    InvalidInputError,
    NotFoundError,
    Overhead,
    StorageError,
)
from lcstore.manager.lastsave import LastSave
from lcstore.manager.preemption import Notice
from lcstore.storage.memory import MemoryBackend
from lcstore.write.writer import Writer

LOOP = Path(__file__).with_name("loop.py")


def state(step: int) -> dict:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    return {"model": {"weight": weight + np.float32(1e-3) * np.float32(step)}, "epoch": step}


def train(manager: CheckpointManager, steps: range, **how) -> list[int]:
    return [step for step in steps if manager.save(step, state(step), **how)]


def tended(manager: CheckpointManager) -> None:
    """Have its rule be carried out, and again with the next save."""
    manager._tending.finish()
    manager._tending._next = 0


def saved_alone(manager: CheckpointManager, step: int) -> None:
    assert manager.save(step, state(step))
    manager.wait_until_finished()


@pytest.mark.parametrize("background", [True, False])
def test_what_is_due_is_saved_and_nothing_else(background):
    with CheckpointManager(MemoryBackend.fresh(), every=10, background=background) as manager:
        assert manager.latest_step() is None
        assert manager.best_step("loss") is None
        assert train(manager, range(25)) == [0, 10, 20]
        manager.wait_until_finished()
        assert manager.all_steps() == [0, 10, 20]
        assert manager.latest_step() == 20
        assert not manager.save(20, state(20), force=True)  # it is there
        assert manager.save(24, state(24), force=True)
        assert manager.restore(10)["epoch"] == 10
        manager.wait_until_finished()
        assert manager.restore()["epoch"] == 24


@pytest.mark.parametrize("every", [Overhead(0.035), Overhead(0.5), lcstore.FailureRate("1h")])
def test_a_resumed_process_saves_soon_by_what_is_measured(every):
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=every) as manager:
        train(manager, range(20))
        manager.save(20, state(20), force=True)
    for first in (21, 41):
        with CheckpointManager(backend, every=every) as manager:
            assert manager.resume() is not None
            assert train(manager, range(first, first + 20))[0] == first + 1
            manager.save(first + 19, state(first + 19), force=True)


@pytest.mark.parametrize("every", [10, "1h", Overhead(0.035), lcstore.FailureRate("1h")])
@pytest.mark.parametrize("background", [True, False])
def test_a_loop_that_counts_anew_is_saved_with_a_warning(every, background):
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=every) as manager:
        manager.save(999, state(999), force=True)
    with CheckpointManager(backend, every=every, background=background) as manager:
        assert manager.resume() is not None
        with pytest.warns(lcstore.StepWarning, match="999"):
            saved_alone(manager, 0)
        if every == 10:  # from then on it is as due as ever
            assert train(manager, range(1, 25)) == [10, 20]
        manager.wait_until_finished()
    assert lcstore.open(backend, "r").restore()["epoch"] == (20 if every == 10 else 0)


def test_the_end_of_a_loop_that_is_not_saved_is_told_of(caplog):
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=10) as manager:
        train(manager, range(25))
    assert "the loop ended with step 24, and the last one saved is 20" in caplog.text
    caplog.clear()
    with CheckpointManager(backend, every=10) as manager:
        assert manager.resume().step == 20
    with CheckpointManager(backend, every=10) as manager:
        manager.resume()
        train(manager, range(21, 25))
        manager.save(24, state(24), force=True)
    with suppress(KeyError), CheckpointManager(backend, every=10) as manager:
        manager.resume()
        train(manager, range(25, 27))
        raise KeyError
    assert "the loop ended" not in caplog.text


class Given:
    """An array that its library has given away."""

    def __float__(self):
        raise RuntimeError("Array has been deleted")


def evaluated(url, every: int, caplog, **how):
    """Return what is told of a loop of 60 steps that is evaluated each `every` steps, best at 20."""
    caplog.clear()
    rule = how.pop("keep", "latest:2 | best:2:val")
    with (
        caplog.at_level("WARNING", "lcstore"),
        lcstore.CheckpointManager(url, every=30, keep=rule) as manager,
    ):
        for step in range(61):
            metrics = {"val": abs(step - 20.0)} if step % every == 0 else {"other": 1.0}
            manager.save(step, {"epoch": step}, metrics=metrics, **{k: v(step) for k, v in how.items()})
    return [record.getMessage() for record in caplog.records if "so far" in record.getMessage()]


@pytest.mark.parametrize("keep", ["latest:2 | best:2:val", "latest:2 | each-run:best:2:val"])
def test_a_good_evaluation_that_no_save_is_due_for_is_told_once(keep, tmp_path, caplog):
    (told,) = evaluated(tmp_path / "run", 5, caplog, keep=keep)
    assert "step 5, with the best 'val' so far, is not saved" in told
    assert "BestN(2, 'val') finds saved steps alone" in told
    assert "force=True" in told


def test_what_an_earlier_process_saved_may_be_better(tmp_path, caplog):
    with lcstore.CheckpointManager(tmp_path / "run", every=30, keep="latest:2 | best:2:val") as manager:
        manager.save(0, state(0), metrics={"val": 0.1})
    with lcstore.CheckpointManager(tmp_path / "run", every=30, keep="latest:2 | best:2:val") as manager:
        manager.resume()
        for step in range(1, 29):
            manager.save(step, state(step), metrics={"val": 9.0} if step % 5 == 0 else None)
        assert "so far" not in caplog.text
        manager.save(29, state(29), metrics={"val": 0.01})
    assert "step 29, with the best 'val' so far, is not saved" in caplog.text


@pytest.mark.parametrize("every", [5, 1])
@pytest.mark.parametrize(("also", "earlier"), [("", 0.1), ("best:1:val | ", 0.1), ("best:1:val | ", 99.0)])
def test_where_a_rule_keeps_the_best_of_each_run_an_earlier_one_is_not_better(
    also, earlier, every, tmp_path, caplog
):
    how = {"every": 30, "keep": f"latest:2 | {also}each-run:best:1:val"}
    with lcstore.CheckpointManager(tmp_path / "run", **how) as manager:
        manager.save(0, state(0), metrics={"val": earlier})
    with lcstore.CheckpointManager(tmp_path / "run", **how) as manager:
        manager.resume()
        for step in range(1, 39):
            metrics = {"val": 29.0 - step % 20} if step % every == 0 else None
            manager.save(step, state(step), metrics=metrics)
    assert f"step {5 if every == 5 else 19}, with the best 'val' so far, is not saved" in caplog.text
    assert caplog.text.count("so far") == 1


def test_rules_for_the_most_and_for_the_least_of_a_metric_are_told_apart(tmp_path, caplog):
    rule = "latest:2 | best:1:x:max | best:1:x:min"
    with (
        caplog.at_level("WARNING", "lcstore"),
        lcstore.CheckpointManager(tmp_path / "run", every=600, keep=rule) as manager,
    ):
        for epoch in range(20):
            manager.save(epoch, state(epoch), metrics={"x": (epoch - 12) / 100})
    assert "step 19, with the best 'x' so far, is not saved" in caplog.text


@pytest.mark.parametrize(("epochs", "told"), [(19, 1), (1200, 0)])
def test_the_best_epoch_is_told_at_the_end_where_each_has_the_metric(epochs, told, tmp_path, caplog):
    """One of each batch is much the same at the next save; the best epoch of 20 was lost without a word."""
    weight = np.zeros((64, 64), np.float32)
    with (
        caplog.at_level("WARNING", "lcstore"),
        lcstore.CheckpointManager(tmp_path / "run", every=600, keep="latest:2 | best:2:acc:max") as manager,
    ):
        for epoch in range(epochs):
            accuracy = float("nan") if epoch == 3 else 0.5 + 0.01 * (epoch == 8)
            manager.save(epoch, {"model": {"weight": weight}}, metrics={"acc": accuracy})
        assert "so far" not in caplog.text
    said = [record.getMessage() for record in caplog.records if "so far" in record.getMessage()]
    assert len(said) == told
    assert all("step 8, with the best 'acc' so far, is not saved" in text for text in said)


@pytest.mark.parametrize(
    ("every", "how"),
    [
        (5, {"keep": "latest:2"}),
        (5, {"force": lambda step: step % 5 == 0}),
        (30, {}),
    ],
)
def test_no_evaluation_is_told_that_is_kept_or_that_no_rule_goes_by(every, how, tmp_path, caplog):
    assert evaluated(tmp_path / "run", every, caplog, **how) == []


@pytest.mark.parametrize("metrics", [{"val": 10**400}, {"val": Given()}, {"val": "high"}, ["val"], "val"])
def test_odd_metrics_of_a_step_that_is_not_saved_end_no_loop(metrics, tmp_path):
    with lcstore.CheckpointManager(tmp_path / "run", every=30, keep="latest:2 | best:2:val") as manager:
        manager.save(0, state(0))
        assert not manager.save(7, state(7), metrics=metrics)


def test_a_state_is_made_only_where_it_is_saved():
    made = []

    def make(step):
        made.append(step)
        return state(step)

    with CheckpointManager(MemoryBackend.fresh(), every=4) as manager:
        for step in range(9):
            manager.save(step, lambda step=step: make(step))
    assert made == [0, 4, 8]


class Called:
    """Can be called, as modules can: what it gives then is no state."""

    def __call__(self) -> None:
        raise AssertionError("it was called")


class Module(Called):
    def state_dict(self) -> dict:
        return state(3)


@dataclass
class Fields(Called):
    model: dict


class Nest(Called, dict):
    pass


@pytest.mark.parametrize("model", [Module(), Fields(state(3)["model"]), Nest(state(3))], ids=type)
def test_a_state_that_can_be_called_is_no_function_that_returns_one(model):
    with CheckpointManager(MemoryBackend.fresh(), every=1, policy="lossless") as manager:
        assert manager.save(3, model)
        manager.wait_until_finished()
        assert np.array_equal(manager.restore(3)["model"]["weight"], state(3)["model"]["weight"])


def test_a_module_of_torch_is_a_state_and_not_called():
    torch = pytest.importorskip("torch")

    class Table(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(8, 8))

        def forward(self):  # it was saved in the place of the module
            return self.table.softmax(-1)

    with CheckpointManager(MemoryBackend.fresh(), every=1) as manager:
        for step, model in enumerate((torch.nn.Linear(8, 8), Table())):
            assert manager.save(step, model)
            manager.wait_until_finished()
            assert manager.restore(step).keys() == model.state_dict().keys()


def test_what_a_library_has_that_is_no_state_is_refused_and_not_called(monkeypatch):
    monkeypatch.setitem(sys.modules, "flax.nnx", SimpleNamespace(Pytree=Called))
    refused = pytest.raises(InvalidInputError, match=r"nnx\.state")
    with CheckpointManager(MemoryBackend.fresh(), every=1) as manager, refused:
        manager.save(0, Called())


def test_what_can_be_called_and_is_no_state_returns_one():
    class Maker:
        def __call__(self):
            return state(4)

    with CheckpointManager(MemoryBackend.fresh(), every=1) as manager:
        for step, make in enumerate((Maker(), partial(state, 4), Maker().__call__)):
            assert manager.save(step, make)
            manager.wait_until_finished()
            assert manager.restore(step)["epoch"] == 4


def test_should_save_says_what_save_does():
    with CheckpointManager(MemoryBackend.fresh(), every=3) as manager:
        for step in range(10):
            assert manager.should_save(step) == manager.save(step, state(step))


def test_the_best_step_is_found_by_its_metric():
    with CheckpointManager(MemoryBackend.fresh(), every=1) as manager:
        for step in range(5):
            manager.save(step, state(step), metrics={"loss": abs(step - 3), "accuracy": step})
        manager.wait_until_finished()
        assert manager.best_step("loss") == 3
        assert manager.best_step("accuracy", "max") == 4
        with pytest.raises(NotFoundError):
            manager.best_step("speed")


def test_the_best_step_is_the_one_that_the_managers_own_rule_keeps():
    rule = "latest:2 | best:1:acc:max | best:1:gap:min | each-run:best:2:gap:max"
    with CheckpointManager(MemoryBackend.fresh(), every=1, keep=rule) as manager:
        for step in range(5):
            metrics = {"acc": -abs(step - 2), "gap": abs(step - 3), "loss": -step}
            manager.save(step, state(step), metrics=metrics)
        manager.wait_until_finished()
        assert manager.best_step("acc") == 2
        assert manager.best_step("acc", "min") == 4
        assert manager.best_step("loss") == 4  # of which no rule says anything
        assert manager.best_step("gap") == 3  # of which rules say both


def test_a_loop_goes_on_from_what_was_saved():
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=10) as manager:
        assert manager.resume() is None
        train(manager, range(15))
    with CheckpointManager(backend, every=10) as manager:
        resumed = manager.resume()
        assert resumed.step == 10
        assert resumed.state["epoch"] == 10
        assert train(manager, range(resumed.step + 1, 25)) == [20]
        manager.wait_until_finished()
        assert manager.store.info(20).kind == "delta"


class Box:
    def __init__(self, value: float) -> None:
        self.value = np.full((64, 64), value, np.float32)

    def state_dict(self) -> dict:
        return {"weight": self.value}

    def load_state_dict(self, state: dict) -> None:
        self.value = np.array(state["weight"])


def test_objects_are_loaded_or_left_alone():
    backend, model = MemoryBackend.fresh(), Box(1)
    with CheckpointManager(backend, every=1, policy="lossless") as manager:
        assert manager.resume_into({"model": model}) is None
        manager.save(7, {"model": model, "epoch": 3})
    other = Box(0)
    with CheckpointManager(backend, every=1, policy="lossless") as manager:
        resumed = manager.resume_into({"model": other})
    assert (resumed.step, resumed.state) == (7, {"epoch": 3})
    assert np.array_equal(other.value, model.value)


def test_a_damaged_latest_state_is_passed_over():
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=1, durability="none", policy="high") as manager:
        train(manager, range(3))
        manager.wait_until_finished()
        edge = manager.store._index.record(manager.store.info(2).node).edge.id
    for key in [key for key in backend.list("data") if edge in key and ".add/c." in key]:
        backend.delete(key)
    with CheckpointManager(backend, every=1, durability="none") as manager:
        with pytest.warns(FallbackWarning, match="this is step 1"):
            resumed = manager.resume()
        assert resumed.step == resumed.state["epoch"] == 1
        assert train(manager, range(2, 4)) == [2, 3]
        manager.wait_until_finished()
        assert manager.restore()["epoch"] == 3


def test_a_failure_in_the_background_is_heard_at_the_next_step_and_once():
    backend = Gate(MemoryBackend.fresh())
    with CheckpointManager(backend, every=2) as manager:
        manager.save(0, state(0))
        manager.wait_until_finished()
        backend.fails = True
        assert manager.save(2, state(2))
        while manager.is_saving_in_progress:
            threading.Event().wait(0.01)
        with pytest.raises(StorageError):
            manager.save(3, state(3))
        backend.fails = False
        assert not manager.save(3, state(3))
        assert manager.save(4, state(4))
        manager.wait_until_finished()
        assert manager.all_steps() == [0, 4]


def test_the_last_state_is_saved_whatever_the_save_before_it_failed_with(monkeypatch):
    """That the coder had no memory took the last state of a run with it."""

    def no_memory(self, *_):
        raise MemoryError("no room to code")

    going = False
    with CheckpointManager(MemoryBackend.fresh(), every=1, preempted=lambda: going) as manager:
        manager.save(0, state(0))
        manager.wait_until_finished()
        for step in (1, 2):
            with monkeypatch.context() as patch:
                patch.setattr(Writer, "_attempt", no_memory)
                assert manager.save(step, state(step))
                while manager.is_saving_in_progress:
                    threading.Event().wait(0.01)
            if step == 1:
                with pytest.raises(MemoryError):
                    manager.wait_until_finished()
                assert manager.save(1, state(1), force=True)  # it may be saved once more
                manager.wait_until_finished()
        going = True
        assert manager.save(3, state(3))
        assert manager.all_steps() == [0, 1, 3]


def test_where_a_save_is_on_its_way_the_next_may_be_left_out():
    backend = Gate(MemoryBackend.fresh())
    with CheckpointManager(backend, every=1, skip_if_busy=True) as manager:
        manager.save(0, state(0))
        manager.wait_until_finished()
        backend.open.clear()
        assert manager.save(1, state(1))
        assert not manager.should_save(2)
        assert not manager.save(2, state(2))
        backend.open.set()
        manager.wait_until_finished()
        assert manager.save(3, state(3))
    with lcstore.open(backend.inner, "r") as store:
        assert store.steps() == [0, 1, 3]


# Without a grace a collector may condemn what a save under way stored. The next save heals that, and warns.
@pytest.mark.filterwarnings("ignore::lcstore.DamageWarning")
def test_what_is_not_kept_is_let_go_of_beside_the_loop():
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=1, keep="latest:2 | every:10", grace=0) as manager:
        train(manager, range(12))
        manager.wait_until_finished()
        tended(manager)
        assert manager.save(12, state(12))
        manager.wait_until_finished()
        manager._tending.finish()
        assert manager.all_steps() == [0, 10, 11, 12]
        assert all(manager.restore(step)["epoch"] == step for step in manager.all_steps())


@pytest.mark.filterwarnings("ignore::lcstore.NotFiniteWarning")
def test_a_loop_that_diverged_keeps_a_state_to_go_back_to(caplog):
    """After an hour all that `latest:3` kept was NaN."""
    backend, weight = MemoryBackend.fresh(), np.ones((64, 64), np.float32)
    with CheckpointManager(backend, every=1, keep="latest:3") as manager:
        for step in range(12):
            weight += np.float32(1e-3 if step < 6 else np.nan)
            manager.save(step, {"model": {"fc.weight": weight}})
            manager.wait_until_finished()
            tended(manager)
        manager._tending.begin()
        manager._tending.finish()
        assert manager.all_steps() == [5, 9, 10, 11]
        assert caplog.text.count("step 5 stays") == 1
        back = manager.store.rewind(5)
        assert np.isfinite(back["model"]["fc.weight"]).all()


def test_what_a_wrong_rule_let_go_of_can_be_brought_back_for_longer_than_a_minute():
    """The next round, a minute later, condemned it."""
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=1, keep="latest:2") as manager:
        for step in range(12):
            saved_alone(manager, step)
            tended(manager)
    with lcstore.open(backend, "r+") as store:
        assert len(store.steps()) < 12
        assert not store.unretire().too_late
        assert store.steps() == [*range(12)]
        assert store.verify(level="restore").ok


def test_a_process_that_starts_again_leaves_what_the_one_before_let_go_of():
    """It collected with its first save: so whoever ran the loop again with the right rule was too late."""
    backend = MemoryBackend.fresh()
    for first in (0, 8):
        with CheckpointManager(backend, every=1, keep="latest:2") as manager:
            for step in range(first, first + 8):
                saved_alone(manager, step)
                tended(manager)
    with lcstore.open(backend, "r+") as store:
        # What may be condemned is an array that a merge put another in the place of.
        assert not store.unretire().too_late
        assert store.steps() == [*range(16)]
        assert store.verify(level="restore").ok


def stored(keep, steps: int) -> tuple[int, int]:
    """Return the bytes and shortcuts of a run that is tended every five steps, before a grace is over."""
    backend, random = MemoryBackend.fresh(), np.random.default_rng(0)
    weight = random.standard_normal((128, 128)).astype(np.float32)
    with CheckpointManager(backend, every=1, keep=keep) as manager:
        for step in range(steps):
            weight = weight + np.float32(1e-3) * random.standard_normal(weight.shape).astype(np.float32)
            manager.save(step, {"model": {"weight": weight}})
            if keep and step % 5 == 4:
                manager.wait_until_finished()
                tended(manager)
                manager._tending.begin()
                manager._tending.finish()
    with lcstore.open(backend, "r") as store:
        stats = store.stats()
        return stats.bytes_stored["total"], stats.shortcuts


def test_a_short_run_with_a_rule_takes_no_more_than_one_without():
    """It took three times as much: what was merged stays a grace beside what it was merged from."""
    with_rule, shortcuts = stored("latest:3 | every:20", 30)
    assert with_rule < 1.05 * stored(None, 30)[0]
    assert not shortcuts


def test_what_a_compaction_freed_does_not_pay_for_the_next_one():
    """It is there for a grace more. It was counted each time, and an anchor was made every five saves."""
    with_rule, shortcuts = stored("latest:3", 100)
    assert shortcuts
    assert with_rule < 1.25 * stored(None, 100)[0]


@pytest.mark.filterwarnings("ignore::lcstore.DamageWarning")  # as above
@pytest.mark.parametrize(
    ("metrics", "said"), [({"loss": 1.0}, "waits.* there are: 'loss'"), (None, "no state has the metric")]
)
def test_a_metric_that_no_state_has_is_told_in_the_log(metrics, said, caplog):
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=1, keep="latest:1 | best:2:los", grace=0) as manager:
        for step in range(4):
            manager.save(step, state(step), metrics=metrics)
        for _ in range(2):
            manager.wait_until_finished()
            tended(manager)
            manager._tending.begin()
        manager._tending.finish()
        assert manager.all_steps() == ([0, 1, 2, 3] if metrics else [3])
    told = [record.getMessage() for record in caplog.records if re.search(said, record.getMessage())]
    assert len(told) >= 1 if metrics else len(told) == 1


def test_notice_by_a_function_commits_every_bit_of_the_next_step():
    told = []
    with CheckpointManager(MemoryBackend.fresh(), every=100, preempted=lambda: bool(told)) as manager:
        assert train(manager, range(3)) == [0]
        assert not manager.reached_preemption()
        told.append(True)
        assert manager.has_notice
        assert not manager.reached_preemption()  # the last step is not saved
        assert manager.save(3, state(3))
        assert manager.reached_preemption()
        assert not manager.is_saving_in_progress
        assert manager.store.info(3).exact
        exact = manager.restore(3)["model"]["weight"]
        assert np.array_equal(exact, state(3)["model"]["weight"])


def test_notice_that_another_process_had_counts_as_its_own():
    with CheckpointManager(MemoryBackend.fresh(), every=100, preempted=lambda: False) as manager:
        assert train(manager, range(3)) == [0]
        manager.give_notice()
        assert manager.has_notice
        assert manager.save(3, state(3))
        assert manager.reached_preemption()
        assert manager.store.info(3).exact


def test_notice_that_is_given_to_one_of_several_managers_is_heard_by_all(monkeypatch):
    raised = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    monkeypatch.setattr(sys, "exit", lambda status: None)
    with (
        CheckpointManager(MemoryBackend.fresh()) as first,
        CheckpointManager(MemoryBackend.fresh()) as second,
    ):
        first.give_notice()
        assert first.has_notice
        assert second.has_notice
    assert raised == [signal.SIGTERM] * 2


def test_a_loop_that_hears_of_it_after_a_save_leaves_with_its_last_step_saved():
    backend, told, left = MemoryBackend.fresh(), [], None
    with CheckpointManager(backend, every=10, preempted=lambda: bool(told)) as manager:
        for step in range(100):
            manager.save(step, state(step))
            if step == 27:  # while the loop evaluates
                told.append(True)
            if manager.reached_preemption():
                left = step
                break
    assert left == 28
    with lcstore.open(backend, "r") as store:
        assert store.steps() == [0, 10, 20, 28]


def test_a_loop_that_goes_on_after_it_was_told_to_end_is_told_once_and_saves_as_before(caplog, monkeypatch):
    told = [True]
    monkeypatch.setattr("lcstore.manager.preemption.time.monotonic", lambda: 1.0)
    with CheckpointManager(MemoryBackend.fresh(), every=100, preempted=lambda: bool(told)) as manager:
        assert manager.save(0, state(0))
        assert not caplog.records
        assert train(manager, range(1, 2)) == [1]
        assert not caplog.records, "a trainer may take one more step"
        assert train(manager, range(2, 201)) == [2, 100, 200]
        assert manager.reached_preemption()
        assert [manager.store.info(step).exact for step in (0, 1, 2, 100)] == [True, True, True, False]
    (one,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the loop was told to end, and goes on" in one.getMessage()


@pytest.mark.parametrize("left", [4, 30, 300, 3000])
def test_a_loop_that_looks_at_the_end_of_its_epoch_loses_a_tenth_of_the_time_since_at_most(left, monkeypatch):
    """It left with all that was trained since the third step after notice unsaved: 288 of 300."""
    now, told = [0.0], []
    monkeypatch.setattr("lcstore.manager.preemption.time.monotonic", lambda: now[0])
    with CheckpointManager(MemoryBackend.fresh(), every=10_000, preempted=lambda: bool(told)) as manager:
        manager.save(0, state(0))
        told.append(True)
        saves = []
        for step in range(1, left + 1):
            now[0] += 1.0
            if manager.save(step, state(step)):
                saves.append(step)
        assert manager.reached_preemption()
    assert left - saves[-1] <= left / 10
    assert len(saves) <= 12 + 10 * math.log(max(1, left / 10)) / math.log(2)


def test_a_loop_that_goes_on_is_slowed_by_a_tenth_at_most(monkeypatch):
    now, told = [0.0], [True]
    monkeypatch.setattr("lcstore.manager.preemption.time.monotonic", lambda: now[0])
    with CheckpointManager(MemoryBackend.fresh(), every=10_000, preempted=lambda: bool(told)) as manager:
        train(manager, range(3))
        info = manager.store.save(3, state(3))
        manager._notice.saved(dataclasses.replace(info, seconds={"total": 5.0}))
        assert train(manager, range(4, 100)) == []
        now[0] += 49.0
        assert not manager.save(100, state(100))
        now[0] += 1.0
        assert manager.save(101, state(101))


class Refusing(MemoryBackend):
    """Refuses records of nodes while it is told to."""

    refuses = False

    def _put(self, key: str, data: memoryview) -> None:
        if self.refuses and key.startswith("nodes/"):
            raise PermissionError("not now")
        super()._put(key, data)


@pytest.mark.parametrize("before", [[], [1]])
@pytest.mark.parametrize(
    "hears",
    [
        CheckpointManager.wait_until_finished,
        lambda manager: manager.save(3, state(3)),
        lambda manager: manager.store.wait(),
    ],
)
def test_a_step_whose_save_failed_can_be_saved_once_more_whoever_heard_of_it(hears, before):
    backend = Refusing.fresh()
    with CheckpointManager(backend, every=1) as manager:
        for step in before:
            saved_alone(manager, step)
        backend.refuses = True
        assert manager.save(2, state(2))
        with pytest.raises(StorageError):
            hears(manager)
        backend.refuses = False
        assert manager.save(2, state(2), force=True)
    with lcstore.open(backend, "r") as store:
        assert store.steps() == [*before, 2]


def test_the_last_save_goes_on_whatever_became_of_the_one_before(caplog):
    told, backend = [], Refusing.fresh()
    with CheckpointManager(backend, every=1, preempted=lambda: bool(told)) as manager:
        backend.refuses = True
        assert manager.save(1, state(1))
        while manager.is_saving_in_progress:
            time.sleep(0.01)
        told.append(True)
        backend.refuses = False
        assert manager.save(2, state(2))
        assert manager.reached_preemption()
    with lcstore.open(backend, "r") as store:
        assert store.steps() == [2]
    assert "the save before the last one failed" in caplog.text


def test_a_save_that_was_skipped_tells_nothing_of_how_long_one_takes():
    with CheckpointManager(MemoryBackend.fresh(), every=1, background=False) as manager:
        manager.save(1, state(1))
        manager.save(2, state(1), skip_below=0.5)
        taken = manager._last_save._any
        assert taken is not None
        assert taken.step == 1


def test_notice_is_answered_by_a_step_that_is_there_already():
    told = []
    with CheckpointManager(MemoryBackend.fresh(), every=1, preempted=lambda: bool(told)) as manager:
        assert manager.save(0, state(0))
        told.append(True)
        assert not manager.save(0, state(0))
        assert manager.reached_preemption()


def test_where_there_is_no_time_for_every_bit_a_delta_is_committed(caplog):
    told = []
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=100, preempted=lambda: bool(told), preemption_grace=0) as manager:
        train(manager, range(1))
        told.append(True)
        with caplog.at_level("INFO", "lcstore"):
            assert manager.save(1, state(1))
        assert not manager.store.info(1).exact
        assert manager.latest_step() == 1
    assert "no time for every bit of the last state" in caplog.text


@pytest.fixture
def nearly_full():
    """A manager after notice, on a disk that has room for a delta and not for every bit of its state."""
    told, backend = [], Disk.fresh()
    with CheckpointManager(backend, every=1, preempted=lambda: bool(told), durability="none") as manager:
        train(manager, range(2))
        manager.wait_until_finished()
        backend.blocks = backend.used + 4  # the state has as many, and its record one more
        told.append(True)
        yield manager


@pytest.mark.parametrize("asked", [{}, {"exact": False}])
def test_where_there_is_no_room_for_every_bit_a_delta_is_committed(nearly_full, asked, caplog):
    """The last steps were lost, where a delta of a fortieth would have had room."""
    manager = nearly_full
    assert manager.save(2, state(2), **asked)
    assert manager.reached_preemption()
    assert manager.store.latest_step() == 2
    assert not manager.store.info(2).exact
    told = [record for record in caplog.records if "no room for every bit" in record.getMessage()]
    assert len(told) == (not asked)


def test_what_is_to_be_exact_and_has_no_room_is_an_error(nearly_full):
    with pytest.raises(StorageError, match="no room"):
        nearly_full.save(2, state(2), exact=True)
    assert not nearly_full.reached_preemption()


@pytest.mark.parametrize(("took", "exact"), [(0.1, True), (60.0, False)])
def test_after_a_resume_that_took_long_a_delta_is_committed(monkeypatch, took, exact):
    """Nothing was saved yet in this process: what the resume took tells how much of a state there is."""
    backend = MemoryBackend.fresh()
    with CheckpointManager(backend, every=1) as manager:
        train(manager, range(3))
    now = itertools.count(0.0, took)
    with CheckpointManager(backend, every=100, preempted=lambda: True) as manager:
        with monkeypatch.context() as patched:
            patched.setattr("lcstore.manager.manager.time", SimpleNamespace(perf_counter=lambda: next(now)))
            assert manager.resume().step == 2
        assert manager.save(3, state(3))
        assert manager.store.info(3).exact == exact


@pytest.mark.parametrize(
    ("resumed", "took", "exact"), [(True, 60.0, False), (True, 0.1, True), (False, 60.0, False)]
)
def test_a_quick_delta_does_not_say_that_there_is_time_for_every_bit(resumed, took, exact):
    """Over a slow target a delta takes a second and a whole state a minute: the last step was lost."""
    last = LastSave(30.0)
    with lcstore.open(MemoryBackend.fresh()) as store:
        infos = [store.save(step, state(step)) for step in range(2)]
    anchor, delta = (
        dataclasses.replace(info, exact=False, seconds={"total": seconds})
        for info, seconds in zip(infos, (took, 1.0), strict=True)
    )
    assert (anchor.kind, delta.kind) == ("anchor", "delta")
    if resumed:
        last.resumed(took)
    else:
        last.saved(anchor)
    last.saved(delta)
    assert last.can_be_exact(0.0) == exact
    last.saved(dataclasses.replace(delta, exact=True))
    assert last.can_be_exact(0.0)


def test_wrong_arguments_are_refused_before_anything_is_made():
    backend = MemoryBackend.fresh()
    for wrong in (
        {"every": 0},
        {"keep": "sometimes"},
        {"preemption_grace": -1.0},
        {"every": "often"},
        {"every": "10"},
        {"every": Overhead},
    ):
        with pytest.raises(InvalidInputError):
            CheckpointManager(backend, **wrong)
    assert not backend.list("")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
@pytest.mark.parametrize("told", [False, True])
def test_managers_that_are_open_beside_each_other_all_hear_the_signal(order, told):
    heard = []

    def own(number, frame):
        heard.append(number)

    before = signal.signal(signal.SIGTERM, own)
    try:
        managers = [CheckpointManager(MemoryBackend.fresh(), every=100) for _ in range(3)]
        managers[order[0]].close()
        if told:
            signal.raise_signal(signal.SIGTERM)
        assert [managers[place].has_notice for place in order[1:]] == [told] * 2
        for place in order[1:]:
            managers[place].close()
        assert signal.getsignal(signal.SIGTERM) is own
        assert bool(heard) == told
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("is_told_before", [False, True])
def test_a_manager_that_is_closed_in_another_thread_gives_the_signal_back(is_told_before):
    """Threads set no handlers: closing failed, and the process did not end on SIGTERM any more."""
    heard = []

    def own(number, frame):
        heard.append(number)

    before = signal.signal(signal.SIGTERM, own)
    try:
        manager = CheckpointManager(MemoryBackend.fresh(), every=100)
        if is_told_before:
            signal.raise_signal(signal.SIGTERM)
        with futures.ThreadPoolExecutor() as threads:
            threads.submit(manager.close).result()
        if not is_told_before:
            signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is own
        manager.close()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_manager_that_is_closed_below_a_handler_of_the_program_passes_the_signal_on():
    before = signal.getsignal(signal.SIGTERM)
    try:
        first, second = (CheckpointManager(MemoryBackend.fresh(), every=100) for _ in range(2))
        of_second = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda number, frame: of_second(number, frame))
        second.close()
        signal.raise_signal(signal.SIGTERM)
        assert first.has_notice
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("was", ["handler", "default"])
def test_a_manager_that_is_closed_below_a_handler_gives_the_signal_to_what_was_there(was, monkeypatch):
    """Where nothing was, the process ends; here another handler takes the place of that."""
    heard: list[int] = []
    before = signal.getsignal(signal.SIGTERM)
    try:
        own = (lambda number, frame: heard.append(number)) if was == "handler" else signal.SIG_DFL
        signal.signal(signal.SIGTERM, own)
        manager = CheckpointManager(MemoryBackend.fresh(), every=100)
        of_manager = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda number, frame: of_manager(number, frame))
        manager.close()
        if was == "default":
            monkeypatch.setattr(signal, "raise_signal", heard.append)
            with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):  # had it not ended the process
                os.kill(os.getpid(), signal.SIGTERM)
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        else:
            signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_notice_that_a_thread_gives_is_heard_below_a_manager_that_a_thread_closed():
    before = signal.getsignal(signal.SIGTERM)
    try:
        first, second = Notice(), Notice()
        with futures.ThreadPoolExecutor() as threads:
            threads.submit(second.stop).result()
            threads.submit(first.give).result()
        assert first.is_given
    finally:
        signal.signal(signal.SIGTERM, before)


def run(
    url: Path, how: str, at: int, steps: int = 20, before: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    if not before:
        return programs.run(LOOP, url, steps, how, at)
    command = [*before, sys.executable, str(LOOP), str(url), str(steps), how, str(at)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("how", ["term", "term-sync"])
def test_a_loop_that_is_told_to_end_commits_the_step_and_ends_as_it_would_have(tmp_path, how):
    ended = run(tmp_path / "run", how, 5)
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    assert "told to end at 5" in ended.stdout
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.latest_step() == 5
        assert np.array_equal(store.restore()["model"]["weight"], trained(6))
    assert run(tmp_path / "run", "never", -1).returncode == 0
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.latest_step() == 18
        assert np.array_equal(store.restore()["model"]["weight"], trained(19))


def test_the_first_process_of_a_container_ends_too(tmp_path):
    """The kernel lets SIGTERM do nothing to it by default: the loop would seem to have come to its end."""
    alone = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode:
        pytest.skip("no process can be made the first of a namespace here")
    ended = run(tmp_path / "run", "term", 5, before=alone)
    assert ended.returncode == 128 + signal.SIGTERM, ended.stderr
    assert "told to end at 5" in ended.stdout
    assert "\nended" not in ended.stdout
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.latest_step() == 5


def test_where_the_signal_does_nothing_the_manager_ends_the_process(monkeypatch):
    monkeypatch.setattr(signal, "raise_signal", lambda number: None)
    manager = CheckpointManager(MemoryBackend.fresh())
    os.kill(os.getpid(), signal.SIGTERM)
    assert manager.has_notice
    with pytest.raises(SystemExit) as ended:
        manager.close()
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("at", [0, 3, 8])
def test_a_loop_that_is_killed_goes_on_from_what_was_acknowledged(tmp_path, at):
    assert run(tmp_path / "run", "kill", at).returncode == -signal.SIGKILL
    said = tmp_path / "run.acknowledged"
    acknowledged = int(said.read_text()) if said.exists() else -1
    if acknowledged >= 0:
        with lcstore.open(tmp_path / "run", "r") as store:
            latest = store.latest_step()
            assert latest >= acknowledged
            assert np.array_equal(store.restore()["model"]["weight"], trained(latest + 1))
    assert run(tmp_path / "run", "never", -1).returncode == 0
    with lcstore.open(tmp_path / "run", "r") as store:
        assert store.latest_step() == 18
        assert np.array_equal(store.restore()["model"]["weight"], trained(19))


def test_an_overhead_is_the_schedule_where_none_is_given():
    with CheckpointManager(MemoryBackend.fresh()) as manager:
        assert manager._schedule == Overhead(0.035)
        assert train(manager, range(1)) == [0]
