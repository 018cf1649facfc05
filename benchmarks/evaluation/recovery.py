"""(b) Recovery: iterations of rework after a restore, beside SCAR and TOPN at 5 % and 10 % of the bytes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.evaluation.cells import Cells
from benchmarks.evaluation.chains import MAIN, WORKLOADS, Workload, at_hand
from benchmarks.evaluation.names import NAMES, PRESETS
from benchmarks.evaluation.pages import Page
from benchmarks.evaluation.schemes import Keeper
from benchmarks.workloads import start_run, trace
from benchmarks.workloads_cache import Trace

SCHEMES = (
    "exact",
    "stale",
    "lc2",
    "lc3",
    "high",
    "balanced",
    "small",
    "scar5",
    "scar10",
    "topn5",
    "topn10",
    "excp",
)
#: Iterations after which rework is given up, and saves before the failure.
CAP = {"logreg": 80, "lenet": 80, "cnn": 40, "mf": 250, "dlrm": 100, "gpt": 40}
SAVES = {"logreg": 20, "lenet": 20, "cnn": 12, "mf": 20, "dlrm": 12, "gpt": 11}
#: Losses are means over so many iterations.
WINDOW = 5


def run(cells: Cells, page: Page, only: list[str]) -> None:
    """Everything of this part."""
    page.head(
        "(b) Recovery",
        "A run fails right at a save, and goes on from what a scheme restores, with the batches that "
        "it would have seen. Rework is the number of "
        f"iterations until the mean held-out loss of {WINDOW} iterations is as low as it was at the "
        f"failure; half an interval is lost on top with any scheme.",
    )
    head = [
        "workload",
        "scheme",
        "bytes, % of the weights",
        "rework, iterations",
        "seeds",
        "rework, intervals",
        "loss at restore - exact",
    ]
    rows = []
    seen: list[tuple[str, str, float, float]] = []
    for key in [k for k in MAIN if not only or k in only]:
        workload = WORKLOADS[key]
        if not at_hand(workload, cells.quick) or (cells.quick and key in ("cnn", "gpt", "dlrm")):
            continue
        seeds = 1 if cells.quick else 3
        for scheme in SCHEMES:
            found = [
                cells.get(f"recovery-{key}-{scheme}-{s}", partial(recover, workload, scheme, s))
                for s in range(seeds)
            ]
            work = [one["rework"] for one in found]
            shown = f"{'> ' if max(work) >= CAP[key] else ''}{np.mean(work):.3g}"
            spread = ", ".join(str(w) for w in work)
            name = NAMES[scheme]
            share = 100 * float(np.mean([one["share"] for one in found]))
            gap = float(np.mean([one["losses"][0] - one["exact"] for one in found]))
            seen.append((key, scheme, share, float(np.mean(work))))
            rows.append(
                [workload.title, name, share, shown, spread, float(np.mean(work)) / workload.every, gap]
            )
    text = (
        "Rework of each scheme and its bytes per save (SCAR saves whole rows, TOPN single elements); "
        "`>` says that a seed gave up. Where the loss is noisy (DLRM), a few iterations say nothing. Bytes "
        "of lcstore are those of everything that a save writes; on the GPT they include the moments, which "
        "the other schemes keep exactly and do not count."
    )
    page.table("Rework", text, head, rows)
    for line in beaten(seen):
        page.say(line)


def beaten(seen: list[tuple[str, str, float, float]]) -> list[str]:
    """Say where another scheme takes fewer bytes and less rework than a preset of lcstore."""
    out = []
    for key, scheme, share, work in seen:
        if scheme not in PRESETS:
            continue
        better = [
            NAMES[other]
            for at, other, bytes_, rework in seen
            if at == key and other not in PRESETS and bytes_ <= share and rework < work
        ]
        if better:
            out.append(
                f"Loss: on {key}, {NAMES[scheme]} is behind {', '.join(better)} in bytes and in rework."
            )
    return out or ["No scheme takes fewer bytes and less rework than a preset of lcstore."]


def recover(workload: Workload, scheme: str, seed: int) -> dict[str, Any]:
    """Save along a run until it fails; restore; train on until the loss is back."""
    key = workload.name
    keeper = Keeper(scheme)
    saves = trace(key, workload.every, SAVES[key], seed=seed, moments=SAVES[key] if key == "gpt" else 0)
    for index in range(len(saves)):
        keeper.save(saves.state(index))
    fail = saves.iterations[-1]
    run = trainer(key, seed)
    target = _target(run, saves, seed)
    run.load(keeper.restore(), fail)
    losses: list[float] = [run.loss()]
    while len(losses) < CAP[key] + WINDOW:
        run.advance(run.iteration + 1)
        losses.append(run.loss())
        if len(losses) >= WINDOW and np.mean(losses[-WINDOW:]) <= target["mean"] + 1e-9:
            break
    rework = len(losses) - WINDOW
    return {
        "rework": min(rework, CAP[key]),
        "losses": losses[:WINDOW],
        "exact": target["first"],
        "share": keeper.share(),
    }


_trainers: dict[tuple[str, int], Any] = {}
_targets: dict[tuple[str, int], dict[str, float]] = {}


def trainer(name: str, seed: int) -> Any:
    """A run to load states into; made once."""
    if (name, seed) not in _trainers:
        _trainers[name, seed] = start_run(name, seed)
    return _trainers[name, seed]


def _target(run: Any, saves: Trace, seed: int) -> dict[str, float]:
    """The exact run's mean loss from the failure on; leaves the run anywhere."""
    key = (str(saves.parameters[:2]) + str(saves.iterations), seed)
    if key not in _targets:
        run.load(saves.state(-1), saves.iterations[-1])
        losses = [run.loss()]
        for _ in range(WINDOW - 1):
            run.advance(run.iteration + 1)
            losses.append(run.loss())
        _targets[key] = {"mean": float(np.mean(losses)), "first": losses[0]}
    return _targets[key]
