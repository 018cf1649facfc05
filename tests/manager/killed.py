"""A training loop that is killed at random instants and begun again, many times, in forked processes.

    python killed.py URL KILLS SEED sync|async

The process that forks has closed all its stores. Each of those that it forks resumes, compares what it
gets with what it has to be, trains on and tells of each step that is acknowledged. The last one compares all.
"""

from __future__ import annotations

import os
import random
import select
import signal
import sys
import time
from typing import Final

import numpy as np

import lcstore
from lcstore.storage.memory import MemoryBackend

#: Seconds that a process may live at first, from when it has resumed on. Where that is too short for a save,
#: or long enough for many, it becomes others: what is tried is kills in the midst of saves.
LIVES: Final = 0.25
SEVERAL: Final = 8


def weights(step: int) -> np.ndarray:
    """The weights after a step, whoever trained."""
    rng = np.random.default_rng(0)
    noise = np.random.default_rng(step).standard_normal((64, 64))
    return (rng.standard_normal((64, 64)) + 1e-3 * noise).astype(np.float32)


def check(step: int, state: dict) -> None:
    assert state["step"] == step
    assert np.array_equal(state["model"]["weight"], weights(step)), f"step {step} is not what was saved"


def train(url: str, how: str, told: int) -> None:
    """Resume and train until killed; tell of steps through a pipe: where it begins, what is acknowledged."""

    def tell(word: str, step: int) -> None:
        os.write(told, f"{word} {step}\n".encode())

    store = lcstore.open(url, policy="lossless")
    first = 0
    if store.latest_step() is not None:
        state = store.resume("latest", to="numpy")
        check(state["step"], state)
        first = state["step"] + 1
    tell("from", first)
    for step in range(first, 1 << 30):
        state = {"model": {"weight": weights(step)}, "step": step}
        if how == "sync":
            store.save(step, state)
            tell("saved", step)
        else:
            future = store.save_async(step, state)
            future.add_done_callback(lambda done, step=step: done.exception() or tell("saved", step))


def check_all(url: str, steps: list[int]) -> None:
    """Restore acknowledged steps: all that the loop did not train anew under the same number since."""
    with lcstore.open(url, "r") as store:
        for step in steps:
            check(step, store.restore(step, to="numpy"))


def forked(run, *given) -> int:
    """Run in a process of its own; return its number."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        run(*given)
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    finally:
        os._exit(status)


class Told:
    """What comes through a pipe, word by word."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.left = b""

    def next(self, seconds: float) -> tuple[str, int] | None:
        """The next line; None where none comes in this time, or nobody is left to write one."""
        until = time.monotonic() + seconds
        while b"\n" not in self.left:
            wait = max(0.0, until - time.monotonic())
            found = os.read(self.pipe, 1 << 16) if select.select([self.pipe], [], [], wait)[0] else b""
            if not found:
                return None
            self.left += found
        line, _, self.left = self.left.partition(b"\n")
        word, step = line.decode().split()
        return word, int(step)


def kill_once(url: str, how: str, seconds: float, last: int) -> list[int]:
    """Train for a time from the first save on, and kill; return the steps that were acknowledged."""
    out, into = os.pipe()
    pid = forked(train, url, how, into)
    os.close(into)
    told = Told(out)
    try:
        began = told.next(120)
        assert began is not None, "it ended by itself"
        assert began[1] > last, f"it began with step {began[1]}, and {last} was acknowledged"
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it ended by itself"
    saved = []
    while (found := told.next(5)) is not None:
        saved.append(found[1])
    os.close(out)
    return saved


def load_kernels() -> None:
    """Have in memory what each process would load for itself, for longer than it lives."""
    backend = MemoryBackend.fresh()
    for step in range(2):
        with lcstore.open(backend, policy="lossless") as store:
            if step:
                store.resume("latest")
            store.save(step, {"model": {"weight": weights(step)}, "step": step})


def main(url: str, kills: int, seed: int, how: str) -> None:
    load_kernels()
    rng = random.Random(seed)
    acknowledged: list[int] = []
    lives = LIVES
    for _ in range(kills):
        last = acknowledged[-1] if acknowledged else -1
        saved = kill_once(url, how, rng.uniform(0, lives), last)
        lives *= 1.5 if not saved else 0.9 if len(saved) > SEVERAL else 1
        acknowledged += saved
    assert acknowledged == sorted(set(acknowledged))
    _, status = os.waitpid(forked(check_all, url, acknowledged), 0)
    assert status == 0, "a state that was acknowledged is not there as it was"
    print(kills, "kills,", len(acknowledged), "acknowledged")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
