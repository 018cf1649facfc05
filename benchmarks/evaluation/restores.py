"""(f) Final quality of runs that went on from a lossy restore once, three times, ten times."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.evaluation.cells import Cells
from benchmarks.evaluation.chains import WORKLOADS, Workload
from benchmarks.evaluation.names import NAMES
from benchmarks.evaluation.pages import Page
from benchmarks.evaluation.recovery import trainer
from benchmarks.evaluation.schemes import RESTORED, Keeper
from benchmarks.workloads import trace

#: Intervals trained after the first save, and iterations between saves.
HORIZON = 30
EVERY = {"logreg": 10, "lenet": 20, "cnn": 10, "mf": 50, "dlrm": 20}
TIMES = (1, 3, 10)


def run(cells: Cells, page: Page, only: list[str]) -> None:
    """Everything of this part."""
    page.head(
        "(f) Quality after lossy restores",
        f"A run of {HORIZON} intervals is interrupted 1, 3 or 10 times, evenly, and goes on from what "
        f"the scheme restores at that save (no training is lost, so "
        "that the loss of information is all there is to see). The final loss is the mean held-out "
        "loss of the last five saves.",
    )
    head = [
        "workload",
        "scheme",
        *(f"{n} restore{'s' if n > 1 else ''}" for n in TIMES),
        "spread of exact runs",
    ]
    rows = []
    for key in [k for k in EVERY if not only or k in only]:
        if cells.quick and key in ("cnn", "dlrm"):
            continue
        seeds, times = (1, TIMES[:2]) if cells.quick else (3, TIMES)
        workload = WORKLOADS[key]
        exact = [
            cells.get(f"restores-{key}-exact-0-{s}", partial(final, workload, "exact", 0, s))
            for s in range(seeds)
        ]
        spread = float(np.std(exact)) if seeds > 1 else float("nan")
        rows.append(
            [
                workload.title,
                "exact",
                *[float(np.mean(exact))] * len(times),
                *[float("nan")] * (len(TIMES) - len(times)),
                spread,
            ]
        )
        for scheme in RESTORED:
            cellsof = []
            for n in times:
                found = [
                    cells.get(
                        f"restores-{key}-{scheme}-{n}-{s}",
                        partial(final, workload, scheme, n, s),
                    )
                    for s in range(seeds)
                ]
                gaps = np.array(found) - np.array(exact)
                cellsof.append(f"{np.mean(gaps):+.2g} ({', '.join(f'{g:+.1g}' for g in gaps)})")
            cellsof += ["-"] * (len(TIMES) - len(times))
            rows.append([workload.title, NAMES[scheme], *cellsof, ""])
    text = (
        "Final loss of the exact runs, and for each scheme the mean difference to the exact run of the same "
        "seed (each seed in brackets). Where a loss still falls, a restore costs the progress that the "
        "scheme lags behind by, each time anew; a difference of one sign in all seeds is a cost, however "
        "small beside the spread over seeds. Compare schemes of like bytes: LC-3 with high, LC-2 with small."
    )
    page.table("Final held-out loss", text, head, rows)


def final(workload: Workload, scheme: str, times: int, seed: int) -> Any:
    """Final loss of a run with so many restores."""
    every = EVERY[workload.name]
    run = trainer(workload.name, seed)
    start = trace(workload.name, workload.every, 1, seed=seed, moments=0)
    first = start.iterations[0]
    run.load(start.state(0), first)
    keeper = Keeper(scheme)
    stops = {round((i + 1) * HORIZON / (times + 1)) for i in range(times)}
    losses = []
    keeper.save(run.state())
    for number in range(1, HORIZON + 1):
        at = first + number * every
        run.advance(at)
        keeper.save(run.state())
        if number in stops:
            run.load(keeper.restore(), at)
        if number > HORIZON - 5:
            losses.append(run.loss())
    return float(np.mean(losses))
