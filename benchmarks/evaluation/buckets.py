"""(c) Which buckets matter: a later state rebuilt from an earlier one and their delta, less one exponent."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.evaluation.cells import Cells
from benchmarks.evaluation.chains import WORKLOADS, Workload, distance, matrices
from benchmarks.evaluation.pages import Page
from benchmarks.workloads import start_run

RANKS = 8


def run(cells: Cells, page: Page, only: list[str]) -> None:
    """Everything of this part."""
    page.head(
        "(c) Which buckets matter",
        "From the state of one save, the state some saves later is rebuilt by adding their true "
        "delta less the elements of one exponent (both "
        "signs; ranked in each tensor from its largest exponent down).",
    )
    head = ["workload", "saves apart", "rank removed", "elements, %", "error, intervals", "loss - exact"]
    rows = []
    for key in [k for k in ("lenet", "mf") if not only or k in only]:
        for apart in (1, 5):
            found = cells.get(f"buckets-{key}-{apart}", partial(remove, cells, WORKLOADS[key], apart))
            rows += [
                [WORKLOADS[key].title, apart, r["rank"], 100 * r["share"], r["error"], r["gap"]]
                for r in found
            ]
    text = (
        "Three or four exponents hold nearly all of the error, as the paper found; but they need not be the "
        "largest ones: where a few elements are far out, the top ranks hold next to nothing, and "
        "promotion by "
        "exponent spends its buckets there."
    )
    page.table("One exponent removed", text, head, rows)


def remove(cells: Cells, workload: Workload, apart: int) -> list[dict[str, Any]]:
    """Error and loss without each of the top exponents."""
    saves = workload.trace(cells.quick)
    at = len(saves) - 1 - apart
    early, late = matrices(saves[at]), matrices(saves[at + apart])
    trainer = start_run(workload.name)
    full = {
        p.removeprefix("model/"): np.asarray(a)
        for p, a in saves[at + apart].items()
        if p.startswith("model/")
    }
    moved = distance(late, matrices(saves[at + apart - 1]))
    exact = _loss(trainer, full, saves.iterations[at + apart])
    out = []
    for rank in range(RANKS):
        rebuilt, gone = {}, 0
        for path, array in late.items():
            delta = array - early[path]
            exponents = np.frexp(delta)[1]
            away = (exponents == exponents[delta != 0].max(initial=-999) - rank) & (delta != 0)
            gone += int(away.sum())
            rebuilt[path] = np.where(away, early[path], array)
        model = {**full, **{p.removeprefix("model/"): a for p, a in rebuilt.items()}}
        gap = _loss(trainer, model, saves.iterations[at + apart]) - exact
        size = sum(array.size for array in late.values())
        out.append(
            {"rank": rank + 1, "share": gone / size, "error": distance(late, rebuilt) / moved, "gap": gap}
        )
    return out


def _loss(trainer: Any, model: dict[str, np.ndarray], at: int) -> float:
    trainer.load({"model": model}, at)
    return float(trainer.loss())
