"""``lcstore retire``: let go of one state, or of a run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import Apply, AsJson, AtState, Moved, Options, Pairs, as_run, state_of
from lcstore.terminal.decision import decided, runs_of
from lcstore.terminal.foreseen import foresee, foreseen
from lcstore.terminal.table import Table

if TYPE_CHECKING:
    from lcstore.index.states import Listed
    from lcstore.maintain.retire import Retired
    from lcstore.maintain.sizing import Forecast


def retire(
    target: Annotated[
        str, typer.Argument(metavar="URL@STEP", help="The state; the store alone, with --run.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the record.")] = "",
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="All states of this run, by number or id.")
    ] = None,
    after: Annotated[
        int | None, typer.Option("--after", metavar="STEP", min=0, help="With --run: only those after STEP.")
    ] = None,
    run_is_dead: Annotated[
        bool, typer.Option("--run-is-dead", help="With --run: let go of it though it saved lately.")
    ] = False,
    apply: Apply = False,
    at: AtState = None,
    keep: Moved = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Let go of one state, or of a run. Only shows it, unless --apply is given.

    A retired state is hidden, and deleted by a later collect; until that collect has begun `lcstore unretire`
    brings the state back. The latest state of a run, and a pinned one, are refused. With --run all states of
    a run go (with --after, those after a step) but pinned ones, if it was silent for twice as long as its
    saves were apart (a minute at least).
    """
    if keep is not None:
        raise typer.BadParameter("retire lets go of one state; by a rule: lcstore retain URL --keep ...")
    url, state = state_of(target, at)
    if run is not None or run_is_dead or after is not None:
        if run is None or state is not None:
            raise typer.BadParameter("a run is named without a state: lcstore retire URL --run RUN")
        with answering(url, as_json, options, pairs) as answer:
            _retire_run(answer, as_run(run), reason, after=after, run_is_dead=run_is_dead, apply=apply)
        return
    if state is None:
        raise typer.BadParameter("name the state: URL@STEP; for a rule: lcstore retain URL --keep 'latest:3'")
    with answering(url, as_json, options, pairs) as answer:
        with answer.store(writable=apply) as store:
            others = [] if apply else store.states(records=False)
            gone = store.retire(state, reason, dry_run=not apply)
            forecast = None if apply else foresee(store, [gone])
        shown = _done(answer, gone) if apply else _would(answer, gone, reason, forecast, others)
        answer.give(gone, shown, url=answer.url, dry_run=not apply, forecast=forecast)


def _retire_run(
    answer: Answer, run: int | str, reason: str, *, after: int | None, run_is_dead: bool, apply: bool
) -> None:
    with answer.store(writable=apply) as store:
        runs = runs_of(store)
        report = store.retire_run(run, reason, after=after, run_is_dead=run_is_dead, dry_run=not apply)
        forecast = None if apply else foresee(store, report.retired)
    command = f"lcstore retire {answer.quoted} --run {run}" + f" --after {after}" * (after is not None)
    command += f" --reason {shlex.quote(reason)}" * bool(reason) + " --run-is-dead" * run_is_dead
    shown = decided(answer.quoted, report, command, forecast, of=" of the run", runs=runs)
    answer.give(report, shown, forecast=forecast)


def _done(answer: Answer, gone: Retired) -> Iterator[str]:
    yield f"Step {gone.step} is retired: hidden now, and deleted once it is collected."
    state = answer.at(gone.node)
    yield f"To bring it back before that, until it is let go of again: lcstore unretire {state} --apply"
    yield f"To bring it back for as long as it stays pinned: lcstore pin {state}"


def _would(
    answer: Answer, gone: Retired, reason: str, forecast: Forecast | None, states: Iterable[Listed]
) -> Iterator[Table | str]:
    why = f" --reason {shlex.quote(reason)}" if reason else ""
    same = [one for one in states if one.step == gone.step]
    of = "".join(f" of run {one.run}" for one in same if one.node == gone.node and len(same) > 1)
    yield f"Step {gone.step}{of} (node {gone.node}) would be hidden, and deleted once it is collected."
    for one in same:
        if one.node != gone.node:
            yield f"Run {one.run} saved step {one.step} too, and that state stays: {answer.at(one.node)}"
    yield from foreseen(forecast)
    yield f"Nothing was changed. To do it: lcstore retire {answer.at(gone.node)}{why} --apply"
