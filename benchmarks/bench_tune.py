"""What a search of settings finds on real training, beside the preset at the same tolerance of the loss.

    python -m benchmarks.bench_tune [--quick] [--rework]

The states are saves of the GPT; the loss is the held-out loss of its training, on the same batches each
time. What is found on one stretch of the run is measured again on a later one, which the search has not seen,
by saving it through a store and adding and taking away the error of the last state. `--rework` trains on
from what each policy restores (weights alone: the moments are exact) and compares the loss with that of the
exact run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.inputs import gpt
from benchmarks.measure import Report, arguments
from benchmarks.workloads import start_run
from benchmarks.workloads_cache import Tensors, Trace
from lcstore.format.policyfile import PolicyLike, policy_from
from lcstore.state.tree import flatten
from lcstore.tune import Tuned, tune
from lcstore.tune.loops import Loop, part_of, run_loop
from lcstore.tune.probe import Probe
from lcstore.tune.result import Cost
from lcstore.tune.search import tunable

#: First save of the stretch that is tuned on, of the later one, and how many saves each has.
FIRST, LATER, COUNT = 40, 80, 12
EVALUATIONS = 40
#: Steps trained from a restored state, and between two looks at the loss.
TRAINED, LOOKS = 40, 10


class Stretch:
    """Saves of a trace as states of weights, read anew each time."""

    def __init__(self, saves: Trace, first: int, count: int) -> None:
        self.saves, self.places = saves, range(first, first + count)

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Any:
        for place in self.places:
            tensors = self.saves[place]
            yield {
                "model": {p.removeprefix("model/"): a for p, a in tensors.items() if p.startswith("model/")}
            }


def main() -> None:
    asked = arguments(__doc__ or "", rework="train on from what is restored")
    report = Report("tune", asked.quick)
    saves = gpt()
    run = start_run("gpt")
    loss = held_out(run)
    count, evaluations = (6, 20) if asked.quick else (COUNT, EVALUATIONS)
    for like in ("balanced",) if asked.quick else ("balanced", "high"):
        began = time.perf_counter()
        found = tune(Stretch(saves, FIRST, count), loss, like=like, evaluations=evaluations)
        show(report, like, found, time.perf_counter() - began)
        later(report, like, found, Stretch(saves, LATER, count), loss)
        if like == "balanced":
            report.bar(
                "times fewer bytes than balanced, at its increase", found.gain, ">= 1.3", found.gain >= 1.3
            )
            used = found.evaluations
            report.bar("evaluations of the loss", used, f"<= {EVALUATIONS}", used <= EVALUATIONS)
            kept = found.tuned.cost.charged / found.tolerance
            report.bar("share of the tolerance used", kept, "<= 1", kept <= 1)
            if asked.rework:
                rework(report, found, saves)
    report.write()


def held_out(run: Any) -> Callable[[Any], float]:
    """The held-out loss of a state."""
    import torch

    def loss(state: Any) -> float:
        run.model.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in state["model"].items()})
        return float(run.loss())

    return loss


def show(report: Report, like: str, found: Tuned, seconds: float) -> None:
    """The figures of one search."""
    head = [
        "policy",
        "bytes per save",
        "expected increase",
        "even",
        "odd",
        "loss restored - exact",
        "error",
        "weighted",
    ]
    rows = [
        [
            name,
            m.bytes_per_save,
            m.cost.charged,
            m.cost.even,
            m.cost.odd,
            m.cost.increase,
            m.error,
            m.weighted_error,
        ]
        for name, m in ((like, found.preset), ("tuned", found.tuned))
    ]
    report.table(f"GPT, weights, {found.states} saves: like {like}", head, rows)
    groups = [
        [
            one.globs[0] + (" ..." if len(one.globs) > 1 else ""),
            one.elements,
            one.error,
            one.alone.even,
            one.alone.odd,
        ]
        for one in found.settings
    ]
    report.table(
        f"Groups (even and odd: of the loss, at error {found.settings[0].probed:g} in this group alone)",
        ["group", "elements", "error given", "even", "odd"],
        groups,
    )
    report.say(
        f"like {like}: {found.gain:.2f} times fewer bytes, {found.evaluations} evaluations of the loss "
        f"(exact: {found.loss:.4f}), {seconds:.0f} s"
    )
    report.data[like] = found.to_json() | {"seconds": seconds}


def later(report: Report, like: str, found: Tuned, states: Stretch, loss: Callable[[Any], float]) -> None:
    """The same two policies on a stretch that the search has not seen."""
    rows = []
    for name, policy in ((like, like), ("tuned", found.policy)):
        loop, cost = measured(states, policy, loss)
        rows.append([name, loop.nbytes, cost.charged, cost.even, cost.odd, cost.increase, loop.error])
    head = ["policy", "bytes per save", "expected increase", "even", "odd", "loss restored - exact", "error"]
    report.table(f"The same on saves {states.places[0]} to {states.places[-1]}, not seen before", head, rows)
    report.say(
        f"like {like}, later: {rows[0][1] / rows[1][1]:.2f} times fewer bytes, "
        f"{rows[1][2] / rows[0][2]:.2f} of the increase"
    )
    report.data[like]["later"] = [dict(zip(head, row, strict=True)) for row in rows]


def measured(states: Stretch, policy: PolicyLike, loss: Callable[[Any], float]) -> tuple[Loop, Cost]:
    """Bytes and cost of a policy on a stretch."""
    last = list(states)[-1]
    paths = tunable(flatten(last), policy_from("balanced"))
    loop = run_loop(policy_from(policy), states, len(states), part_of(paths))
    probe = Probe(loss, last, 3)
    restored = loop.restored()
    return loop, probe.cost(probe.errors_of({path: restored[path] for path in paths}))


def rework(report: Report, found: Tuned, saves: Trace) -> None:
    """Train on from what each policy restores at the last save that holds moments."""
    states = Stretch(saves, 0, saves.moments)
    restored = {}
    for name, policy in (("balanced", "balanced"), ("tuned", found.policy), ("small", "small")):
        model = saves.state(saves.moments - 1)["model"]
        paths = tunable(flatten({"model": model}), policy_from("balanced"))
        held = run_loop(policy_from(policy), states, len(states), part_of(paths)).restored()
        restored[name] = model | {str(path[-1]): array for path, array in held.items()}
    trained_on(report, saves, restored)


def trained_on(report: Report, saves: Trace, restored: dict[str, Tensors]) -> None:
    """Losses of runs that go on from restored weights and exact moments, minus those of the exact run."""
    last = saves.moments - 1
    at, run = saves.iterations[last], start_run("gpt")
    losses: dict[str, list[float]] = {}
    for name, model in {"exact": None, **restored}.items():
        state = saves.state(last)
        run.load(state if model is None else state | {"model": model}, at)
        losses[name] = [run.loss()]
        for to in range(at + LOOKS, at + TRAINED + 1, LOOKS):
            run.advance(to)
            losses[name].append(run.loss())
    head = ["restored by", *(f"after {steps} steps" for steps in range(0, TRAINED + 1, LOOKS))]
    rows = [[name, *np.subtract(losses[name], losses["exact"])] for name in restored]
    report.table("Held-out loss minus that of the exact run", head, rows)
    report.data["rework"] = losses


if __name__ == "__main__":
    main()
