"""Ratio and tracking error of the balanced policy through a real store, on the states of a real training.

    python -m benchmarks.bench_quality [--quick] [--long]

Every key of the store is counted: chunks, Zarr metadata, layouts, records. The tracking error is the true
one, on all tracked weights, from what the writer's track holds after each save; the estimate is what the save
itself says. `--long` makes 1,000 saves by going through the trace to and fro (at the turning points an update
is the negative of the one before), to see whether the error grows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import lcstore
from benchmarks.inputs import gpt, tracking_error
from benchmarks.measure import Report, arguments
from benchmarks.workloads_cache import Tensors, Trace
from lcstore.format import keys
from lcstore.storage.memory import MemoryBackend

LONG = 1000


def main() -> None:
    asked = arguments(__doc__ or "", long="1,000 saves")
    saves = gpt()
    if asked.long:
        report = Report("quality-long", asked.quick)
        long(report, saves, 220 if asked.quick else LONG)
    else:
        report = Report("quality", asked.quick)
        count = 12 if asked.quick else len(saves)
        weights = follow(saves, ({"model": model(saves[i])} for i in range(count)), range(count))
        show(report, f"GPT, weights alone, {count} saves", weights)
        excluded, error = weights.ratio(anchors=False), float(np.mean(weights.errors))
        report.bar("ratio, anchors excluded", excluded, ">= 36", excluded >= 36)
        report.bar("mean tracking error", error, "<= 1.1", error <= 1.1)
        moments = 4 if asked.quick else saves.moments
        whole = follow(saves, (saves.state(i) for i in range(moments)), range(moments))
        show(report, f"GPT with AdamW's moments, {moments} saves", whole)
    report.write()


def model(tensors: Tensors) -> Tensors:
    """The weights of a save, by name."""
    return {p.removeprefix("model/"): a for p, a in tensors.items() if p.startswith("model/")}


@dataclass
class Followed:
    """What was seen of a series of saves."""

    infos: list[lcstore.SaveInfo] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    kinds: dict[str, dict[str, int]] = field(default_factory=dict)

    def ratio(self, *, anchors: bool) -> float:
        """Raw bytes of all saves (or of the deltas alone) per byte stored."""
        infos = [i for i in self.infos if anchors or i.kind == "delta"]
        return sum(i.bytes_raw for i in infos) / sum(i.bytes_stored for i in infos)


def follow(saves: Trace, states: Iterator[Any], order: range | list[int]) -> Followed:
    """Save the states one after another, and look at the track after each."""
    seen = Followed()
    backend = MemoryBackend.fresh()
    with lcstore.open(backend, policy="balanced") as store:
        before: Tensors | None = None
        for step, (at, state) in enumerate(zip(order, states, strict=True)):
            seen.infos.append(store.save(step, state))
            now = saves[at]
            if before is not None:
                seen.errors.append(tracking_error(store._writer.track, now, before))
            before = now
            if step % 100 == 99:
                print(f"{step + 1} saves", flush=True)
    seen.kinds = kinds(backend)
    stored = sum(kind["bytes"] for kind in seen.kinds.values())
    own = seen.kinds["store record"]["bytes"]
    assert stored == own + sum(info.bytes_stored for info in seen.infos)
    return seen


def kinds(backend: MemoryBackend) -> dict[str, dict[str, int]]:
    """Objects and bytes in a store by kind."""
    out: dict[str, dict[str, int]] = {}
    for key, data in sorted(backend.snapshot().items()):
        kind = out.setdefault(kind_of(key), {"objects": 0, "bytes": 0})
        kind["objects"] += 1
        kind["bytes"] += len(data)
    return out


def kind_of(key: str) -> str:
    """Return what an object is."""
    top, *rest = key.split("/")
    if top == keys.DATA:
        return f"chunks {rest[-2]}" if rest[-1].startswith("c.") else "Zarr metadata"
    return {keys.NODES: "node records", keys.LAYOUTS: "layouts", keys.STORE_KEY: "store record"}.get(top, top)


def show(report: Report, title: str, seen: Followed) -> None:
    """Tables of a series, and its figures into the report."""
    deltas = [i for i in seen.infos if i.kind == "delta"]
    estimates = [i.error for i in deltas if i.error is not None]
    figures = {
        "saves": len(seen.infos),
        "ratio, anchors excluded": seen.ratio(anchors=False),
        "ratio, anchors included": seen.ratio(anchors=True),
        "bytes of an anchor": max(i.bytes_stored for i in seen.infos if i.kind == "anchor"),
        "bytes of a delta, mean": float(np.mean([i.bytes_stored for i in deltas])),
        "tracking error, mean": float(np.mean(seen.errors)),
        "tracking error, greatest": max(seen.errors),
        "estimate of it, mean": float(np.mean(estimates)),
        "seconds per delta, median": float(np.median([i.seconds["total"] for i in deltas])),
    }
    report.data[title] = figures | {"kinds": seen.kinds, "errors": seen.errors}
    report.table(title, ["", ""], [[name, value] for name, value in figures.items()])
    total = sum(kind["bytes"] for kind in seen.kinds.values())
    rows = [[name, k["objects"], k["bytes"], k["bytes"] / total] for name, k in seen.kinds.items()]
    report.table("What is stored", ["kind", "objects", "bytes", "share"], rows)


def long(report: Report, saves: Trace, count: int) -> None:
    """Many saves; the error must not grow."""
    cycle = [*range(len(saves)), *range(len(saves) - 2, 0, -1)]
    order = [cycle[i % len(cycle)] for i in range(count)]
    seen = follow(saves, ({"model": model(saves[at])} for at in order), order)
    show(report, f"GPT, weights alone, {count} saves to and fro through the trace", seen)
    parts = np.array_split(np.array(seen.errors), max(count // len(cycle), 1))
    rows = [[i + 1, len(p), float(p.mean()), float(p.max())] for i, p in enumerate(parts)]
    report.table("Tracking error by part", ["part", "saves", "mean", "greatest"], rows)
    growth = float(parts[-1].mean() / parts[0].mean())
    report.bar("mean error, last part over first", growth, "no growth: <= 1.05", growth <= 1.05)


if __name__ == "__main__":
    main()
