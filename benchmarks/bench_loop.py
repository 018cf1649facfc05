"""What saving takes from a training loop: its steps, its memory, and the time before a machine goes.

    python -m benchmarks.bench_loop [--quick]

A GPT is trained on this machine's cores, which the coder shares with it; whole AdamW states are saved.
Stretches with and without saves alternate, so that a busy moment of the machine hits both; a stretch with
saves ends when the last of them is committed. Then `Overhead(0.035)` picks the interval by itself. At last a
state of 1 GB is saved in a process of its own until SIGTERM comes.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import psutil

import lcstore
from benchmarks.measure import Report, arguments
from benchmarks.workloads_train import Run, start_run

EVERY: Final = 10
SHARE: Final = 0.035
MIB: Final = 1 << 20
#: A state of so many bytes is saved when SIGTERM comes, and so many seconds are left then.
LARGE: Final = 10**9
GRACE: Final = 10.0


def main() -> None:
    asked = arguments(__doc__ or "")
    report = Report("loop", asked.quick)
    folder = Path(tempfile.mkdtemp(prefix="lcstore-bench-"))
    run = start_run("gpt")
    try:
        slowdown(report, run, folder / "every", rounds=2 if asked.quick else 7)
        settled(report, run, folder / "overhead", steps=40 if asked.quick else 250)
        told_to_end(report, folder / "large", LARGE // 50 if asked.quick else LARGE)
    finally:
        shutil.rmtree(folder)
    report.write()


def live(run: Run) -> dict[str, object]:
    """The state as a loop gives it: nothing is copied."""
    return {"model": run.model, "optim": run.optimizer}


def slowdown(report: Report, run: Run, folder: Path, rounds: int) -> None:
    """Stretches of 40 steps with a save each ten, beside stretches without."""
    with lcstore.open(folder) as store:
        run.advance(EVERY)
        for _ in range(3):  # kernels, and the buffers that states are copied to
            run.advance(run.iteration + 2)
            store.save_async(run.iteration, live(run)).result()
        process = psutil.Process()
        before, held = process.memory_info().rss, 0
        plain, saving, blocked = [], [], []
        for _ in range(rounds):
            plain.append(stretch(run, None, []))
            saving.append(stretch(run, store, blocked))
            held = max(held, process.memory_info().rss - before)
    quotients = [b / a for a, b in zip(plain, saving, strict=True)]
    ratio = statistics.median(quotients)
    slower = [f"{100 * (q - 1):.1f} %" for q in (ratio, min(quotients), max(quotients))]
    seconds = [statistics.median(times) / 40 for times in (plain, saving)]
    report.table(
        f"GPT, a save each {EVERY} steps, {rounds} times 40 steps",
        ["seconds a step", "with saves", "slowdown", "least", "most"],
        [[*seconds, *slower]],
    )
    copy = copying(run)
    report.table(
        "the loop's waiting for a save, ms",
        ["median", "most", "copying the same state to touched buffers"],
        [[1e3 * statistics.median(blocked), 1e3 * max(blocked), 1e3 * copy]],
    )
    report.bar("slowdown of the loop", ratio, "<= 1.035", ratio <= 1.035)
    report.bar("memory that grew meanwhile, MiB", held / MIB, "<= 256", held <= 256 * MIB)


def stretch(run: Run, store: lcstore.Store | None, blocked: list[float]) -> float:
    """Train for 40 steps; return the seconds until the last save is committed."""
    began = time.perf_counter()
    for _ in range(4):
        run.advance(run.iteration + EVERY)
        if store is not None:
            asked = time.perf_counter()
            store.save_async(run.iteration, live(run))
            blocked.append(time.perf_counter() - asked)
    if store is not None:
        store.wait()
    return time.perf_counter() - began


def copying(run: Run) -> float:
    """Return the seconds of copying the state to buffers that were written before."""
    arrays = [value for part in run.state().values() for value in arrays_of(part)]
    buffers = [array.copy() for array in arrays]
    times = []
    for _ in range(7):
        began = time.perf_counter()
        for array, buffer in zip(arrays, buffers, strict=True):
            np.copyto(buffer, array)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def arrays_of(tree: object) -> list[np.ndarray]:
    """Return the arrays in a nested state."""
    if isinstance(tree, np.ndarray):
        return [tree]
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    return [array for value in inner for array in arrays_of(value)]


def settled(report: Report, run: Run, folder: Path, steps: int) -> None:
    """Let `Overhead` choose when to save."""
    saved = []
    with lcstore.CheckpointManager(folder, every=lcstore.Overhead(SHARE)) as manager:
        first = run.iteration
        for _ in range(steps):
            run.advance(run.iteration + 1)
            if manager.save(run.iteration, lambda: live(run)):
                saved.append(run.iteration - first)
    gaps = [b - a for a, b in pairwise(saved)]
    later = gaps[len(gaps) // 2 :] or gaps or [steps]
    report.table(f"Overhead({SHARE}) over {steps} steps", ["saves", "steps between them"],
                 [[len(saved), " ".join(map(str, gaps))]])  # fmt: skip
    between = statistics.median(later)
    report.bar("steps between saves, second half", between, "<= 20", between <= 20)


def told_to_end(report: Report, folder: Path, nbytes: int) -> None:
    """Save a large state, tell the process to end, and look at what is there."""
    command = [sys.executable, "-m", "benchmarks.bench_loop", str(folder), str(nbytes)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready"):
            break
    told = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    words = process.stdout.read().split()
    status = process.wait()
    ended = time.perf_counter() - told
    with lcstore.open(folder, "r") as store:
        info = store.info()
        kind = "exact" if info.exact else "delta"
        there = info.step == int(words[1])
    report.table(
        f"SIGTERM, a state of {nbytes / 1e9:.2f} GB, {GRACE:.0f} s",
        ["committed after, s", "ended after, s", "kind", "exit status"],
        [[float(words[3]), ended, kind, status]],
    )
    good = there and status == -signal.SIGTERM and ended <= GRACE
    report.bar("ended in time, with the step committed", ended, f"<= {GRACE:.0f}", good)


def large_loop(url: str, nbytes: int) -> None:
    """Train on a large state, as the process that is told to end."""
    rng = np.random.default_rng(0)
    side = int((nbytes // 4 // 8) ** 0.5)
    model = {f"{i}.weight": rng.standard_normal((side, side), np.float32) for i in range(8)}
    noise = rng.standard_normal((side, side), np.float32) * np.float32(1e-3)
    with lcstore.CheckpointManager(url, every=1, preemption_grace=GRACE) as manager:
        for step in range(1 << 20):
            for weight in model.values():
                weight += noise
            began = time.perf_counter()
            manager.save(step, {"model": model})
            if manager.reached_preemption():
                print("saved", step, "in", time.perf_counter() - began, flush=True)
                break
            if step == 2:
                manager.wait_until_finished()
                print("ready", flush=True)
            if step > 2:
                time.sleep(0.1)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2].isdigit():
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        large_loop(sys.argv[1], int(sys.argv[2]))
    else:
        main()
