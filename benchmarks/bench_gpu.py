"""What saving takes from a training loop on a GPU: the way to the host, and the steps beside it.

    python -m benchmarks.bench_gpu [--quick]

A byte-level GPT of 85 million parameters is trained in bfloat16 on the standard library's source; its whole
AdamW state (1 GB) is saved each ten steps. Times of steps are those of the GPU. Stretches with and without
saves alternate.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch.nn import functional as F

import lcstore
from benchmarks.measure import Report, arguments
from benchmarks.workloads_models import GPT
from benchmarks.workloads_train import corpus
from lcstore.staging.stage import Buffers
from lcstore.state.tree import flatten

EVERY: Final = 10
STRETCH: Final = 40
BATCH: Final = 32
CONTEXT: Final = 1024
ROUNDS: Final = 7


class Training:
    """A GPT in training on the GPU."""

    def __init__(self, quick: bool) -> None:
        torch.manual_seed(0)
        shape = (
            {"layers": 2, "width": 256, "heads": 4} if quick else {"layers": 12, "width": 768, "heads": 12}
        )
        self.model = GPT(**shape, time=CONTEXT).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 3e-4, weight_decay=0.1, fused=True)
        self.text = torch.from_numpy(np.frombuffer(corpus()[0], np.uint8).copy()).cuda()
        self.step = 0

    def advance(self) -> None:
        """Make one step."""
        starts = torch.randint(0, len(self.text) - CONTEXT - 1, (BATCH, 1), device="cuda")
        window = self.text[starts + torch.arange(CONTEXT + 1, device="cuda")].long()
        with torch.autocast("cuda", torch.bfloat16):
            out = self.model(window[:, :-1])
        F.cross_entropy(out.flatten(0, 1).float(), window[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    def state(self) -> dict[str, Any]:
        """The state as a loop gives it: nothing is copied."""
        return {"model": self.model, "optim": self.optimizer}


def main() -> None:
    asked = arguments(__doc__ or "")
    report = Report("gpu", asked.quick)
    folder = Path(tempfile.mkdtemp(prefix="lcstore-bench-"))
    training = Training(asked.quick)
    for _ in range(5):
        training.advance()
    report.say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    try:
        landing(report, training)
        stalls(report, training, folder, rounds=1 if asked.quick else 5)
    finally:
        shutil.rmtree(folder)
    report.write()


def landing(report: Report, training: Training) -> None:
    """Compare the copy of a state with one pinned tensor, and with each tensor by itself."""
    tensors = flatten(training.state(), fetch=False).tensors
    on_gpu = [host.on_gpu for _, host in tensors if host.on_gpu is not None]
    nbytes = sum(tensor.numel() * tensor.element_size() for tensor in on_gpu)
    source = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    buffers = {spare: Buffers(gpu_memory=spare) for spare in (0, 64 << 20, 2 * nbytes)}

    def by_buffers(spare: int) -> None:
        buffers[spare].land(tensors)
        buffers[spare].wait()

    ways: dict[str, Callable[[], object]] = {
        "one pinned tensor": lambda: pinned.copy_(source, non_blocking=True),
        "tensor.cpu() each": lambda: [tensor.cpu() for tensor in on_gpu],
        "lcstore": lambda: by_buffers(0),
        "lcstore, 64 MiB of the GPU": lambda: by_buffers(64 << 20),
        "lcstore, twice the state of the GPU": lambda: by_buffers(2 * nbytes),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    first: dict[str, float] = {}
    for _ in range(ROUNDS + 1):
        for name, run in ways.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            run()
            torch.cuda.synchronize()
            took = time.perf_counter() - began
            seconds[name].append(took) if name in first else first.setdefault(name, took)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    unit = medians["one pinned tensor"]
    report.table(
        f"{nbytes / 1e9:.2f} GB of {len(on_gpu)} tensors to the host",
        ["", "GB/s", "of pinned", "first time, ms"],
        [[name, nbytes / s / 1e9, unit / s, 1e3 * first[name]] for name, s in medians.items()],
    )
    share = unit / medians["lcstore, 64 MiB of the GPU"]
    report.bar("speed of the copy, of one pinned tensor", share, ">= 0.8", share >= 0.8)


def stalls(report: Report, training: Training, folder: Path, rounds: int) -> None:
    """Stretches with saves, by what of the GPU's memory they have, beside stretches without."""
    spares = {"64 MiB": "64MiB", "2 GB": "2GB"}
    stores = {
        name: lcstore.open(folder / str(i), gpu_memory=spare)
        for i, (name, spare) in enumerate(spares.items())
    }
    for store in stores.values():
        for _ in range(3):
            training.advance()
            store.save_async(training.step, training.state()).result()
    plain: list[float] = []
    rows = []
    kept: dict[str, tuple[list[float], list[float], list[float]]] = {name: ([], [], []) for name in stores}
    for _ in range(rounds):
        for name, store in stores.items():
            alone, _, _ = stretch(training, None)
            steps, after, blocked = stretch(training, store)
            plain.extend(alone)
            kept[name][0].append(sum(steps) / sum(alone))
            kept[name][1].extend(after)
            kept[name][2].extend(blocked)
    usual = statistics.median(plain)
    for name, (ratios, after, blocked) in kept.items():
        slower = statistics.median(ratios)
        stall = statistics.median(after) / usual
        rows.append([name, 1e3 * usual, f"{100 * (stall - 1):.1f} %", f"{100 * (slower - 1):.1f} %",
                     1e3 * statistics.median(blocked), 1e3 * max(blocked)])  # fmt: skip
        report.bar(f"step that saves, {name} of the GPU", stall, "<= 1.02", stall <= 1.02)
        report.bar(
            f"loop with a save each {EVERY} steps, {name} of the GPU", slower, "<= 1.02", slower <= 1.02
        )
    count = sum(parameter.numel() for parameter in training.model.parameters())
    report.table(
        f"GPT of {count:,} parameters, a save each {EVERY} steps",
        ["of the GPU's memory", "ms a step", "a step that saves", "the loop", "host waits, ms", "at most"],
        rows,
    )
    for store in stores.values():
        info = store.wait()
        assert info is not None
        report.say(f"seconds of the last save: { {k: round(v, 3) for k, v in info.seconds.items()} }")
        store.close()


def stretch(training: Training, store: lcstore.Store | None) -> tuple[list[float], list[float], list[float]]:
    """Train; return the seconds of each step, of those that follow a save, and of the host's waiting."""
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(STRETCH + 1)]
    blocked = []
    torch.cuda.synchronize()
    marks[0].record()
    for i in range(1, STRETCH + 1):
        training.advance()
        marks[i].record()
        if store is not None and i % EVERY == 5:
            began = time.perf_counter()
            store.save_async(training.step, training.state())
            blocked.append(time.perf_counter() - began)
    torch.cuda.synchronize()
    steps = [a.elapsed_time(b) / 1e3 for a, b in pairwise(marks)]
    if store is not None:
        store.wait()
    return steps, [steps[i] for i in range(5, STRETCH, EVERY)], blocked


if __name__ == "__main__":
    main()
