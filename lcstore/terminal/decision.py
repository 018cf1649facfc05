"""What is let go of, and what stays, as people read it; for `retain`, `retire` and `maintain`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from lcstore.terminal.foreseen import foreseen
from lcstore.terminal.table import Table
from lcstore.units import counted

if TYPE_CHECKING:
    from lcstore.maintain.retire import RetireReport
    from lcstore.maintain.sizing import Forecast
    from lcstore.store.store import Store

#: Of more states than these, neighbours of which the same is said are one row.
_MOST_ROWS = 60
#: Of which a line says that a rule takes their states for those of others.
_MOST_RUNS = 3
_STATE = "state"
_EXACT = "exact"


def decided(
    url: str,
    report: RetireReport,
    command: str,
    forecast: Forecast | None,
    *,
    of: str = "",
    runs: Mapping[str, int] | None = None,
) -> Iterator[Table | str]:
    """Yield all of it, `of` which states it is, and what to type next: `command` does it."""
    yield from decision(report, runs)
    yield from foreseen(forecast)
    yield from (f"Note: {note}" for note in report.notes)
    yield f"{counts(report, of)}."
    if report.dry_run and report.retired:
        yield f"Nothing was changed. To do it: {command} --apply"
    elif report.retired:
        whole = [one for one in report.retired if one.what == _STATE]
        hidden = "What is retired is hidden now" if whole else "What is let go of is not read any more"
        yield f"{hidden}. To delete it: lcstore collect {url} --apply"
        if len(whole) > 1:
            yield f"To bring all of them back before that, until a rule decides anew: lcstore unretire {url}"
        if whole:
            # By its id: another run may have a state of that step, which is not hidden.
            back = "To bring one back before that, for as long as it stays pinned"
            yield f"{back}, such as step {whole[-1].step}: lcstore pin {url}@{whole[-1].node}"
        if len(whole) < len(report.retired):
            yield "Pools that are stripped, and exact values that are let go of, do not come back."


def counts(report: RetireReport, of: str = "") -> str:
    """Return how many states stay and go, or would, as text."""
    whole = report.states_let_go
    exact = sum(one.what == _EXACT for one in report.retired)
    pools = len(report.retired) - whole - exact
    would, go = ("would be ", "would be let go") if report.dry_run else ("", "let go")
    parts = [f"{counted(len(report.kept), 'state')}{of} {would}kept", f"{whole} {would}retired"]
    parts += [f"{exact} exact values {go}"] * bool(exact) + [f"{pools} pools {would}stripped"] * bool(pools)
    return ", ".join(parts)


def runs_of(store: Store) -> dict[str, int]:
    """Return which run saved each state, by node, where that tells states of one step apart."""
    runs = {one.node: one.run for one in store.states(records=False)}
    return runs if len({*runs.values()}) > 1 else {}


def decision(report: RetireReport, runs: Mapping[str, int] | None = None) -> Iterator[Table | str]:
    """Yield every state by step: what keeps it, or why it goes; and its run, where `runs` tells.

    Of many states each run is told by itself, since neighbours of which the same is said are one row then.
    """
    runs = runs or {}
    let_go: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    rows: list[tuple[int, str, str, str]] = []
    # One rule lets go of all of them: it was just typed, and is not said in each line.
    alike = len({one.reason for one in report.retired if one.what == _STATE}) == 1
    for one in report.retired:
        if one.what == _STATE:
            rows.append((one.step, one.node, "goes", "" if alike else one.reason))
        else:
            what = "exact value" if one.what == _EXACT else one.what.removeprefix("pool.")
            let_go[one.node][one.reason].append(what)
    for step, (node, by) in zip(report.kept, report.kept_by.items(), strict=True):
        less = [f"without {', '.join(parts)} ({reason})" for reason, parts in let_go[node].items()]
        rows.append((step, node, "kept", "; ".join([*by, *less])))
    if not rows:
        yield f"{report.none_left or 'The store has no state yet'}."
        return
    shown = Table("step", "run", "", "why", "node", right=("step", "run"))
    if len(rows) > _MOST_ROWS:
        rows.sort(key=lambda row: (runs.get(row[1], 0), row))
    else:
        rows.sort()
    told = [(runs.get(node, ""), what, why, step, node) for step, node, what, why in rows]
    for (run, what, why), group in groupby(told, key=lambda row: row[:3]):
        states = [(str(step), node) for *_, step, node in group]
        if len(told) > _MOST_ROWS and len(states) > 1:
            span = f"{states[0][0]}-{states[-1][0]}"
            states = [(span, f"{len(states)} states: --json has each")]
        for step_text, node in states:
            shown.row(step_text, run, what, why, node)
    yield shown
    yield from _each_run(report, runs)


def _each_run(report: RetireReport, runs: Mapping[str, int]) -> Iterator[str]:
    """Yield a line where a rule lets go of states of a run for those of another at the same steps.

    Only of runs that another may go on from: not of those of a job that was started again, or rewound.
    """
    from lcstore.retention.candidates import LATEST_OF_ITS_RUN
    from lcstore.retention.choice import NOT_KEPT

    going = [one for one in report.retired if one.what == _STATE and one.node in runs]
    if any("EachRun(" in one.reason or not one.reason.startswith(NOT_KEPT) for one in going):
        return
    staying = defaultdict[int, set[int]](set)
    for step, node in zip(report.kept, report.kept_by, strict=True):
        staying[step].add(runs.get(node, 0))
    ends = {runs[node] for node, by in report.kept_by.items() if LATEST_OF_ITS_RUN in by and node in runs}
    lost = Counter(runs[one.node] for one in going if staying[one.step] - {runs[one.node]})
    count = Counter(runs[node] for node in (*report.kept_by, *(one.node for one in going)) if node in runs)
    texts = [
        f"of run {run}, {lost[run]} of {counted(count[run], 'state')}" for run in sorted(ends & lost.keys())
    ]
    if texts:
        listed = ", ".join(texts[:_MOST_RUNS]) + ", ..." * (len(texts) > _MOST_RUNS)
        yield (
            f"{listed.capitalize()} go at steps at which another run's stays: each-run: before a rule has it "
            "keep of each run by itself."
        )
