"""(d) Overhead: what a save costs the training, if it waits for it."""

from __future__ import annotations

import time
from functools import partial

from benchmarks.evaluation.cells import Cells
from benchmarks.evaluation.chains import MAIN, WORKLOADS, Workload, at_hand, chain
from benchmarks.evaluation.names import NAMES
from benchmarks.evaluation.pages import Page
from benchmarks.workloads import start_run


def run(cells: Cells, page: Page, only: list[str]) -> None:
    """Everything of this part."""
    page.head(
        "(d) Overhead",
        "Time of a save of the weights to memory, beside the time of the iterations between two saves; the "
        "training waits for the save. A peer's save includes decoding what it wrote, which closes its loop; "
        "lcstore's moves its track while it codes, and may use every core. Cells are timed one after "
        "another, on whatever "
        "else the machine does: take them as orders of magnitude; `bench_codec` and `bench_store` "
        "measure speed.",
    )
    head = ["workload", "iteration, ms", "interval, s", "scheme", "save, ms", "overhead, %"]
    rows = []
    for key in [k for k in MAIN if not only or k in only]:
        workload = WORKLOADS[key]
        if not at_hand(workload, cells.quick) or (cells.quick and key == "gpt"):
            continue
        step = cells.get(f"step-{key}", partial(iteration_seconds, workload))
        for scheme in ("lc2", "lc3", "balanced", "xor-zstd", "excp"):
            found = chain(cells, workload, scheme)
            if found is not None:
                interval = step * workload.every
                rows.append(
                    [
                        workload.title,
                        1e3 * step,
                        interval,
                        NAMES[scheme],
                        1e3 * found["save_seconds"],
                        100 * found["save_seconds"] / interval,
                    ]
                )
    text = (
        "A save by lcstore costs a few milliseconds however small the model (records, several "
        "objects): where an interval is a few milliseconds "
        "too, as for logistic regression, the bare codes of LC are cheaper."
    )
    page.table("Saves beside iterations", text, head, rows)


def iteration_seconds(workload: Workload) -> float:
    """Median time of an iteration."""
    run = start_run(workload.name)
    count = 10 if workload.name in ("gpt", "cnn") else 100
    run.advance(3)
    times = []
    for at in range(4, 4 + count):
        began = time.perf_counter()
        run.advance(at)
        times.append(time.perf_counter() - began)
    return sorted(times)[count // 2]
