"""Merging edges: how fast one core decodes and sums deltas, and how large what they add up to is.

    python -m benchmarks.bench_merge [--quick]

Speed is that of 64 MiB of GPT weights (as in bench_codec) in sixteen deltas, counted as the float32 that
they are deltas of, and beside memcpy of as many bytes in the same rounds. *Decode and sum* is what a merge
does with its input; *merge* is all of it: the sums' digests, their steps, coding, and the proof that the
frames decode to them.

Sizes are whole frames: of sixteen deltas of the GPT beside their exact sum and its order-0 entropy, and of an
anchor made of integers of the grid beside the exact one that a save makes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from benchmarks.bench_size import coder_of, entropy_bits, levels_of
from benchmarks.inputs import block, draft, gpt, weights
from benchmarks.measure import Race, Report, arguments, one_thread
from benchmarks.workloads_cache import Trace
from lcstore.edges.algebra import Start
from lcstore.edges.columns import Columns
from lcstore.edges.edge import Edge
from lcstore.edges.frames import Chunk
from lcstore.edges.merge import Merger
from lcstore.edges.path import Path
from lcstore.track.policy import Policy, policy_of
from lcstore.track.track import Track

#: Deltas merged, and saves after the anchor before the first of them.
DELTAS, WARM = 16, 4
#: Saves of the trace that the speed's input begins at: all of them leave room for the deltas.
STARTS = (0, 25, 50, 75)


class Saved:
    """An edge as a store would have it, in memory."""

    def __init__(self, track: Track, state: object, policy: str | Policy = "balanced") -> None:
        made = draft(track, state, policy_of(policy))
        chunks = [job() for job in made.jobs]
        if made.off_grid:
            raise RuntimeError("a tensor left its grid: choose another part of the trace")
        self.chunks = {(c.pool, c.op, c.index): c.data for c in chunks if c is not None}
        made.commit()
        self.edge = Edge(
            made.layout, made.columns, lambda *chunk: self.chunks.get(chunk), lambda *chunk: str(chunk)
        )
        self.nbytes = sum(map(len, self.chunks.values()))


def saved(states: Callable[[int], object]) -> list[Saved]:
    """An anchor, some saves, and the deltas to merge."""
    track = Track()
    return [Saved(track, states(index)) for index in range(1 + WARM + DELTAS)]


def main() -> None:
    quick = arguments(__doc__ or "").quick
    one_thread()
    report = Report("merge", quick)
    saves = gpt()
    for first in (0, 40) if not quick else (40,):
        sizes(report, saves, first)
    speed(report, saves, 1 << (22 if quick else 24), 2 if quick else 5)
    report.write()


def merger(edges: list[Edge], base: Edge | None) -> Merger:
    """Merge `edges`, which begin at the node of the edge `base`, or at the root."""
    at: tuple[object, Columns] | None = (base.layout, base.columns) if base is not None else None
    return Merger(edges, edges[-1].layout, edges[-1].columns, at)  # type: ignore[arg-type]


def run(merging: Merger) -> list[Chunk]:
    """Run the jobs one after another, and the proof."""
    made = [chunk for job in merging.jobs() for chunk in job()]
    merging.prove()
    return made


def sizes(report: Report, saves: Trace, first: int) -> None:
    """Sixteen deltas of the GPT, and an anchor behind them."""

    def state(later: int) -> object:
        parts = weights(saves, first + later)
        return {"model": {path.removeprefix("model/"): array for path, array in parts.items()}}

    history = saved(state)
    edges = [one.edge for one in history]
    count = sum(spec.size for spec in edges[-1].layout.tensors)
    deltas = sum(one.nbytes for one in history[-DELTAS:])
    steps = np.array([edge.columns.shift for edge in edges[-DELTAS:]])
    made = run(merger(edges[-DELTAS:], edges[-DELTAS - 1]))
    size = sum(len(chunk.data) for chunk in made)
    ideal = sum(entropy_bits(np.unique(levels_of(chunk.data), return_counts=True)[1]) / 8 for chunk in made)
    anchor = run(merger(edges, None))
    whole = sum(len(chunk.data) for chunk in anchor)
    fine = sum(map(smooth_entropy, (levels_of(chunk.data) for chunk in anchor))) / 8
    coders = ", ".join(sorted({coder_of(chunk.data) for chunk in made}))
    rows = [
        [f"{DELTAS} deltas", deltas, 8 * deltas / count / DELTAS, ""],
        [f"their sum ({coders})", size, 8 * size / count, size / ideal],
        ["exact anchor", history[0].nbytes, 8 * history[0].nbytes / count, ""],
        ["anchor of grid integers", whole, 8 * whole / count, whole / fine],
    ]
    head = ["", "bytes", "bits per weight", "coded / entropy"]
    report.table(f"GPT from save {first}: {count:,} weights", head, rows)
    report.data[f"sizes from {first}"] = [dict(zip(head, row, strict=True)) for row in rows]
    report.say(f"tensors whose step changed among the sixteen: {int((steps != steps[0]).any(axis=0).sum())}")
    report.bar("merged size over entropy of the sum", size / ideal, "<= 1.05", size <= 1.05 * ideal)
    report.bar("merged size over the sum of the sizes", size / deltas, "<= 0.30", size <= 0.30 * deltas)
    report.bar("anchor of integers over its entropy", whole / fine, "<= 1.05", whole <= 1.05 * fine)


def smooth_entropy(levels: np.ndarray) -> float:
    """Bits of levels that are too many to count: of their counts in small bins, and of the place inside one.

    A bin is 1/64 of an octave wide, so the density hardly changes inside.
    """
    size = np.abs(levels).astype(np.float64)
    exponents = np.frexp(size)[1]
    width = np.exp2(np.maximum(exponents - 7, 0))
    bins = np.floor(size / width) * width * np.sign(levels)
    _, counts = np.unique(bins, return_counts=True)
    return entropy_bits(counts) + float(np.log2(width).sum())


def speed(report: Report, saves: Trace, elements: int, rounds: int) -> None:
    """Decoding and summing, and merging, of sixteen deltas of one large state."""
    history = saved(lambda later: block(saves, later, elements, STARTS).state)
    edges = [one.edge for one in history]
    raw = np.empty(elements, np.float32)
    raw[:] = 1
    base = edges[-DELTAS - 1]
    layout = edges[-1].layout
    every = list(range(len(layout.tensors)))
    spent: list[float] = []

    def decode_and_sum() -> None:
        start = Start(base.layout, np.ones(len(base.layout.tensors), bool))
        path = Path(edges[-DELTAS:], layout, every, start)
        for pool, chunk, pieces in path.chunks():
            low, high = layout.maps[pool].bounds(chunk)
            path.apply(pool, chunk, pieces, np.zeros(high - low, np.int32))

    def merge() -> None:
        began = time.perf_counter()
        run(merger(edges[-DELTAS:], base))
        spent.append(time.perf_counter() - began)

    race = Race(raw)
    race.add("decode and sum", decode_and_sum)
    race.add("merge", merge)
    race.add("anchor", lambda: run(merger(edges, None)))
    results = race.run(rounds)
    deltas = {"memcpy": 1, "decode and sum": DELTAS, "merge": DELTAS, "anchor": len(edges)}
    rows = [
        [name, 1e3 * r["seconds"], deltas[name] * r["gigabytes_per_second"], deltas[name] * r["ratio"]]
        for name, r in results.items()
    ]
    coding = results["merge"]["seconds"] - results["decode and sum"]["seconds"]
    rows.append(["  of it coding and proof, by what is coded", 1e3 * coding, raw.nbytes / coding / 1e9, ""])
    head = ["", "ms", "GB/s of float32", "x memcpy"]
    report.table(f"{raw.nbytes / 2**20:.0f} MiB of GPT weights, one core, {DELTAS} deltas", head, rows)
    report.data["speed"] = [dict(zip(head, row, strict=True)) for row in rows]
    rate = DELTAS * results["decode and sum"]["gigabytes_per_second"]
    report.bar("decode and sum, GB/s of float32", rate, ">= 1.5", rate >= 1.5)


if __name__ == "__main__":
    main()
