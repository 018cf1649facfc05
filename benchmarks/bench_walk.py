"""Walking through a run, forward and backward, beside restoring each of its steps.

    python -m benchmarks.bench_walk [--quick]

The run is 200 saves of GPT weights in memory: the trace's hundred deltas, and then back through it. Time is
per step given, with all threads of the machine; restoring (all weights, and one tensor, the first block's
projection) is timed on every tenth step, spread over the run. *Compacted* is the same store after `compact`,
which makes restores short: a walk then saves less.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import lcstore
from benchmarks.inputs import gpt, weights
from benchmarks.measure import Report, arguments
from benchmarks.workloads_cache import Trace
from lcstore.storage.memory import MemoryBackend

TENSOR = "model/blocks.0.qkv.weight"


def main() -> None:
    quick = arguments(__doc__ or "").quick
    report = Report("walk", quick)
    store, count = filled(gpt(), 40 if quick else 200)
    list(store.walk(range(3)))  # compiled, before anything is timed
    for title in ("as saved", "compacted"):
        if title == "compacted":
            store.compact()
        compare(report, store, title, count)
    report.write()


def filled(saves: Trace, count: int) -> tuple[lcstore.Store, int]:
    """A run of `count` saves: the trace to its end, back to its beginning, and so on."""
    store = lcstore.open(MemoryBackend.fresh())
    last = 100
    for step in range(count):
        at = step % (2 * last)
        parts = weights(saves, min(at, 2 * last - at))
        store.save(step, {"model": {path.removeprefix("model/"): array for path, array in parts.items()}})
    return store, count


def compare(report: Report, store: lcstore.Store, title: str, count: int) -> None:
    """One table: ways to look at every step."""
    some = range(5, count, 10)
    read = sum(len(store._index.path(store.info(step).node)) for step in some) / len(some)
    whole = each(some, lambda step: store.restore(step, names="model/**"))
    one = each(some, lambda step: store.read(step, TENSOR))
    walks = {
        "walk forward": (whole, lambda: store.walk()),
        "walk backward": (whole, lambda: store.walk(reverse=True)),
        "walk, every tenth": (whole, lambda: store.walk(range(0, count, 10))),
        "history of one tensor": (one, lambda: store.history(TENSOR)),
    }
    rows: list[list[Any]] = [["restore each", whole, read, 1.0], ["read one tensor of each", one, read, 1.0]]
    for name, (beside, walk) in walks.items():
        spent, edges = timed(walk())
        rows.append([name, spent, edges, beside / spent])
    head = ["", "ms per step", "edges per step", "times as fast"]
    report.table(f"{count} saves of GPT weights, {title}", head, rows)
    report.data[title] = [dict(zip(head, row, strict=True)) for row in rows]
    for name in ("walk forward", "walk backward"):
        edges = next(row[2] for row in rows if row[0] == name)
        report.bar(f"edges per step, {name}, {title}", edges, "<= 2", edges <= 2)


def each(steps: range, look: Callable[[int], Any]) -> float:
    """Milliseconds of looking at a step."""
    began = time.perf_counter()
    for step in steps:
        look(step)
    return 1e3 * (time.perf_counter() - began) / len(steps)


def timed(walk: Any) -> tuple[float, float]:
    """Milliseconds and edges per step."""
    began = time.perf_counter()
    count = exhaust(walk)
    return 1e3 * (time.perf_counter() - began) / count, walk.edges_applied / count


def exhaust(steps: Iterator[Any]) -> int:
    """Go through all of it."""
    return sum(1 for _ in steps)


if __name__ == "__main__":
    main()
