"""What errors weighted by Adam's second moments save, at the same expected increase of the loss.

    python -m benchmarks.bench_weighted [--quick] [--rework]

The states are saves of the GPT: the first twelve with their own moments, and twelve 1,600 steps later with
the last moments that the trace holds. The expected increase is that of `lcstore.tune`, on held-out loss, at
two saves of each stretch. Each preset is run as it is, and weighted at two errors; what it takes at the
preset's own increase lies between or near those. `--rework` trains on from what is restored.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

import lcstore
from benchmarks.bench_tune import held_out, trained_on
from benchmarks.inputs import gpt
from benchmarks.measure import Report, arguments
from benchmarks.workloads import start_run
from benchmarks.workloads_cache import Tensors, Trace
from lcstore.format import keys
from lcstore.state.tree import flatten
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS, Policy, settled
from lcstore.tune.probe import Probe

#: First saves of the stretches, saves of each, those after which the loss is taken, and deltas not counted.
FIRST, COUNT, LOOKS, WARM = (0, 80), 12, (9, 11), 3
#: The other error of a weighted policy, over the preset's.
OTHER = {"high": 0.8, "balanced": 1.35, "small": 1.35}


class Seen(NamedTuple):
    """A policy on a stretch: bytes of weights per delta, expected increase, tracking error, last restore."""

    nbytes: float
    increase: float
    error: float
    last: Tensors


def main() -> None:
    asked = arguments(__doc__ or "", rework="train on from what is restored")
    report, saves, loss = Report("weighted", asked.quick), gpt(), held_out(start_run("gpt"))
    restored: dict[str, Tensors] = {}
    for first in FIRST[:1] if asked.quick else FIRST:
        states = [whole(saves, first + i) for i in range(COUNT)]
        probes = {i: Probe(loss, {"model": states[i]["model"]}, 1000) for i in LOOKS}
        rows = []
        for name in ("balanced",) if asked.quick else OTHER:
            preset = PRESETS[name]
            weighted = replace(preset, weighted=True)
            other = replace(weighted, error=OTHER[name] * (preset.error or 1.0))
            plain, at_error, at_other = (seen(states, p, probes) for p in (preset, weighted, other))
            alike = at_increase(plain.increase, at_error, at_other)
            rows += [
                [name, *plain[:3], 1.0],
                [f"{name}, weighted", *at_error[:3], plain.nbytes / at_error.nbytes],
                [f"{name}, weighted, error {other.error:.3g}", *at_other[:3], plain.nbytes / at_other.nbytes],
                ["weighted, at the preset's increase", alike, plain.increase, math.nan, plain.nbytes / alike],
            ]
            if first == 0 and name != "high":
                restored |= {name: plain.last, f"{name}, weighted": at_error.last}
        head = ["policy", "bytes of weights per save", "expected increase", "tracking error", "times fewer"]
        report.table(f"GPT, saves {first} to {first + COUNT - 1}", head, rows)
        report.data[str(first)] = rows
    if asked.rework:
        trained_on(report, saves, restored)
    report.write()


def whole(saves: Trace, index: int) -> dict[str, Any]:
    """A save with its moments, or with the last that the trace holds."""
    return saves.state(min(index, saves.moments - 1)) | {"model": saves.state(index)["model"]}


def seen(states: list[Any], policy: Policy, probes: dict[int, Probe]) -> Seen:
    """Save a stretch and look at what comes back."""
    backend, known = MemoryBackend.fresh(), set[str]()
    sizes, errors, increases = [], [], []
    with lcstore.open(backend, policy=settled(policy)) as store:
        for i, state in enumerate(states):
            error = store.save(i, state).error
            objects = backend.snapshot()
            new, known = objects.keys() - known, set(objects)
            if i > WARM and error is not None:
                sizes.append(sum(len(objects[key]) for key in new if of_weights(key)))
                errors.append(error)
            if i in probes:
                held = {p: h.array for p, h in flatten({"model": store.restore(to="numpy")["model"]}).tensors}
                increases.append(probes[i].cost(probes[i].errors_of(held)).charged)
        last = store.restore(to="numpy")["model"]
    return Seen(float(np.mean(sizes)), float(np.mean(increases)), float(np.mean(errors)), last)


def of_weights(key: str) -> bool:
    """Whether an object holds coded weights."""
    if not keys.is_data_key(key):
        return False
    name = keys.parse_data_key(key)
    return name.chunk is not None and name.op in keys.COMPOSED


def at_increase(increase: float, *points: Seen) -> float:
    """Bytes at an expected increase, on the line through two points in logarithms."""
    (x0, y0), (x1, y1) = ((math.log(one.increase), math.log(one.nbytes)) for one in points)
    return math.exp(y0 + (math.log(increase) - x0) / (x1 - x0) * (y1 - y0))


if __name__ == "__main__":
    main()
