"""Whoever is told of saves hears of each that was committed, once, and no fault of theirs costs a state."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from contextlib import suppress

import numpy as np
import pytest

import lcstore
from lcstore import CheckpointManager
from lcstore.storage.memory import MemoryBackend


def state(step: int) -> dict:
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    return {"model": {"weight": weight + np.float32(1e-3) * np.float32(step)}, "epoch": step}


class Observer:
    """Takes note of the steps that it is told of; raises at some of them."""

    def __init__(self, *raises: int, error: type[BaseException] = ValueError) -> None:
        self.steps: list[int] = []
        self._raises, self._error = raises, error

    def __call__(self, info: lcstore.SaveInfo) -> None:
        self.steps.append(info.step)
        if info.step in self._raises:
            raise self._error(f"of step {info.step}")


def wait(manager: CheckpointManager) -> None:
    """Wait for the save under way, such that the manager does not hear of it yet."""
    while manager.is_saving_in_progress:
        threading.Event().wait(0.01)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("ended", [False, True])
def test_the_step_that_is_due_where_an_observer_raises_is_saved_once(ended, error):
    """It raised before the save, and so the state of that step was lost."""
    backend, observer = MemoryBackend.fresh(), Observer(10, error=error)
    with CheckpointManager(backend, every=10, on_saved=observer) as manager:
        manager.save(10, state(10))
        if ended:
            wait(manager)
        with pytest.raises(error, match="of step 10"):
            manager.save(20, state(20))
        assert not manager.save(21, state(21))
        assert manager.save(30, state(30))
    with lcstore.open(backend, "r") as store:
        assert store.steps() == [10, 20, 30]
    assert observer.steps == [10, 20, 30]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_step_whose_observer_raised_is_not_saved_once_more(error, caplog):
    """The manager did not know of the save that it had made."""
    backend, observer = MemoryBackend.fresh(), Observer(10, error=error)
    with CheckpointManager(backend, every=10, background=False, on_saved=observer) as manager:
        with pytest.raises(error, match="of step 10"):
            manager.save(10, state(10))
        assert not manager.save(10, state(10), force=True)
        assert manager.all_steps() == [10]
        assert len([*manager.store.states()]) == 1
    assert "the loop ended with step" not in caplog.text


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("raises", [0, 1])
def test_a_loop_leaves_after_notice_also_where_an_observer_raises(background, raises, caplog):
    """`reached_preemption` stayed false; and what was raised at the save before was taken for its failure."""
    backend, observer, told = MemoryBackend.fresh(), Observer(raises), []
    how = {"every": 1, "background": background, "on_saved": observer, "preempted": lambda: bool(told)}
    with CheckpointManager(backend, **how) as manager:
        for step in range(10):
            if step == 1:
                told.append(True)
            try:
                manager.save(step, state(step))
            except ValueError as error:
                assert str(error) == f"of step {raises}"
            if manager.reached_preemption():
                break
        assert manager.all_steps() == [0, 1]
    assert observer.steps == [0, 1]
    assert "failed" not in caplog.text


def test_a_manager_that_is_closed_twice_tells_of_a_save_once(caplog):
    observer = Observer()
    with CheckpointManager(MemoryBackend.fresh(), every=2, on_saved=observer) as manager:
        manager.save(0, state(0))
        manager.save(1, state(1))
        manager.close()
    assert observer.steps == [0]
    assert caplog.text.count("the loop ended with step 1") == 1


def saved_once(error: Exception | None, observer: Observer) -> None:
    with CheckpointManager(MemoryBackend.fresh(), every=1, on_saved=observer) as manager:
        manager.save(0, state(0))
        if error is not None:
            raise error


def test_what_an_observer_raises_at_the_end_does_not_hide_what_ended_the_loop():
    with pytest.raises(KeyError) as ended:
        saved_once(KeyError(), Observer(0))
    assert ended.value.__notes__ == ["Besides, on_saved failed: ValueError('of step 0')"]
    with pytest.raises(ValueError, match="of step 0"):
        saved_once(None, Observer(0))


@pytest.mark.parametrize("background", [False, True])
def test_of_a_state_that_was_skipped_no_observer_hears_and_it_can_be_saved_all_the_same(background):
    """It is not there: an observer that looked at it found nothing, and `force` saved nothing either."""
    observer = Observer()
    how = {"every": 1, "background": background, "on_saved": observer}
    with CheckpointManager(MemoryBackend.fresh(), **how) as manager:
        manager.save(1, state(1))
        manager.save(2, state(1), skip_below=0.5)
        assert not manager.save(2, state(1))
        assert manager.save(2, state(1), force=True)
        manager.wait_until_finished()
        assert observer.steps == [1, 2] == manager.all_steps()


def test_the_last_save_before_the_machine_goes_is_not_skipped():
    """Docs: after a notice in time no step is lost."""
    told = []
    how = {"every": 1, "preempted": lambda: bool(told), "preemption_grace": 0}
    with CheckpointManager(MemoryBackend.fresh(), **how) as manager:
        manager.save(1, state(1))
        told.append(True)
        assert manager.save(2, state(1), skip_below=0.5)
        assert manager.reached_preemption()
        assert manager.all_steps() == [1, 2]
        assert not manager.store.info(2).exact


@pytest.mark.parametrize("background", [False, True])
def test_an_observer_may_save_by_the_manager_and_is_told_of_that_too(background):
    """In the background the manager lost sight of such a save."""
    observer = Observer()

    def told(info):
        observer(info)
        if info.step % 2 == 0:
            assert manager.restore(info.step)["epoch"] == info.step
            assert manager.save(info.step + 1, state(info.step + 1), force=True)

    manager = CheckpointManager(MemoryBackend.fresh(), every=2, background=background, on_saved=told)
    for step in (0, 2, 4, 6):
        manager.save(step, state(step))
    manager.wait_until_finished()
    manager.wait_until_finished()
    assert sorted(observer.steps) == [*range(8)] == manager.all_steps()
    manager.close()


@pytest.mark.parametrize("fails", [False, True])
def test_the_last_save_of_a_loop_is_told_of_while_the_store_is_open(fails):
    """It was closed by then: an observer that looked at the state, or pinned it, ended the run."""
    backend, observer = MemoryBackend.fresh(), Observer()

    def told(info):
        observer(info)
        assert manager.restore(info.step)["epoch"] == info.step
        manager.store.pin(info.node, by="evaluator")
        if info.step == 0:
            assert manager.save(1, state(1), force=True)

    with suppress(KeyError), CheckpointManager(backend, every=2, on_saved=told) as manager:
        manager.save(0, state(0))
        if fails:
            raise KeyError
    assert observer.steps == [0, 1]
    with lcstore.open(backend, "r") as store:
        assert [one.step for one in store.states() if one.pinned_by] == [0, 1]


def test_an_observer_may_close_the_manager():
    backend, observer = MemoryBackend.fresh(), Observer()

    def told(info):
        observer(info)
        manager.close()

    manager = CheckpointManager(backend, every=1, on_saved=told)
    manager.save(0, state(0))
    assert manager.save(1, state(1))
    with lcstore.open(backend, "r") as store:
        assert observer.steps == [0, 1] == store.steps()


def test_a_save_whose_waiting_was_interrupted_is_told_of_later(monkeypatch):
    """Ctrl-C while a notebook waits: nobody was told of that save."""
    observer = Observer()
    with CheckpointManager(MemoryBackend.fresh(), every=1, on_saved=observer) as manager:
        manager.save(0, state(0))

        def interrupted():
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(manager.store, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                manager.wait_until_finished()
        manager.wait_until_finished()
        assert observer.steps == [0]


@pytest.mark.parametrize("closes", [False, True])
def test_a_save_that_was_interrupted_when_its_state_was_there_is_told_and_not_made_again(closes, monkeypatch):
    """Ctrl-C while the loop waits for a save: its state is there, and nobody was told."""
    observer = Observer()
    backend = MemoryBackend.fresh()
    manager = CheckpointManager(backend, every=1, background=False, on_saved=observer)
    manager.save(0, state(0))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(manager.store._writer, "_is_let_go", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.save(1, state(1))
    assert observer.steps == [0]
    if not closes:
        assert not manager.save(1, state(1), force=True)
        assert observer.steps == [0, 1]
        assert manager.save(2, state(2))
    manager.close()
    with lcstore.open(backend, "r") as store:
        assert observer.steps == [*range(2 if closes else 3)]
        assert [one.step for one in store.states()] == observer.steps


@pytest.mark.parametrize("closes", [False, True])
def test_a_save_that_was_interrupted_when_its_thread_had_it_is_told_and_not_made_again(closes, monkeypatch):
    """Ctrl-C as a save is handed over: it goes on, and its state is there later."""
    backend, observer = MemoryBackend.fresh(), Observer()
    begun, waited_for = threading.Event(), threading.Event()
    manager = CheckpointManager(backend, every=1, on_saved=observer)
    manager.save(0, state(0))
    manager.wait_until_finished()
    saver = manager.store._saver
    commit, submit, wait = manager.store._commit, saver._thread.submit, saver.wait

    def held(*args):
        begun.set()
        waited_for.wait(30)
        return commit(*args)

    def interrupted(run):
        submit(run)
        begun.wait(30)
        raise KeyboardInterrupt

    def waiting():
        if begun.is_set():
            waited_for.set()
        return wait()

    monkeypatch.setattr(manager.store, "_commit", held)
    monkeypatch.setattr(saver, "wait", waiting)
    with monkeypatch.context() as patched:
        patched.setattr(saver._thread, "submit", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.save(1, state(1))
    if not closes:
        assert not manager.save(1, state(1), force=True)
        assert observer.steps == [0, 1]
    manager.close()
    with lcstore.open(backend, "r") as store:
        assert observer.steps == [0, 1]
        assert [one.step for one in store.states()] == [0, 1]


def test_a_save_that_was_interrupted_before_its_state_was_there_is_made_again(monkeypatch):
    observer = Observer()
    with CheckpointManager(MemoryBackend.fresh(), every=1, background=False, on_saved=observer) as manager:
        manager.save(0, state(0))

        def interrupted(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(manager.store._writer, "_put", interrupted)
            with pytest.raises(KeyboardInterrupt):
                manager.save(1, state(1))
        assert manager.save(1, state(1), force=True)
        assert observer.steps == [0, 1]
        assert manager.all_steps() == [0, 1]


def test_saves_of_the_store_itself_are_not_told_as_those_of_the_manager():
    observer = Observer()
    with CheckpointManager(MemoryBackend.fresh(), every=2, on_saved=observer) as manager:
        manager.save(0, state(0))
        manager.store.save_async(1, state(1))
        manager.wait_until_finished()
        assert observer.steps == [0]


@pytest.mark.parametrize(("part", "does"), [("_tending", "finish"), ("_evaluations", "ended")])
def test_an_interrupt_while_a_manager_is_closed_leaves_the_store_closed(part, does, monkeypatch):
    observer, backend = Observer(), MemoryBackend.fresh()
    manager = CheckpointManager(backend, every=1, keep="latest:2", on_saved=observer)
    manager.save(0, state(0))

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(getattr(manager, part), does, interrupted)
    with pytest.raises(KeyboardInterrupt):
        manager.close()
    assert observer.steps == [0]
    assert "closed" in repr(manager.store)


def test_no_rule_lets_go_of_what_an_observer_is_being_told_of(monkeypatch):
    """With `latest:1` the state before went as soon as the next was there: an observer is to pin it first."""
    order = []
    how = {"every": 1, "keep": "latest:1", "on_saved": lambda info: order.append(info.step)}
    with CheckpointManager(MemoryBackend.fresh(), **how) as manager:
        monkeypatch.setattr(manager._tending, "begin", lambda: order.append("tended"))
        manager.save(0, state(0))
        wait(manager)
        manager.save(1, state(1))
    assert order == ["tended", 0, "tended", 1]


def test_a_notice_that_cannot_be_asked_for_leaves_no_store_open():
    """The end of the block asked for it once more, and did nothing else."""

    def asked():
        raise OSError("the metadata service is away")

    manager = CheckpointManager(MemoryBackend.fresh(), every=1, keep="latest:2", preempted=asked)
    with pytest.raises(OSError, match="metadata service"):
        manager.save(0, state(0))
    manager.close()
    assert "closed" in repr(manager.store)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_a_fork_that_ends_tells_of_no_save_of_its_parent(tmp_path):
    told = tmp_path / "told"

    def note(info):
        with told.open("a") as file:
            file.write(f"{info.step}\n")

    manager = CheckpointManager(tmp_path / "run", every=2, on_saved=note)
    manager.save(0, state(0))
    wait(manager)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork where threads run
        child = os.fork()
    if not child:
        status = 1
        try:
            manager.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert not told.exists()
    manager.close()
    assert told.read_text() == "0\n"


@pytest.mark.parametrize(
    "wrong",
    [{"on_saved": "print"}, {"preempted": True}, {"preemption_grace": "25"}, {"preemption_grace": None}],
)
def test_what_cannot_be_called_is_refused_at_once(wrong):
    backend = MemoryBackend.fresh()
    with pytest.raises(lcstore.InvalidInputError, match=next(iter(wrong))):
        CheckpointManager(backend, **wrong)
    assert not backend.list("")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_observers_take_counts_as_what_saves_take():
    """Saves took several times the share of the time that the schedule says."""
    now, seen = [0.0], []

    class Due:
        def is_due(self, pace):
            seen.append(pace.save_seconds)
            return pace.step % 5 == 0

    def slow(info):
        now[0] += 10.0

    with CheckpointManager(MemoryBackend.fresh(), every=Due(), on_saved=slow) as manager:
        manager._meter._clock = lambda: now[0]
        for step in range(31):
            now[0] += 1.0
            manager.save(step, state(step))
            wait(manager)
    assert seen[-1] == pytest.approx(10.0)
