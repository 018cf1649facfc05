"""Saving in the background: the copy is the state of the call, failures are heard once, nothing is lost."""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
import warnings
from concurrent.futures import Future

import numpy as np
import pytest
from kit import programs
from states import same

import lcstore
from lcstore import BesideWarning, ClosedError, InvalidInputError, StorageError
from lcstore.jobs import jobs
from lcstore.staging.stage import stage
from lcstore.storage.memory import MemoryBackend
from lcstore.store import handle, saving
from lcstore.track.draft import Draft
from lcstore.write.writer import Writer


class Gate(MemoryBackend):
    """A target whose writes wait while the gate is shut, and fail while the disk is full."""

    def __init__(self) -> None:
        super().__init__(f"gate-{secrets.token_hex(8)}")
        self.open = threading.Event()
        self.open.set()
        self.full = False

    def _put(self, key, data) -> None:
        assert self.open.wait(60)
        if self.full:
            raise StorageError("the disk is full", key=key)
        super()._put(key, data)


def model(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"{name}.weight": rng.standard_normal((40, 50)).astype(np.float32) for name in "ab"}


def move(weights: dict[str, np.ndarray], by: float = 1e-3) -> None:
    for weight in weights.values():
        weight += np.float32(by)


def close_to(state, wanted) -> bool:
    return all(np.allclose(state["model"][name], wanted[name], atol=2.5e-3) for name in wanted)


def copied(weights):
    return {name: weight.copy() for name, weight in weights.items()}


def test_the_state_may_be_changed_at_once():
    backend, weights, wanted = Gate(), model(), {}
    with lcstore.open(backend) as store:
        for step in range(6):
            backend.open.clear()
            wanted[step] = copied(weights)
            future = store.save_async(step, {"model": weights, "epoch": step}, metrics={"loss": 0.5})
            assert store.is_saving
            for weight in weights.values():
                weight[:] = np.nan
            backend.open.set()
            info = future.result()
            assert (info.step, info.kind) == (step, "anchor" if step == 0 else "delta")
            assert not store.is_saving
            for name, weight in weights.items():
                weight[:] = wanted[step][name]
            move(weights)
        for step, state in wanted.items():
            found = store.restore(step)
            assert found["epoch"] == step
            assert close_to(found, state)


def test_what_is_said_of_a_state_may_be_changed_at_once():
    backend = Gate()
    said = {"metrics": {"loss": 0.5}, "metadata": {"lr": {"steps": [1, 2]}}, "tags": ["good"]}
    with lcstore.open(backend) as store:
        backend.open.clear()
        store.save_async(0, {"model": model()}, **said)
        said["metrics"]["loss"] = 7.0
        said["metadata"]["lr"]["steps"].append(3)
        said["metadata"]["lr"]["by"] = object()
        said["tags"].append("bad")
        backend.open.set()
        store.wait()
        told = store.info(0)
        assert (told.metrics, told.metadata) == ({"loss": 0.5}, {"lr": {"steps": [1, 2]}})
        assert store.tags().keys() == {"good"}


def test_it_gives_the_bits_that_a_save_gives():
    stores = [lcstore.open(MemoryBackend.fresh(), policy="small") for _ in range(2)]
    weights = model()
    for step in range(5):
        move(weights, 1e-3 * (step + 1))
        stores[0].save(step, {"model": weights})
        stores[1].save_async(step, {"model": weights})
    assert stores[1].wait().step == 4
    for step in range(5):
        a, b = (store.restore(step)["model"] for store in stores)
        assert all(np.array_equal(a[name], b[name]) for name in a)


def test_one_save_at_a_time_and_the_next_one_waits():
    backend, weights = Gate(), model()
    store = lcstore.open(backend)
    store.save(0, {"model": weights})
    backend.open.clear()
    first = store.save_async(1, {"model": weights})
    begun = []
    second = threading.Thread(target=lambda: begun.append(store.save_async(2, {"model": weights})))
    second.start()
    time.sleep(0.2)
    assert not begun
    assert not first.done()
    backend.open.set()
    second.join(60)
    assert first.done()
    assert begun[0].result().step == 2
    assert store.steps() == [0, 1, 2]


