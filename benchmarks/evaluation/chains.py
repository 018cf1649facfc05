"""A peer along the saves of a trace, and the setting at which it gives a wanted error."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.evaluation.cells import Cells
from benchmarks.peers import Tensors, make
from benchmarks.peers.ours import LCStore
from benchmarks.workloads import EVERY, START, available, trace
from benchmarks.workloads_cache import Trace

#: Peers that are slow in Python, and how many saves of a large model they get.
SLOW = ("excp", "inshrinkerator", "qd8", "qd10", "scar5", "scar10", "topn5", "topn10", "pcodec", "xor-pcodec")
LARGE, FEW = 2_000_000, 9
#: Deltas at the beginning that do not count: the tracks are still on their way to a steady state.
WARM = 4


@dataclass(frozen=True)
class Workload:
    """Which saves of which training: `saves` of them, `every` iterations apart."""

    key: str
    title: str
    name: str
    saves: int
    quick: int
    every: int

    def count(self, quick: bool) -> int:
        return self.quick if quick else self.saves

    def trace(self, quick: bool, seed: int = 0) -> Trace:
        moments = 12 if self.name == "gpt" else 0
        return trace(
            self.name, self.every, self.count(quick), seed=seed, moments=min(moments, self.count(quick))
        )


def _workload(name: str, title: str, saves: int, quick: int, every: int | None = None) -> Workload:
    key = name if every is None else f"{name}-every-{every}"
    return Workload(key, title, name, saves, quick, every or EVERY[name])


WORKLOADS = {
    w.key: w
    for w in (
        _workload("logreg", "logistic regression, SGD", 61, 16),
        _workload("lenet", "LeNet-5, SGD", 61, 16),
        _workload("cnn", "small AlexNet with dropout, SGD", 31, 9),
        _workload("mf", "matrix factorisation, SGD", 41, 16),
        _workload("dlrm", "DLRM, SGD", 31, 12),
        _workload("gpt", "GPT, AdamW", 25, 8),
        _workload("dlrm", "DLRM, every update (3 % of rows touched)", 25, 12, 1),
        _workload("mf", "matrix factorisation, every update", 25, 12, 1),
    )
}
MAIN = ("logreg", "lenet", "cnn", "mf", "dlrm", "gpt")
assert set(START) == set(MAIN)


def at_hand(workload: Workload, quick: bool) -> bool:
    """Say whether its trace is there, or can be made in the time that the mode has."""
    return not quick or workload.name not in ("gpt", "cnn") or len(available(workload.name)) >= workload.quick


def matrices(tensors: Tensors) -> Tensors:
    """Weights of two dimensions and more, which are compared; the rest is below 1 % of the elements."""
    return {p: np.asarray(a) for p, a in tensors.items() if p.startswith("model/") and a.ndim >= 2}


def distance(a: Tensors, b: Tensors) -> float:
    """Euclidean distance of two states."""
    total = 0.0
    for path in a:
        apart = (a[path] - b[path]).reshape(-1)
        total += float(np.einsum("i,i->", apart, apart, dtype=np.float64, casting="safe"))
    return math.sqrt(total)


def follow(workload: Workload, quick: bool, peer_name: str, setting: float | None = None) -> dict[str, Any]:
    """Save every state of a trace with a peer; give the figures of its deltas."""
    peer = make(peer_name, setting)
    saves = workload.trace(quick)
    out: dict[str, Any] = {"bytes": [], "beside": [], "errors": [], "seconds": []}
    before: Tensors | None = None
    elements = sum(array.size for array in matrices(saves[0]).values())
    count = min(len(saves), FEW) if peer_name in SLOW and elements > LARGE else len(saves)
    for index in range(count):
        now = matrices(saves[index])
        began = time.perf_counter()
        written = peer.save(now)
        took = time.perf_counter() - began
        if before is not None:
            frames, beside = (peer.frames, peer.beside) if isinstance(peer, LCStore) else (written, 0)
            out["bytes"].append(frames)
            out["beside"].append(beside)
            out["errors"].append(distance(now, peer.view()) / distance(now, before))
            out["seconds"].append(took)
        before = now
    back, view = peer.restore(), peer.view()
    assert all(np.array_equal(back[path], view[path]) for path in view), (
        f"{peer_name} restores something else"
    )
    warm = min(WARM, len(out["bytes"]) // 2)
    out["elements"] = elements
    out["mean_bytes"] = float(np.mean(out["bytes"][warm:]))
    out["mean_beside"] = float(np.mean(out["beside"][warm:]))
    out["error"] = float(np.mean(out["errors"][warm:]))
    out["last_error"] = out["errors"][-1]
    out["save_seconds"] = float(np.median(out["seconds"][warm:]))
    out["setting"] = setting
    return out


def chain(cells: Cells, workload: Workload, peer: str, setting: float | None = None) -> dict[str, Any] | None:
    """The cell of `follow`."""
    label = peer if setting is None else f"{peer}@{setting:.4g}"
    key = f"chain-{workload.key}-{label}"
    found: dict[str, Any] | None = cells.get(key, lambda: follow(workload, cells.quick, peer, setting))
    return found


def matched(
    cells: Cells, workload: Workload, peer: str, error: float, rounds: int = 7
) -> dict[str, Any] | None:
    """The chain of a tunable peer that takes the fewest bytes at an error of no more than `error` (2 % over,
    at most).

    A search by halves in the logarithm of the setting. Steps are powers of two for some peers, so the error
    may jump: what is found lies at or below the wanted error.
    """
    low, high = (0.01, 8.0) if peer == "lcstore" else (1e-3, 16.0)
    best: dict[str, Any] | None = None
    for _ in range(rounds):
        setting = float(f"{math.sqrt(low * high):.4g}")
        found = chain(cells, workload, peer, setting)
        if found is None:
            return None
        if found["error"] <= 1.02 * error:
            low = setting
            if best is None or found["mean_bytes"] < best["mean_bytes"]:
                best = found
        else:
            high = setting
    return best
