"""Coded size against entropy, the faithful mode of the paper against ideal Huffman, and policies beside it.

    python -m benchmarks.bench_size [--quick]

Sizes are whole frames: header, scales, code table, directory, payload, checksum. Entropy is that of order 0,
of the levels of each frame, table not counted. The ideal Huffman cost is computed here, with a heap, from the
levels that a frame decodes to, and counts neither table nor header.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from benchmarks.inputs import block, draft, gpt, run_jobs, tracking_error, warmed
from benchmarks.measure import Report, arguments
from benchmarks.workloads import trace
from lcstore.codec import LCCodec
from lcstore.coders.tables import TableCache
from lcstore.edges.frames import frame_of_levels
from lcstore.frames.decode import Levels
from lcstore.frames.frame import parse_frame
from lcstore.layout.specs import ALIGN
from lcstore.track.policy import PRESETS, Policy
from lcstore.track.track import Track

TARGETS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0)
ERRORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)
CODERS = {0: "zero", 1: "pack", 2: "runs", 3: "wide"}
THRESHOLD = 0.72


def main() -> None:
    quick = arguments(__doc__ or "").quick
    report = Report("size", quick)
    count = 1 << 20
    worst = synthetic(report, count, TARGETS[::5] if quick else TARGETS)
    worst = max(worst, real(report, 1 << (20 if quick else 22), ERRORS[::3] if quick else ERRORS))
    report.bar("worst size over entropy", worst, "<= 1.05", worst <= 1.05)
    sparse(report, count)
    for name in ("lenet", "gpt"):
        faithful(report, name, 5 if quick else 21)
    report.write()


def entropy_bits(counts: np.ndarray) -> float:
    """Bits of order-0 entropy of symbols that occur `counts` times."""
    used = counts[counts > 0].astype(np.float64)
    return float(used @ np.log2(used.sum() / used))


def frame_size(levels: np.ndarray) -> tuple[int, str]:
    """Bytes of the frame of `levels` on one step, and its coder."""
    shifts = np.full(-(-levels.size // ALIGN), 12, np.int16)
    clipped = np.clip(levels, -128, 127).astype(np.int8)
    far = np.abs(levels) > 127
    clipped[far] = -128
    data = frame_of_levels(
        clipped, levels[far].astype(np.int64), shifts, ALIGN, np.dtype(np.int32), TableCache()
    )
    if data is None:
        return 0, "none"
    return len(data), coder_of(data)


def coder_of(data: bytes) -> str:
    """Say how a frame is coded."""
    frame = parse_frame(data)
    return CODERS[frame.coder] + (f" {frame.bits}x{frame.per}" if frame.per else "")


def quantize(values: np.ndarray, step: float) -> np.ndarray:
    """Levels with the dead zone of the track."""
    levels: np.ndarray = np.sign(values) * np.floor(np.abs(values) / step + 1 - THRESHOLD)
    return levels.astype(np.int64)


def synthetic(report: Report, count: int, targets: tuple[float, ...]) -> float:
    """Independent levels of two shapes; give the worst size over entropy."""
    rows, worst = [], 0.0
    rng = np.random.default_rng(7)
    draws: dict[str, Callable[[int], np.ndarray]] = {
        "Laplace": rng.laplace,  # type: ignore[dict-item]
        "Gauss": rng.normal,  # type: ignore[dict-item]
    }
    for shape, draw in draws.items():
        values = draw(size=count)  # type: ignore[call-arg]
        for target in targets:
            low, high = 1e-3, 1e3
            for _ in range(40):
                step = (low * high) ** 0.5
                _, counts = np.unique(quantize(values, step), return_counts=True)
                low, high = (step, high) if entropy_bits(counts) / count > target else (low, step)
            levels = quantize(values, step)
            _, counts = np.unique(levels, return_counts=True)
            ideal = entropy_bits(counts)
            size, coder = frame_size(levels)
            worst = max(worst, 8 * size / ideal)
            rows.append([shape, ideal / count, 8 * size / count, 8 * size / ideal, coder])
    head = ["levels", "entropy, bits", "coded, bits", "coded / entropy", "coder"]
    report.table(f"Synthetic levels, {count:,} of them", head, rows)
    report.data["synthetic"] = [dict(zip(head, row, strict=True)) for row in rows]
    return worst


def levels_of(data: bytes) -> np.ndarray:
    """All levels of a frame."""
    frame = parse_frame(data)
    out = np.zeros(frame.count, np.int64)
    for span in Levels(frame).spans(0, frame.count):
        part = out[span.start : span.start + span.levels.size]
        part[:] = span.levels
        part[span.places] = span.values
    return out


def real(report: Report, elements: int, errors: tuple[float, ...]) -> float:
    """Deltas of GPT weights at several errors, five saves into a track; give the worst size over entropy."""
    saves = gpt()
    rows, worst = [], 0.0
    for error in errors:
        policy = Policy(error=error)
        track = warmed([block(saves, later, elements).state for later in range(5)], policy)
        made = draft(track, block(saves, 5, elements).state, policy)
        parts = run_jobs(made)
        size = sum(map(len, parts))
        found = [np.unique(levels_of(part), return_counts=True)[1] for part in parts]
        ideal = sum(map(entropy_bits, found)) / 8
        worst = max(worst, size / ideal)
        coders = ", ".join(sorted({coder_of(part) for part in parts}))
        estimate, _ = made.tracking()
        count = block(saves, 5, elements).raw.size
        rows.append([error, estimate, 8 * ideal / count, 8 * size / count, size / ideal, coders])
    head = ["error asked for", "e", "entropy, bits", "coded, bits", "coded / entropy", "coder"]
    report.table(f"Deltas of {elements:,} GPT weights", head, rows)
    report.data["real"] = [dict(zip(head, row, strict=True)) for row in rows]
    return worst


def sparse(report: Report, count: int) -> None:
    """Levels of which one in a thousand is not zero."""
    rng = np.random.default_rng(8)
    levels = np.where(rng.random(count) < 0.001, rng.choice([-1, 1], count), 0)
    size, coder = frame_size(levels)
    bits = 8 * size / count
    report.say(f"99.9 % zeros: {bits:.4f} bits per weight ({coder})")
    report.bar("99.9 % zeros, bits per weight", bits, "<= 0.02", bits <= 0.02)


def huffman_bits(counts: np.ndarray) -> int:
    """Bits that the best symbol-wise prefix code takes: the sum of the weights of all merges."""
    heap = [int(c) for c in counts if c]
    if len(heap) == 1:
        return heap[0]
    heapq.heapify(heap)
    bits = 0
    while len(heap) > 1:
        merged = heapq.heappop(heap) + heapq.heappop(heap)
        bits += merged
        heapq.heappush(heap, merged)
    return bits


def faithful(report: Report, name: str, saves: int) -> None:
    """The paper's scheme in a closed loop, and policies of the store's track beside it."""
    states = list(trace(name, every=20, count=101)[:saves])
    states = [{p: a for p, a in s.items() if p.startswith("model/") and a.ndim >= 2} for s in states]
    rows = []
    for bits in (2, 3):
        for whole in (False, True):
            size, ideal, error = closed_loop(states, bits, whole)
            count = sum(a.size for a in states[0].values()) * (saves - 1)
            label = f"exponent, {bits} bits, {'one frame' if whole else 'frame per tensor'}"
            rows.append([label, size / ideal, 4 * count / size, error])
            if whole == (name == "lenet"):
                what = f"faithful {bits} bits on {name}, over ideal Huffman"
                report.bar(what, size / ideal, "<= 1.03", size / ideal <= 1.03)
    for preset in ("high", "balanced", "small"):
        ratio, error = tracked(states, PRESETS[preset])
        rows.append([f"lcstore {preset}", "", ratio, error])
    head = ["", "size / ideal Huffman", "ratio to float32", "e"]
    report.table(f"{name}: matrices, mean of {saves - 1} deltas in a closed loop", head, rows)
    report.data[name] = [dict(zip(head, row, strict=True)) for row in rows]


def closed_loop(states: list[dict[str, np.ndarray]], bits: int, whole: bool) -> tuple[int, float, float]:
    """Bytes, ideal bytes and mean tracking error of the paper's scheme."""
    codec = LCCodec("exponent", bits=bits, entropy="symbol")
    series = [[a.reshape(-1) for a in state.values()] for state in states]
    if whole:
        series = [[np.concatenate(parts)] for parts in series]
    track = [a.copy() for a in series[0]]
    size, ideal, errors = 0, 0.0, []
    for before, now in pairwise(series):
        missed = moved = 0.0
        for at, state in enumerate(now):
            data = codec.encode(state - track[at])
            size += len(data)
            ideal += huffman_bits(np.unique(levels_of(data), return_counts=True)[1]) / 8
            track[at] += codec.decode(data)
            missed += float(np.sum((state - track[at]) ** 2, dtype=np.float64))
            moved += float(np.sum((state - before[at]) ** 2, dtype=np.float64))
        errors.append((missed / moved) ** 0.5)
    return size, ideal, float(np.mean(errors))


def tracked(states: list[dict[str, np.ndarray]], policy: Policy) -> tuple[float, float]:
    """Ratio and mean tracking error of a policy on the same states, frames alone."""
    track = Track()
    size, count, errors = 0, 0, []
    for index, state in enumerate(states):
        made = draft(track, {"model": {p.removeprefix("model/"): a for p, a in state.items()}}, policy)
        parts = run_jobs(made)
        made.commit()
        if index:
            size += sum(map(len, parts))
            count += sum(a.size for a in state.values())
            errors.append(tracking_error(track, state, states[index - 1]))
    return 4 * count / size, float(np.mean(errors))


if __name__ == "__main__":
    main()