@pytest.mark.parametrize("how", ["save", "resume", "rewind", "moved", "wait"])
def test_whatever_depends_on_the_last_save_waits_for_it(how):
    backend, weights = Gate(), model()
    store = lcstore.open(backend)
    store.save(0, {"model": weights})
    move(weights)
    backend.open.clear()
    store.save_async(1, {"model": weights})
    threading.Timer(0.2, backend.open.set).start()
    if how == "save":
        move(weights)
        assert store.save(2, {"model": weights}).base == store.info(1).node
    elif how == "resume":
        store.resume()
        assert store.save(2, {"model": weights}).base == store.info(1).node
    elif how == "rewind":
        store.rewind(0)
        assert store.save(2, {"model": weights}).base == store.info(0).node
    elif how == "moved":
        assert store.moved({"model": weights}) == 0
    else:
        assert store.wait().step == 1


def held_bytes(store):
    return sum(array.nbytes for array in store._saver.buffers._held.values())


def test_memory_is_kept_and_given_back():
    weights = model()
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save_async(0, {"model": weights}).result()
        held = [array.ctypes.data for array in store._saver.buffers._held.values()]
        assert held_bytes(store) == sum(weight.nbytes for weight in weights.values())
        store.save_async(1, {"model": weights}).result()
        assert [array.ctypes.data for array in store._saver.buffers._held.values()] == held
        weights["a.weight"] = np.ones((5, 5), np.float32)
        del weights["b.weight"]
        store.save_async(2, {"model": weights}).result()
        assert held_bytes(store) == 100
        assert np.array_equal(store.restore(2)["model"]["a.weight"], weights["a.weight"])
    assert held_bytes(store) == 0


def broken(store, backend, weights, step):
    """Return a save that failed, which nobody has heard of."""
    backend.full = True
    future = store.save_async(step, {"model": weights})
    while store.is_saving:
        time.sleep(0.01)
    backend.full = False
    return future


def test_a_failure_is_the_futures_and_saving_goes_on():
    backend, weights = Gate(), model()
    with lcstore.open(backend) as store:
        store.save_async(0, {"model": weights}).result()
        move(weights)
        failed = broken(store, backend, weights, 1)
        with pytest.raises(StorageError, match="disk is full"):
            failed.result()
        move(weights)
        assert store.save_async(2, {"model": weights}).result().base == store.info(0).node
        assert store.steps() == [0, 2]
        assert close_to(store.restore(2), weights)


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_a_failure_that_comes_just_after_the_time_ran_out_is_not_heard(ask, monkeypatch):
    backend, weights = Gate(), model()
    store = lcstore.open(backend)
    store.save(0, {"model": weights})
    backend.open.clear()
    backend.full = True
    future = store.save_async(1, {"model": weights})

    def late(honest):
        def asked(self, timeout=None):
            try:
                return honest(self, timeout)
            except TimeoutError:
                backend.open.set()
                while not future.done():
                    time.sleep(0.01)
                raise

        return asked

    with monkeypatch.context() as patch:
        for name in ("result", "exception"):  # the save that is under way has futures, too
            patch.setattr(Future, name, late(getattr(Future, name)))
        with pytest.raises(TimeoutError):
            getattr(future, ask)(0.01)
    backend.full = False
    with pytest.raises(StorageError, match="disk is full"):
        store.close()


