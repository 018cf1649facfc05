"""Bytes and tracking error of the policies on real training, and what deciding costs.

    python -m benchmarks.bench_rate [--quick]

Bytes are whole frames of the weights' deltas: headers, scales and tables counted, anchors not. The error is
the true one over all weights, the mean over the saves after the third. Deciding is what a save does beside
coding: sampling, choosing steps, estimating the error; it is timed in the same run as the coding.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

import numpy as np

from benchmarks.inputs import draft, gpt, run_jobs, tracking_error
from benchmarks.measure import Report, arguments
from benchmarks.workloads_cache import Trace
from lcstore.track import samples
from lcstore.track.draft import Draft
from lcstore.track.policy import PRESETS, Policy
from lcstore.track.track import Track

#: By policy: the ratio that its deltas have to reach, and the mean error that they may have.
BARS = {"high": (16.5, 0.35), "balanced": (40.0, 1.1), "small": (100.0, 2.2)}
SKIPPED = 4


@dataclass
class Seen:
    """What was seen of the saves after the third delta."""

    raw: int = 0
    sizes: list[int] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    estimates: list[float] = field(default_factory=list)
    deciding: list[float] = field(default_factory=list)
    coding: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Raw bytes per byte coded."""
        return self.raw / float(np.mean(self.sizes))


def main() -> None:
    quick = arguments(__doc__ or "").quick
    report = Report("rate", quick)
    saves = gpt()
    rows, count = [], 16 if quick else len(saves)
    for name, (ratio, error) in BARS.items():
        seen = follow(saves, count, PRESETS[name])
        mean = float(np.mean(seen.errors))
        off = max(abs(a / b - 1) for a, b in zip(seen.estimates, seen.errors, strict=True))
        share = statistics.median(d / c for d, c in zip(seen.deciding, seen.coding, strict=True))
        rows.append([name, seen.ratio, mean, max(seen.errors), off, share])
        report.bar(f"{name}: ratio", seen.ratio, f">= {ratio}", seen.ratio >= ratio)
        report.bar(f"{name}: mean error", mean, f"<= {error}", mean <= error)
        report.bar(f"{name}: estimate off by", off, "<= 0.1", off <= 0.1)
        report.bar(f"{name}: deciding over coding", share, "<= 0.15", share <= 0.15)
    head = ["policy", "ratio", "error, mean", "greatest", "estimate off by", "deciding / coding"]
    report.table(f"GPT, weights, {count} saves", head, rows)
    report.data["policies"] = [dict(zip(head, row, strict=True)) for row in rows]
    report.write()


def follow(saves: Trace, count: int, policy: Policy) -> Seen:
    """Save the matrices of the trace one after another."""
    seen, track, before = Seen(), Track(), None
    for index in range(count):
        # Copies: what is read from disk for the first time would count as coding.
        now = {p: a.copy() for p, a in saves[index].items() if p.startswith("model/") and a.ndim >= 2}
        made = draft(track, {"model": {p.removeprefix("model/"): a for p, a in now.items()}}, policy)
        began = time.perf_counter()
        frames = run_jobs(made)
        coded = time.perf_counter() - began
        estimate, _ = made.tracking()
        if before is not None and index >= SKIPPED:
            seen.deciding.append(deciding(made))
            seen.coding.append(coded)
            seen.estimates.append(estimate)
        made.commit()
        if before is not None and index >= SKIPPED:
            seen.sizes.append(sum(map(len, frames)))
            seen.errors.append(tracking_error(track, now, before))
        before, seen.raw = now, sum(a.nbytes for a in now.values())
    return seen


def deciding(made: Draft) -> float:
    """Seconds that the sampling, the steps and the estimate of a draft take, done once more."""
    track = made.track
    rate = made.rate.copy()
    began = time.perf_counter()
    for index in sorted(made.steps):
        spec = made.layout.tensors[index]
        now = samples.take(made.arrays[index])
        change = now - track.samples[spec.name]
        rows = samples.touched(change)
        moved = samples.rms(change)
        trend = rate.trend(spec.name, change, moved)
        track._choose_step(made, index, rows=rows is not None, trend=trend)
        rate.finer(spec.name, change, moved, spec.size)
    made.rate.rows.copy().watch(made)
    made.tracking()
    made.worst_row()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
