"""How often to save: what a save takes from a loop and from a disk by policy, and what follows from that.

    python -m benchmarks.bench_often [--quick] [--page]

A GPT of 3.2 million parameters is trained with AdamW on one core; whole states go to a local disk. The same
states are saved under each policy, and all that is written is counted; then most of them are let go of. After
that saves are timed, the policies by turns: what a loop waits for where they are made in the background, and
what they take of the cores. Rework after a restart is that of the evaluation.
`--page` puts tables and figure into docs/how-often.md.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

import lcstore
from benchmarks.evaluation.figures import pyplot
from benchmarks.measure import Report, arguments
from benchmarks.workloads_train import Run, gpt_run
from lcstore.graph.refs import ROOT

DOCS: Final = Path(__file__).parents[1] / "docs"
POLICIES: Final = ("lossless", "high", "balanced", "small")
#: Iterations between saves that are counted, and saves; the first few say little of those that follow.
EVERY: Final = 3
SETTLED: Final = 4
KEEP: Final = "latest:1 | every:30"  # steps are iterations: one save in ten
#: Mean time between failures of the whole run, in seconds.
FAILURES: Final = {"1 hour": 3600.0, "6 hours": 21600.0, "1 day": 86400.0, "1 week": 604800.0}
DAY: Final = 86400.0


@dataclass
class Measured:
    """What was measured of one policy.

    Attributes
    ----------
    waits, works
        Seconds that the loop waits for a save in the background, and seconds of one core that it takes.
    nbytes, first, kept
        Bytes of a save, of the first one, and of a state that is kept where one in ten is.
    resume
        Seconds of going on from the last state.
    rework
        What of an interval is trained anew after a restart, besides what was not saved: at the worst of the
        evaluation's workloads.
    """

    nbytes: float = 0.0
    first: float = 0.0
    kept: float = 0.0
    resume: float = 0.0
    waits: float = 0.0
    works: float = 0.0
    rework: float = 0.0

    @property
    def cost(self) -> float:
        """Seconds that a save takes from a loop, at most: where that has a use for all cores."""
        return self.waits + self.works

    def interval(self, failure: float) -> float:
        """Seconds between saves that lose least, as the manager has it."""
        return lcstore.FailureRate(failure / (1 + 2 * self.rework)).interval(self.cost)

    def lost(self, interval: float, failure: float) -> float:
        """Part of the time that goes to saves, and to what is trained anew."""
        return self.cost / interval + (0.5 + self.rework) * interval / failure


def main() -> None:
    asked = arguments(__doc__ or "", page="put the tables and the figure into docs/how-often.md")
    report = Report("often", asked.quick)
    began = time.perf_counter()
    run = gpt_run(batch=2, layers=4, width=256, heads=4)
    torch.set_num_threads(1)  # several of them wait for each other where others use the cores
    found = {policy: Measured(rework=worst_rework(policy)) for policy in POLICIES}
    folder = Path(tempfile.mkdtemp(prefix="lcstore-bench-"))
    try:
        sizes(run, found, folder, saves=12 if asked.quick else 33)
        times(run, found, folder, rounds=3 if asked.quick else 11)
    finally:
        shutil.rmtree(folder)
    tables = [costs(found), intervals(found)]
    for title, head, rows in tables:
        report.table(title, head, rows)
    report.data = {policy: vars(one) for policy, one in found.items()}
    report.say(f"measured in {time.perf_counter() - began:.0f} s")
    report.write()
    if asked.page:
        write_page(run, tables, found)


def live(run: Run) -> dict[str, object]:
    """The state as a loop gives it: nothing is copied."""
    return {"model": run.model, "optim": run.optimizer}


def worst_rework(policy: str) -> float:
    """The most rework of a policy in docs/evaluation/recovery.md, in intervals."""
    text = (DOCS / "evaluation/recovery.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| [^|]+ \| lcstore {policy} \|(?:[^|]*\|){{3}} ([\d.]+) \|", text, re.MULTILINE)
    return max(map(float, rows), default=0.0)


def sizes(run: Run, found: dict[str, Measured], folder: Path, saves: int) -> None:
    """Save the same states under each policy; let most of them go."""
    stores = {policy: lcstore.open(folder / policy, policy=policy, grace=0) for policy in found}
    stored: dict[str, list[int]] = {policy: [] for policy in found}
    run.advance(60)  # once it has warmed up
    for _ in range(saves):
        run.advance(run.iteration + EVERY)
        for policy, store in stores.items():
            stored[policy].append(store.save(run.iteration, live(run)).bytes_stored)
    for policy, store in stores.items():
        one = found[policy]
        one.first, one.nbytes = stored[policy][0], statistics.mean(stored[policy][SETTLED:])
        store.close()
        with lcstore.open(folder / policy) as again:
            began = time.perf_counter()
            again.resume()
            one.resume = time.perf_counter() - began
        with lcstore.open(folder / policy, "r+") as again:
            again.maintain(KEEP)
            for _ in range(3):  # condemned by one, deleted by the next
                again.collect()
        one.kept = kept_bytes(folder / policy, one.first)


def kept_bytes(folder: Path, first: float) -> float:
    """Bytes of a state in a store, without the first one, and what a restore of the last begins with."""
    left = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    with lcstore.open(folder, "r") as store:
        count, graph = len(store.steps()), store._index.refresh(full=True)
        anchors = sum(edge.nbytes for edge in graph.edges.values() if edge.base == ROOT)
    return max(0.0, left - first - anchors) / (count - 1)


def times(run: Run, found: dict[str, Measured], folder: Path, rounds: int) -> None:
    """Time saves in the background and before all eyes, the policies by turns."""
    stores = {policy: lcstore.open(folder / f"{policy}-timed", policy=policy) for policy in found}
    waited: dict[str, list[float]] = {policy: [] for policy in found}
    worked: dict[str, list[float]] = {policy: [] for policy in found}
    for number in range(rounds + 2):
        for policy, store in stores.items():
            run.advance(run.iteration + 1)
            began = time.perf_counter()
            future = store.save_async(run.iteration, live(run))
            waits = time.perf_counter() - began
            future.result()
            run.advance(run.iteration + 1)
            began = time.process_time()
            store.save(run.iteration, live(run))
            if number >= 2:  # whole states come first, and the buffers that states are copied to
                waited[policy].append(waits)
                worked[policy].append(time.process_time() - began)
    for policy, one in found.items():
        one.waits, one.works = statistics.median(waited[policy]), statistics.median(worked[policy])
        stores[policy].close()


Shown = tuple[str, list[str], list[list[str]]]


def costs(found: dict[str, Measured]) -> Shown:
    """What a save costs, and a restart."""
    head = ["policy", "the loop waits, s", "seconds of a core", "a save, MB", "the first save, MB"]
    head += ["a state where one in ten is kept, MB", "going on from it, s", "rework, intervals"]
    rows = []
    for policy, one in found.items():
        sizes_ = [one.nbytes / 1e6, one.first / 1e6, one.kept / 1e6]
        figures = [one.waits, one.works, *sizes_, one.resume, one.rework]
        places = (3, 3, 2, 1, 2, 2, 2)
        rows.append([f"`{policy}`", *(f"{value:.{n}f}" for value, n in zip(figures, places, strict=True))])
    return "What a save and a restart cost", head, rows


def intervals(found: dict[str, Measured]) -> Shown:
    """The interval by failure rate, and what it costs."""
    head = [
        "policy",
        "a failure each",
        "save each, s",
        "time lost, %",
        "GB a day",
        "GB a day, one in ten kept",
    ]
    rows = []
    for policy, one in found.items():
        for name, failure in FAILURES.items():
            interval = one.interval(failure)
            a_day = [DAY / interval * nbytes / 1e9 for nbytes in (one.nbytes, one.kept / 10)]
            figures = [f"{interval:.0f}", f"{100 * one.lost(interval, failure):.2f}"]
            rows.append([f"`{policy}`", name, *figures, *(f"{gigabytes:.2f}" for gigabytes in a_day)])
    return "The interval that loses least", head, rows


def write_page(run: Run, tables: Sequence[Shown], found: dict[str, Measured]) -> None:
    """Put what was measured between the marks of the page, and the figure beside it."""
    count = sum(parameter.numel() for parameter in run.model.parameters())
    what = f"A GPT of {count / 1e6:.1f} million parameters with AdamW, a state of {12 * count / 1e6:.0f} MB"
    machine = f"a virtual machine with {os.cpu_count()} cores ({platform.machine()}), which others used too"
    parts = [
        f"{what}, trained on one core of {machine},\nand saved to a local disk. "
        f"PyTorch {torch.__version__}. Everything that is written counts."
    ]
    for _, head, rows in tables:
        rule = "|".join(["---", *["---:"] * (len(head) - 1)])
        lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
        parts.append("\n".join([lines[0], f"|{rule}|", *lines[1:]]))
    figure(found, DOCS / "how-often.svg")
    page = DOCS / "how-often.md"
    text = page.read_text(encoding="utf-8")
    for number, part in enumerate(parts):
        begin, end = f"<!-- measured {number} -->", f"<!-- end {number} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{part}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text, encoding="utf-8")


def figure(found: dict[str, Measured], file: Path, failure: str = "6 hours") -> None:
    """Time lost against the interval, and against bytes a day; dots where least is lost."""
    plt = pyplot()
    if plt is None:
        return
    drawn, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True)
    for number, (policy, one) in enumerate(found.items()):
        best = one.interval(FAILURES[failure])
        for mark, spaced in (("-", [best * 2 ** (i / 8) for i in range(-32, 33)]), ("o", [best])):
            lost = [100 * one.lost(interval, FAILURES[failure]) for interval in spaced]
            a_day = [DAY / interval * one.nbytes / 1e9 for interval in spaced]
            label = policy if mark == "-" else None
            left.plot(spaced, lost, mark, color=f"C{number}", label=label)
            right.plot(a_day, lost, mark, color=f"C{number}")
    left.set(xscale="log", yscale="log", xlabel="seconds between saves", ylabel="time lost, %")
    right.set(xscale="log", xlabel="GB a day")
    for axis in (left, right):
        axis.grid(visible=True, which="major", alpha=0.3)
    left.legend(fontsize=8, frameon=False)
    drawn.suptitle(f"A failure each {failure}", fontsize=10)
    drawn.tight_layout()
    drawn.savefig(file, metadata={"Date": None})
    plt.close(drawn)


if __name__ == "__main__":
    main()