def test_what_failed_in_the_background_takes_no_error_of_a_block_away(monkeypatch):
    def no_memory(self, *_, **__):
        raise MemoryError("no room to code")

    store = lcstore.open(MemoryBackend.fresh())
    monkeypatch.setattr(Writer, "_attempt", no_memory)
    store.save_async(0, {"model": model()})
    with pytest.raises(ZeroDivisionError) as raised, store:
        raise ZeroDivisionError
    assert any("no room to code" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("how", ["save_async", "save", "resume", "wait", "close"])
def test_a_failure_that_nobody_heard_is_raised_once(how):
    backend, weights = Gate(), model()
    store = lcstore.open(backend)
    store.save(0, {"model": weights})
    broken(store, backend, weights, 1)
    state = {"model": weights}
    calls = {
        "save_async": lambda: store.save_async(2, state),
        "save": lambda: store.save(2, state),
        "resume": store.resume,
        "wait": store.wait,
        "close": store.close,
    }
    with pytest.raises(StorageError, match=r"disk is full \[step 1, object") as caught:
        calls[how]()
    assert caught.value.step == 1
    if how == "close":
        store.close()
        with pytest.raises(ClosedError):
            store.save_async(2, state)
    else:
        assert store.wait() is None
        assert store.save_async(3, state).result().base == store.info(0).node
        assert store.steps() == [0, 3]
        store.close()


def test_a_save_says_which_step_it_was_that_failed():
    backend, weights = Gate(), model()
    with lcstore.open(backend) as store:
        for step in (7, 8):
            backend.full = True
            with pytest.raises(StorageError, match=rf"disk is full \[step {step}, object"):
                store.save(step, {"model": weights})
            backend.full = False
            store.save(step, {"model": weights})


def test_an_error_in_a_with_block_is_not_hidden_by_a_failed_save():
    backend, weights = Gate(), model()
    store = lcstore.open(backend)
    store.save(0, {"model": weights})
    broken(store, backend, weights, 1)
    with pytest.raises(ZeroDivisionError) as caught, store:
        raise ZeroDivisionError
    assert "disk is full" in caught.value.__notes__[0]
    with pytest.raises(ClosedError):
        store.wait()


def test_what_cannot_be_stored_is_refused_at_once():
    with lcstore.open(MemoryBackend.fresh()) as store:
        with pytest.raises(InvalidInputError):
            store.save_async(0, {"model": object()})
        with pytest.raises(InvalidInputError):
            store.save_async(-1, {"model": np.ones(3)})
        assert not store.is_saving
        assert store.wait() is None


def test_a_warning_points_at_the_line_of_the_call():
    backend = MemoryBackend.fresh()
    lcstore.open(backend).save(0, {"model": model()})
    with lcstore.open(backend) as store, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.save_async(1, {"model": model()}).result()
    (warning,) = [one for one in caught if one.category is BesideWarning]
    assert warning.filename == __file__


def test_an_interrupt_while_waiting_leaves_the_handle_as_it_is():
    backend, weights = Gate(), model()
    store = lcstore.open(backend)
    store.save(0, {"model": weights})
    backend.open.clear()
    future = store.save_async(1, {"model": weights})
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs tests may ignore it
    try:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            store.save_async(2, {"model": weights})
    finally:
        signal.signal(signal.SIGINT, before)
    backend.open.set()
    assert future.result().step == 1
    assert store.save_async(3, {"model": weights}).result().base == store.info(1).node


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_neither_waits_nor_saves():
    backend, weights = Gate(), model()
    store = lcstore.open(backend)
    backend.open.clear()
    store.save_async(0, {"model": weights})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork where threads run
        child = os.fork()
    if child == 0:
        try:
            store.close()
            store.save_async(1, {"model": weights})
        except lcstore.LcstoreError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    backend.open.set()
    assert store.wait().step == 0


PROGRAM = """
import sys, numpy as np, lcstore
store = lcstore.open(sys.argv[1])
weight = np.random.default_rng(0).standard_normal((500, 500)).astype(np.float32)
for step in range(int(sys.argv[2])):
    weight += np.float32(1e-3)
    future = store.save_async(step, {"model": {"w.weight": weight}, "epoch": step})
    future.add_done_callback(lambda f: print(f.result().step, flush=True))
    weight[0] = step
if sys.argv[3] == "error":
    raise ZeroDivisionError
"""


@pytest.mark.parametrize("end", ["quiet", "error"])
def test_a_save_under_way_is_finished_at_the_end_of_the_program(tmp_path, end):
    ran = programs.run(PROGRAM, tmp_path / "run", 3, end)
    assert (ran.returncode, ran.stdout.split()) == (int(end == "error"), ["0", "1", "2"]), ran.stderr
    assert lcstore.open(tmp_path / "run", "r").restore()["epoch"] == 2


@pytest.mark.parametrize("after", [0.0, 0.01, 0.02, 0.03, 0.05])
def test_a_killed_program_loses_no_save_that_was_acknowledged(tmp_path, after):
    with programs.start(PROGRAM, tmp_path / "run", 1000, "quiet") as running:
        told = [running.stdout.readline() for _ in range(3)]
        time.sleep(after)
        running.kill()
        told += running.stdout.readlines()
    acknowledged = [int(line) for line in told if line.endswith("\n")]
    with lcstore.open(tmp_path / "run") as store:
        assert set(acknowledged) <= set(store.steps()) <= {*acknowledged, acknowledged[-1] + 1}
        for step in acknowledged:
            assert store.restore(step)["epoch"] == step
        assert store.resume()["epoch"] >= acknowledged[-1]
        assert store.verify("checksum").ok


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_as_many_threads_code_as_are_asked_for(monkeypatch, threads):
    at_work, seen, lock, run = 0, [], threading.Lock(), Draft._run

    def slowly(self, work):
        nonlocal at_work
        with lock:
            at_work += 1
            seen.append(at_work)
        time.sleep(0.02)
        try:
            return run(self, work)
        finally:
            with lock:
                at_work -= 1

    for module in (jobs, handle):  # more than four only wait for each other
        monkeypatch.setattr(module, "default_threads", lambda: 9)
    monkeypatch.setattr(Draft, "_run", slowly)
    state = {"params": {f"l{number}": np.ones((64, 64), f"f{2 + number % 7}") for number in (0, 2, 6)}}
    state["plain"] = {f"l{number}": np.ones(4000, f"i{number}") for number in (1, 2, 4, 8)}
    state["counts"] = {f"l{number}": np.ones(4000, f"u{number}") for number in (1, 2, 4, 8)}
    with lcstore.open(MemoryBackend.fresh(), threads=threads) as store:
        store.save_async(0, state).result()
    assert max(seen) == (threads or 4)


def test_no_state_is_copied_where_another_save_still_reads(monkeypatch):
    # Of tensors on GPUs both copies lie in the same memory.
    order, gate, go = [], threading.Event(), threading.Event()
    with lcstore.open(MemoryBackend.fresh()) as store:
        store.save(0, {"w": np.zeros(8, np.float32)})
        save = store._writer.save

        def slowly(staged, *args, **options):
            order.append(f"save {staged.step}")
            if staged.step == 1:
                gate.set()
                assert go.wait(30)
            return save(staged, *args, **options)

        def staged(step, *args, **options):
            order.append(f"copy {step}")
            return stage(step, *args, **options)

        monkeypatch.setattr(store._writer, "save", slowly)
        monkeypatch.setattr(saving, "stage", staged)
        first = threading.Thread(target=store.save, args=(1, {"w": np.ones(8, np.float32)}))
        first.start()
        assert gate.wait(30)
        second = threading.Thread(target=store.save_async, args=(2, {"w": np.full(8, 2, np.float32)}))
        second.start()
        second.join(0.3)
        assert second.is_alive()
        go.set()
        first.join()
        second.join()
        store.wait()
        assert [store.restore(step)["w"][0] for step in (1, 2)] == [1, 2]
    assert order == ["copy 1", "save 1", "copy 2", "save 2"]


@pytest.mark.parametrize("is_queued", [False, True])
def test_an_interrupt_while_a_save_is_handed_over_loses_no_count_of_it(monkeypatch, is_queued):
    """The next save would copy its state to where the thread reads."""
    under_way = threading.Event()

    class Slow(MemoryBackend):
        def _put(self, key, data):
            under_way.set()
            time.sleep(0.05)
            super()._put(key, data)

    with lcstore.open(Slow.fresh(), policy="lossless", durability="none") as store:
        submit = store._saver._thread.submit

        def interrupted(run):
            if is_queued:
                submit(run)
                assert under_way.wait(10)
            raise KeyboardInterrupt

        monkeypatch.setattr(store._saver._thread, "submit", interrupted)
        states = [
            {"model": {f"w{n}": np.full((64, 1024), value, np.float32) for n in range(20)}}
            for value in (1, 1000)
        ]
        with pytest.raises(KeyboardInterrupt):
            store.save_async(1, states[0])
        monkeypatch.undo()
        store.save_async(2, states[1])
        store.wait()
        assert store.steps() == ([1, 2] if is_queued else [2])
        for step in store.steps():
            assert same(store.restore(step), states[step - 1])


def test_progress_of_a_save_in_the_background_may_look_at_another_store():
    """That has jobs of its own, which are not to wait for the thread that told of the progress."""
    states = [{"model": {"weight": np.full((512, 512), value, np.float32)}} for value in (1, 2)]
    with (
        lcstore.open(MemoryBackend.fresh(), threads=1) as other,
        lcstore.open(MemoryBackend.fresh(), threads=1) as store,
    ):
        other.save(0, states[0])
        seen = []
        future = store.save_async(1, states[1], on_progress=lambda *_: seen.append(other.restore(0)))
        assert future.result(timeout=60).step == 1
        assert seen
        assert all(same(one, states[0]) for one in seen)
