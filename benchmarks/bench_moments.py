"""What moments coded at few bits cost: bytes of whole states, rework, and the loss after ten restores.

    python -m benchmarks.bench_moments [--quick] [--gpt]

Four models train with AdamW. Each preset is run as it is and with exact moments beside it, so that the
difference is what coarse moments do. All policies see the same batches. `--gpt` takes the GPT of the
workloads in, which needs its trace and an hour.

Rework is the number of steps, after a restore, until the mean held-out loss of five steps is as low as that
of the run that was not interrupted. Ten restores are ten times: restore, train for 20 steps, save.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

import lcstore
from benchmarks.evaluation.recovery import WINDOW
from benchmarks.measure import Report, arguments
from benchmarks.workloads import start_run, trace
from benchmarks.workloads_train import Run, gpt_run
from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS, Policy, settled

#: Steps between saves, saves before the failure, and those whose bytes do not count.
APART, SAVES, WARM = (1, 10, 50), 6, 2
#: Steps after which rework is given up, and after which the gap of the loss is taken.
CAP, LOOK = 40, 20
#: Restores, and steps after each.
TIMES, STEPS = 10, 20
SEEDS = 5


class Kind(NamedTuple):
    """A model in training: how a run of a seed begins, and its step at the first save."""

    title: str
    begin: Callable[[int], Run]
    start: int


class After(NamedTuple):
    """What a restore gave: bytes of a delta over those of the state, rework in steps, and loss less exact."""

    times: float
    rework: float
    gap: float


def main() -> None:
    asked = arguments(__doc__ or "", gpt="take the GPT of the workloads in")
    report = Report("moments", asked.quick)
    kinds = [name for name in KINDS if name != "gpt" or asked.gpt]
    apart = APART[1:2] if asked.quick else APART
    rows, again = [], []
    for name in kinds[:1] if asked.quick else kinds:
        for line in measured(name, policies(), apart, 1 if asked.quick else SEEDS):
            (rows if line["steps"] else again).append(line)
    head = ["model", "policy", "steps between saves", "times smaller", "rework, steps", "loss - exact"]
    report.table("After one restore", head, [shown(r, "times", "rework", "gap") for r in rows])
    title = f"Loss after {TIMES} restores, {STEPS} steps apart, less that of exact ones"
    report.table(title, ["model", "policy", "loss - exact"], [shown(r, "gap") for r in again])
    report.data |= {"once": rows, "ten": again}
    report.write()


def policies() -> dict[str, Policy]:
    """The presets, and each with exact moments; six saves tell nothing of those that are nearer at first."""
    presets = {name: settled(PRESETS[name]) for name in ("high", "balanced", "small")}
    plain = {"first_moment": None, "second_moment": None}
    return presets | {f"{name}, exact moments": replace(p, **plain) for name, p in presets.items()}


def measured(
    name: str, settings: dict[str, Policy], apart: tuple[int, ...], seeds: int
) -> Iterator[dict[str, Any]]:
    """Yield a line for each policy and distance of saves, and for ten restores (0 steps): lists by seed."""
    kind = KINDS[name]
    for steps in apart:
        found = [once(kind, settings, steps, seed) for seed in range(seeds)]
        for policy in settings:
            each = [one[policy] for one in found]
            fields = {field: [getattr(a, field) for a in each] for field in After._fields}
            yield {"model": kind.title, "policy": policy, "steps": steps, **fields}
    gaps = [ten(kind, settings, seed) for seed in range(seeds)]
    for policy in settings:
        yield {"model": kind.title, "policy": policy, "steps": 0, "gap": [one[policy] for one in gaps]}


def shown(line: dict[str, Any], *fields: str) -> list[object]:
    """A row: means over seeds, with two standard errors."""
    where = [line["model"], line["policy"], *([line["steps"]] if line["steps"] else [])]
    return [*where, *(f"{np.mean(line[f]):.3g} ± {2 * deviation(line[f]):.2g}" for f in fields)]


def deviation(values: list[float]) -> float:
    """The standard error of a mean."""
    return float(np.std(values, ddof=1) / len(values) ** 0.5) if len(values) > 1 else float("nan")


def once(kind: Kind, settings: dict[str, Policy], steps: int, seed: int) -> dict[str, After]:
    """Save along a run by all policies, and go on from what each restores."""
    run = kind.begin(seed)
    run.advance(max(kind.start, run.iteration))
    stores = {name: Kept(policy) for name, policy in settings.items()}
    for number in range(SAVES):
        run.advance(run.iteration + (steps if number else 0))
        state = run.state()
        for kept in stores.values():
            kept.save(number, state)
    at, exact = run.iteration, losses(run)
    found = {}
    for name, kept in stores.items():
        run.load(kept.restore(), at)
        again = losses(run)
        means = np.convolve(again, np.ones(WINDOW) / WINDOW, "valid")
        back = np.flatnonzero(means <= np.mean(exact[:WINDOW]) + 1e-9)
        gap = np.mean(again[LOOK - WINDOW : LOOK]) - np.mean(exact[LOOK - WINDOW : LOOK])
        found[name] = After(kept.times(), float(back[0]) if back.size else CAP, float(gap))
    return found


def losses(run: Run) -> list[float]:
    """The held-out losses from here on."""
    found = [run.loss()]
    for _ in range(CAP):
        run.advance(run.iteration + 1)
        found.append(run.loss())
    return found


def ten(kind: Kind, settings: dict[str, Policy], seed: int) -> dict[str, float]:
    """Restore again and again by each policy; give the loss at the end, less that of the exact run."""
    run = kind.begin(seed)
    run.advance(max(kind.start, run.iteration))
    begin, at = run.state(), run.iteration
    exact, found = 0.0, {}
    for name, policy in {"": None, **settings}.items():
        kept = None if policy is None else Kept(policy)
        run.load(begin, at)
        if kept is not None:
            kept.save(0, begin)
        for number in range(TIMES):
            if kept is not None:
                run.load(kept.restore(), run.iteration)
            seen = []
            for _ in range(STEPS):
                run.advance(run.iteration + 1)
                if number == TIMES - 1 and run.iteration > at + TIMES * STEPS - WINDOW:
                    seen.append(run.loss())
            if kept is not None:
                kept.save(number + 1, run.state())
        if kept is None:
            exact = float(np.mean(seen))
        else:
            found[name] = float(np.mean(seen)) - exact
    return found


class Kept:
    """A store in memory, and the bytes of what its deltas hold."""

    def __init__(self, policy: Policy) -> None:
        self.backend = MemoryBackend.fresh()
        self.store = lcstore.open(self.backend, policy=policy, durability="none", threads=1)
        self.known: set[str] = set()
        self.sizes: list[float] = []

    def save(self, number: int, state: Any) -> None:
        raw = self.store.save(number, state).bytes_raw
        objects = self.backend.snapshot()
        new = [key for key in objects if key not in self.known and keys.is_data_key(key)]
        self.known = set(objects)
        self.sizes.append(raw / sum(len(objects[k]) for k in new if keys.parse_data_key(k).chunk is not None))

    def restore(self) -> Any:
        return self.store.restore(to="numpy")

    def times(self) -> float:
        """How many times smaller a delta is than the state."""
        return float(1 / np.mean([1 / size for size in self.sizes[WARM:]]))


def _adam(run: Run, rate: float, beta: float) -> Run:
    """Train by AdamW instead, on one thread."""
    torch.set_num_threads(1)
    run.optimizer = torch.optim.AdamW(run.model.parameters(), lr=rate, betas=(0.9, beta))
    run.rate = lambda _: rate
    return run


def _perceptron(seed: int) -> Run:
    run = start_run("lenet", seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10)
        run.model = nn.Sequential(nn.Flatten(), *layers)
    return _adam(run, 3e-4, 0.95)


def _gpt(seed: int) -> Run:
    """The GPT, from its trace on; seeds differ in batches."""
    run, saves = start_run("gpt", 0), trace("gpt", 20, 6)
    torch.set_num_threads(1)
    run.load(saves.state(-1), saves.iterations[-1])
    batch = run.batch
    run.batch = lambda iteration: batch(iteration + 1_000_000 * seed)
    return run


KINDS = {
    "small gpt": Kind(
        "GPT, 0.5 M parameters, .999",
        lambda s: _adam(gpt_run(4, s, layers=2, width=128, heads=4), 1e-3, 0.999),
        100,
    ),
    "cnn": Kind("small AlexNet, .999", lambda s: _adam(start_run("cnn", s), 3e-4, 0.999), 60),
    "mlp": Kind("perceptron, .95", _perceptron, 60),
    "gpt": Kind("GPT, 9 M parameters, .95", _gpt, 0),
}

if __name__ == "__main__":
    main()
