"""(a) What each part of LC-Checkpoint saves: exponent buckets (E), promotion (P), Huffman (H)."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np

from benchmarks.evaluation.cells import Cells
from benchmarks.evaluation.chains import MAIN, WORKLOADS, Workload, at_hand, chain, matched, matrices
from benchmarks.evaluation.pages import Page
from benchmarks.peers.lc import LC


def run(cells: Cells, page: Page, only: list[str]) -> None:
    """Everything of this part."""
    page.head(
        "(a) Where the bytes go",
        "E replaces each element by the number of its bucket (sign and exponent), at the fewest "
        "whole bits that number all buckets; P keeps the "
        "buckets of the largest exponents; H codes their numbers. Means over the deltas of a closed "
        "loop, in per cent of the float32 delta that is gone.",
    )
    head = [
        "workload",
        "bits",
        "E",
        "+ P",
        "+ H",
        "ratio, E",
        "ratio, E + P",
        "ratio, E + P + H",
        "lcstore at that error, ratio",
    ]
    rows = []
    for key in [k for k in MAIN if not only or k in only]:
        workload = WORKLOADS[key]
        if not at_hand(workload, cells.quick):
            continue
        for bits in (2, 3):
            found = cells.get(f"breakdown-{key}-{bits}", partial(breakdown, cells, workload, bits))
            ratios = [found["raw"] / found[stage] for stage in ("E", "P", "H")]
            gone = [100 * (1 - 1 / ratio) for ratio in ratios]
            ours = _at_error(cells, workload, f"lc{bits}", found["raw"])
            rows.append([workload.title, bits, gone[0], gone[1] - gone[0], gone[2] - gone[1], *ratios, ours])
    text = (
        "Buckets alone remove most of the bytes, as in the paper (85 %, then 9 and 6 points, then "
        "2); Huffman of single symbols stops at one bit "
        "a weight, a ratio of 32, where lcstore's codes for runs and groups of levels go on."
    )
    page.table("E, P, H", text, head, rows)


def breakdown(cells: Cells, workload: Workload, bits: int) -> dict[str, float]:
    """Mean bytes after each stage, on the deltas that LC's own closed loop sees."""
    saves = workload.trace(cells.quick)
    peer = LC(bits)
    peer.save(matrices(saves[0]))
    totals = {"raw": 0.0, "E": 0.0, "P": 0.0, "H": 0.0}
    count = min(len(saves), 12)
    for _, index in pairwise(range(count)):
        now = matrices(saves[index])
        for path, array in now.items():
            delta = array - peer.view()[path]
            _, exponents = np.frexp(delta[delta != 0])
            buckets = len(np.unique(exponents * 2 + (delta[delta != 0] > 0)))
            totals["raw"] += delta.nbytes
            totals["E"] += delta.size * math.ceil(math.log2(buckets + 1)) / 8 + 4 * buckets
            totals["P"] += delta.size * bits / 8 + 4 * min(buckets, 2**bits - 1)
        totals["H"] += peer.save(now)
    return {stage: total / (count - 1) for stage, total in totals.items()}


def _at_error(cells: Cells, workload: Workload, peer: str, raw: float) -> float:
    reference = chain(cells, workload, peer)
    assert reference is not None
    ours = matched(cells, workload, "lcstore", reference["error"], 5 if cells.quick else 7)
    return raw / ours["mean_bytes"] if ours else math.nan
