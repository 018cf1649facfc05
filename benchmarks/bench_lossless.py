"""Lossless deltas: how large and how fast, beside XOR with general compressors, on all workloads.

    python -m benchmarks.bench_lossless [--quick]

Every save of a short trace is a delta of bit patterns to the one before, whole frames counted. Beside it: the
values set anew, byte plane by byte plane; and what two saves have in common taken out by XOR, then zstd after
a byte shuffle, or pcodec. Two workloads come once more with a save at every update, where few rows move.

Speed is processor time of a whole save without storing it, one thread: comparing, choosing, coding, digests,
moving the track; of the peers XOR, coding, and keeping a copy. Sums of eight deltas are compared with the
entropy of what they hold, where that is enough to estimate it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.bench_merge import Saved, merger, run, smooth_entropy
from benchmarks.inputs import draft, run_jobs
from benchmarks.measure import Report, arguments, one_thread
from benchmarks.peers import Tensors
from benchmarks.peers.lossless import Lossless
from benchmarks.workloads import EVERY, START, trace
from lcstore.edges.frames import values_of_frame
from lcstore.track.policy import policy_of
from lcstore.track.track import Track

#: Saves of a trace, deltas that are merged, and those that are coded to compare.
SAVES, MERGED, COMPARED = 10, 8, 4
#: Integers that the entropy of a sum can be estimated from.
COUNTABLE = 50_000
#: Rounds that a save of a workload is timed in.
ROUNDS = 5
EACH_UPDATE = {"dlrm": 1000, "mf": 2000}


class Case(NamedTuple):
    """Saves of one workload."""

    title: str
    states: list[Tensors]


def main() -> None:
    quick = arguments(__doc__ or "").quick
    one_thread()
    report = Report("lossless", quick)
    names = ["logreg", "mf"] if quick else list(EVERY)
    cases = [_case(name, f"{name}, every {EVERY[name]}", EVERY[name], START[name]) for name in names]
    cases += [
        _case(name, f"{name}, every update", 1, at) for name, at in EACH_UPDATE.items() if name in names
    ]
    sizes(report, cases)
    speed(report, cases, 2 if quick else ROUNDS)
    sums(report, cases)
    report.write()


def _case(name: str, title: str, every: int, start: int) -> Case:
    saves = trace(name, every, SAVES, start=start, moments=12 if name == "gpt" else 0)
    return Case(
        title,
        [{path: np.array(a) for path, a in one.items() if path.startswith("model/")} for one in saves],
    )


def state_of(tensors: Tensors) -> dict[str, Any]:
    """Nest the tensors of a save as it was trained."""
    return {"model": {path.removeprefix("model/"): array for path, array in tensors.items()}}


def saver(track: Track, sizes_: list[int]) -> Callable[[Tensors], None]:
    """Return what saves a state on a track, and notes its bytes."""

    def save(tensors: Tensors) -> None:
        made = draft(track, state_of(tensors), policy_of("lossless"))
        sizes_.append(sum(map(len, run_jobs(made))))
        made.commit()

    return save


def peers() -> dict[str, Lossless]:
    """XOR with each of the compressors."""
    return {f"XOR + {coder}": Lossless(coder, xor=True) for coder in ("zstd", "pcodec")}


def sizes(report: Report, cases: Sequence[Case]) -> None:
    """How many times smaller each coder makes a save."""
    rows = []
    for case in cases:
        ours: list[int] = []
        save, others = saver(Track(), ours), peers()
        theirs: dict[str, list[int]] = {name: [] for name in others}
        for tensors in case.states[: 1 + COMPARED]:
            save(tensors)
            for name, peer in others.items():
                theirs[name].append(peer.save(tensors))
        raw = sum(array.nbytes for array in case.states[0].values())
        best = min(sum(found[1:]) for found in theirs.values())
        ratios = [COMPARED * raw / sum(found[1:]) for found in (*theirs.values(), ours)]
        rows.append([case.title, raw / ours[0], *ratios, sum(ours[1:]) / best])
    head = ["", "set anew", *peers(), "lcstore delta", "bytes / best XOR"]
    report.table("Ratio to float32", head, rows)
    report.data["sizes"] = [dict(zip(head, row, strict=True)) for row in rows]
    for row in rows:
        what = f"{row[0]}: bytes of a delta over those of the best XOR"
        report.bar(what, row[-1], "<= 1.03", row[-1] <= 1.03)


def speed(report: Report, cases: Sequence[Case], rounds: int) -> None:
    """Milliseconds of a save, all coders one after another in each round."""
    rows = []
    for case in cases:
        others = peers()
        saves: dict[str, Callable[[Tensors], Any]] = {name: peer.save for name, peer in others.items()}
        saves["lcstore"] = saver(Track(), [])
        spent: dict[str, list[float]] = {name: [] for name in saves}
        for index in range(1 + rounds):
            for name, save in saves.items():
                began = time.process_time()
                save(case.states[index % len(case.states)])
                spent[name].append(time.process_time() - began)
        middle = {name: 1e3 * float(np.median(found[1:])) for name, found in spent.items()}
        smallest = min(middle[name] for name in others)
        rows.append([case.title, *middle.values(), middle["lcstore"] / smallest])
    head = ["", *peers(), "lcstore", "lcstore / fastest XOR"]
    report.table("Milliseconds of a save, of processor time", head, rows)
    report.data["speed"] = [dict(zip(head, row, strict=True)) for row in rows]


def sums(report: Report, cases: Sequence[Case]) -> None:
    """Eight deltas merged, beside the entropy of their sum."""
    rows = []
    for case in cases:
        track = Track()
        history = [Saved(track, state_of(tensors), "lossless") for tensors in case.states[: 1 + MERGED]]
        edges = [one.edge for one in history]
        made = [chunk for chunk in run(merger(edges[1:], edges[0])) if chunk.op == "add"]
        size, ideal = sum(len(chunk.data) for chunk in made), 0.0
        for chunk in made:
            pool = edges[-1].layout.pools[chunk.pool]
            low, high = edges[-1].layout.maps[chunk.pool].bounds(chunk.index)
            moves = values_of_frame(chunk.data, high - low, np.dtype(f"i{np.dtype(pool.dtype).itemsize}"))
            ideal += smooth_entropy(moves) / 8
        if sum(array.size for array in case.states[0].values()) >= COUNTABLE:
            rows.append([case.title, sum(one.nbytes for one in history[1:]), size, size / ideal])
    head = ["", f"{MERGED} deltas", "their sum", "sum / entropy"]
    report.table("Bytes of merged deltas", head, rows)
    report.data["sums"] = [dict(zip(head, row, strict=True)) for row in rows]
    for row in rows:
        report.bar(f"{row[0]}: bytes of a sum over its entropy", row[-1], "<= 1.05", row[-1] <= 1.05)


if __name__ == "__main__":
    main()
