"""The adaptive coder beside the quick ones, on real deltas and their sums.

    python -m benchmarks.bench_contexts [--quick]

Every workload is saved in a closed loop at three policies. Its last delta, and the exact sums of its last 4,
16 and 64 deltas as compaction writes them, are coded by both. Bytes are those of whole frames: headers,
scales, tables and directories counted. Times are those of one core for each weight, the best of three: coding
levels to bytes (for the quick coders with the choice among them), and decoding a frame to levels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.bench_merge import Saved, merger, run
from benchmarks.bench_size import levels_of
from benchmarks.measure import Report, arguments, one_thread
from benchmarks.workloads import EVERY, START, available, trace
from lcstore.codec import format as f
from lcstore.codec.adaptive import encode_adaptive
from lcstore.codec.decode import spans
from lcstore.codec.entropy import Coded, encode_any
from lcstore.codec.frame import build_frame, parse_frame
from lcstore.state.layout import Layout
from lcstore.track.policy import PRESETS
from lcstore.track.track import Track

WORKLOADS = ("logreg", "lenet", "cnn", "mf", "dlrm", "gpt")
MERGED = (1, 4, 16, 64)
#: Saves at most; and those before the first delta that counts.
SAVES, WARM = 70, 5
#: Of the GPT a part is enough: two of its blocks, and the embeddings.
GPT = ("tokens", "blocks.0.", "blocks.3.")
HEAD = [
    *("workload, policy", "deltas", "bits per weight", "adaptive", "adaptive / quick"),
    *("coding, ns", "decoding, ns", "adaptive: coding, ns", "decoding, ns "),
]


def main() -> None:
    quick = arguments(__doc__ or "").quick
    one_thread()
    report = Report("contexts", quick)
    rows = []
    for workload in WORKLOADS[:2] if quick else WORKLOADS:
        for policy in ("high", "balanced", "small"):
            rows += list(measured(workload, policy))
    report.table("The adaptive coder on deltas and their sums", HEAD, rows)
    for some, own in (("own deltas", True), ("sums", False)):
        ratios = np.array([row[4] for row in rows if (row[1] == 1) == own], float)
        mean = np.exp(np.log(ratios).mean())
        report.say(
            f"{some}: {mean:.3f} of the bytes ({ratios.min():.3f} to {ratios.max():.3f}, {ratios.size} rows)"
        )
    report.data["rows"] = [dict(zip(HEAD, row, strict=True)) for row in rows]
    report.write()


def measured(workload: str, policy: str) -> Iterator[list[object]]:
    """Give a row for each number of deltas merged."""
    history = saved(workload, policy)
    edges = [one.edge for one in history]
    layout = edges[-1].layout
    for count in MERGED:
        if count + WARM > len(edges):
            return
        if count == 1:
            frames = {
                (pool, index): data for (pool, op, index), data in history[-1].chunks.items() if op == "add"
            }
        else:
            made = run(merger(edges[-count:], edges[-count - 1]))
            frames = {(c.pool, c.index): c.data for c in made if c.op == "add"}
        yield [f"{workload}, {policy}", count, *compared(layout, frames)]


def saved(workload: str, policy: str) -> list[Saved]:
    """Save what there is of a workload's trace, one state after another."""
    every, first = EVERY[workload], START[workload]
    there = set(available(workload))
    count = next(n for n in range(SAVES + 1) if n == SAVES or first + n * every not in there)
    saves, track, history = trace(workload, every=every, count=count), Track(), []
    for index in range(count):
        state = {p.removeprefix("model/"): a for p, a in saves[index].items() if p.startswith("model/")}
        if workload == "gpt":
            state = {path: array for path, array in state.items() if path.startswith(GPT)}
        history.append(Saved(track, {"model": state}, PRESETS[policy]))
    return history


def compared(layout: Layout, frames: dict[tuple[str, int], bytes]) -> list[object]:
    """Code the levels of some frames both ways."""
    weights = 0
    bits, seconds = np.zeros(2), np.zeros(4)
    for (pool, index), data in frames.items():
        levels, frame = levels_of(data), parse_frame(data)
        pieces = list(layout.maps[pool].pieces(index))
        rows = [int(np.prod(layout.tensors[p.tensor].shape[1:])) for p in pieces]
        stretches = np.array([(p.at, p.size, row) for p, row in zip(pieces, rows, strict=True)])
        weights += sum(piece.size for piece in pieces)

        def adaptive(levels: np.ndarray = levels, stretches: np.ndarray = stretches) -> Coded | None:
            return encode_adaptive(levels, stretches, 8 * levels.size + 4096)

        for kind, code in enumerate((lambda levels=levels: encode_any(levels), adaptive)):
            coded, took = best(code)
            about = {"dtype": frame.dtype, "quantizer": f.LINEAR, "block": f.BLOCK}
            made = build_frame(coded, count=levels.size, scales=bytes(frame.scales), **about)
            if not np.array_equal(levels_of(made), levels):
                raise RuntimeError("a frame does not decode to its levels")
            bits[kind] += 8 * len(made)
            seconds[2 * kind] += took
            seconds[2 * kind + 1] += best(lambda made=made: all(True for _ in spans(parse_frame(made))))[1]
    return [*(bits / weights), bits[1] / bits[0], *(1e9 * seconds / weights)]


def best(what: Callable[[], object], times: int = 3) -> tuple[object, float]:
    """Run something; give its result and the seconds of the quickest run."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        result = what()
        took.append(time.perf_counter() - began)
    return result, min(took)


if __name__ == "__main__":
    main()
