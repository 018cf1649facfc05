"""Traces: the states of a real training run, made on first use and read from disk from then on.

    from benchmarks.workloads import trace
    saves = trace("gpt", every=20, count=101)
    weights = saves[3]["model/blocks.0.qkv.weight"]

`python -m benchmarks.workloads gpt lenet` makes the traces of the benchmarks beforehand.
Reading needs numpy alone; PyTorch is imported only to train networks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.workloads_cache import Trace, check_environment, missing, write_save

DATA = Path(__file__).parent / "data"
#: First save, in iterations: the GPT once it knows the common bytes, LeNet before its loss begins to fall,
#: the others once they are under way.
START = {"gpt": 100, "lenet": 500, "logreg": 100, "cnn": 100, "mf": 1500, "dlrm": 500}
#: Iterations from one save to the next that a user would choose.
EVERY = {"gpt": 20, "lenet": 20, "logreg": 10, "cnn": 10, "mf": 50, "dlrm": 50}
#: Saves that keep the optimizer's moments too. Moments are two thirds of a state.
MOMENTS = 12


def trace(
    name: str,
    every: int = 20,
    count: int = 101,
    *,
    start: int | None = None,
    seed: int = 0,
    moments: int = MOMENTS,
) -> Trace:
    """The states of a training run at `count` iterations, `every` apart.

    What is not in the cache is trained first, and each save is written as soon as it is reached.

    Parameters
    ----------
    name : str
        The workload, a key of `START`.
    every, count, start : int
        The iterations are `start`, `start + every`, ...; `start` is by default `START[name]`.
    seed : int
        Seed of the initial weights and of the batches.
    moments : int
        The first so many saves hold the optimizer's moments as well as the weights.
    """
    first = START[name] if start is None else start
    if first < 1 or every < 1 or count < 1:
        raise ValueError("start, every and count must be at least 1")
    iterations = range(first, first + every * count, every)
    folder = DATA / f"{name}-seed{seed}"
    if missing(folder, iterations, moments):
        _fill(folder, name, seed, iterations, moments)
    return Trace(folder, iterations, moments)


def available(name: str, *, seed: int = 0) -> list[int]:
    """Iterations in the cache, in order; a run under way adds to them."""
    files = (DATA / f"{name}-seed{seed}").glob("weights-*.npy")
    return sorted(int(file.stem.split("-")[1]) for file in files)


def start_run(name: str, seed: int = 0) -> Any:
    """A run of the named workload at iteration 0: `advance`, `loss`, `state`, `load`."""
    from benchmarks.workloads_numpy import RUNS

    if name in RUNS:
        return RUNS[name](seed)
    from benchmarks import workloads_train

    return workloads_train.start_run(name, seed)


def _fill(folder: Path, name: str, seed: int, iterations: Sequence[int], moments: int) -> None:
    from filelock import FileLock  # comes with PyTorch

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / "lock"):
        gaps = missing(folder, iterations, moments)
        if not gaps:  # another process filled them while this one waited
            return
        run = start_run(name, seed)
        check_environment(folder, run.fingerprint)
        kept = [at for at in iterations[:moments] if at < gaps[0]]
        if kept:
            run.load(Trace(folder, kept, len(kept)).state(-1), kept[-1])
        about = {"fingerprint": run.fingerprint, "parameters": run.parameter_paths()}
        began = time.monotonic()
        for index, at in enumerate(iterations):
            if run.iteration <= at <= gaps[-1]:
                run.advance(at)
                loss = run.loss()
                write_save(folder, at, run.state(), loss, about, moments=index < moments)
                print(f"{name} {at}: held-out loss {loss:.4f}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    for workload in sys.argv[1:] or sorted(START):
        trace(workload, EVERY[workload])
