"""``lcstore unretire``: bring back what was let go of, as by a wrong rule."""

from __future__ import annotations

from typing import Annotated

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import (
    Apply,
    AsJson,
    AtState,
    LeaveOut,
    Options,
    Pairs,
    state_of,
    typed_again,
    understood,
)
from lcstore.terminal.broughtback import brought_back
from lcstore.terminal.stores import below_of
from lcstore.terminal.tended import each_below, tell_unretired
from lcstore.units import parse_seconds


def unretire(
    target: Annotated[
        str, typer.Argument(metavar="URL[@STEP]", help="A store, one retired state of it, or a folder.")
    ],
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only what was let go of within this time: 12h."),
    ] = None,
    apply: Apply = False,
    leave_out: LeaveOut = None,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Bring back what was let go of. Only shows it, unless --apply is given.

    Of a URL all that a collect has not begun to take comes back, but for what was damaged; URL@STEP is one
    state. A URL that is no store stands for all stores below it, eight folders deep.

    The next retention rule decides about these states anew: lcstore pin holds one whatever a rule says. With
    --since the exit status is 1 where a part of what went since then comes too late.
    """
    url, state = state_of(target, at)
    if state is not None and (since is not None or leave_out):
        wrong = "--since" if since is not None else "--leave-out"
        raise typer.BadParameter(f"{wrong} goes with a URL alone: a state that is named comes back anyway")
    seconds = understood("--since", parse_seconds, since)
    with answering(url, as_json, options, pairs) as answer:
        again = f"lcstore unretire {answer.quoted if state is None else answer.at(state)}"
        again += f"{typed_again(since=since, leave_out=leave_out)} --apply"
        if state is None and below_of(answer, leave_out, most=1):
            from lcstore.places.below import unretire_below

            how = {"storage_options": answer.storage_options, "dry_run": not apply}
            tended = each_below(answer, unretire_below, since=seconds, leave_out=leave_out or (), **how)
            tell_unretired(answer, tended, "" if apply else again)
            return
        with answer.store(writable=apply) as store:
            report = store.unretire(state, since=seconds, dry_run=not apply)
        answer.give(report, brought_back(answer, report, again), ok=report.ok)
    if not report.ok:
        raise typer.Exit(1)
