"""``lcstore collect``: delete what no kept state needs."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Any

import typer

from lcstore.errors import InvalidInputError
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import (
    Apply,
    AsJson,
    Grace,
    LeaveOut,
    Options,
    Pairs,
    Url,
    typed_again,
    understood,
)
from lcstore.terminal.collection import collection, is_stuck, next_of
from lcstore.terminal.foreseen import foresee, foreseen
from lcstore.terminal.stores import below_of
from lcstore.terminal.tended import each_below, tell_collected
from lcstore.units import parse_seconds


def collect(
    url: Url,
    apply: Apply = False,
    leave_out: LeaveOut = None,
    grace: Grace = None,
    run_is_dead: Annotated[
        bool,
        typer.Option(
            "--run-is-dead",
            help="With --grace 0: nothing writes to this store any more, so space may be free at once.",
        ),
    ] = False,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Delete what no kept state needs. Only shows it, unless --apply is given.

    An object that no kept state needs is condemned first. A collect that runs a grace later deletes it, so
    nothing that someone may be reading goes at once. With --run-is-dead a shorter grace is taken, if nothing
    was saved for twice as long as saves were apart (a minute at least), and nothing is stored meanwhile.

    A URL that is no store stands for all stores below it, eight folders deep: one that fails stops no other.
    """
    if run_is_dead and grace is None:
        raise typer.BadParameter("--run-is-dead goes with a grace: --grace 0 --run-is-dead")
    seconds = understood("--grace", parse_seconds, grace)
    with answering(url, as_json, options, pairs) as answer:
        given = typed_again(grace=grace) + " --run-is-dead" * run_is_dead
        how: dict[str, Any] = {"grace": seconds, "run_is_dead": run_is_dead, "dry_run": not apply}
        if below_of(answer, leave_out, most=1):
            from lcstore.places.below import collect_below

            answer.next = f"lcstore ls {answer.quoted}" if leave_out else answer.next
            how |= {"leave_out": leave_out or (), "storage_options": answer.storage_options}
            tended = each_below(answer, collect_below, **how)
            tell_collected(answer, tended, given + typed_again(leave_out=leave_out), dry_run=not apply)
            return
        with answer.store(writable=apply) as store, answer.progress() as on_progress:
            try:
                report = store.collect(on_progress=on_progress, **how)
            except InvalidInputError:  # the grace is too short for a run that may live
                answer.next = f"lcstore collect {answer.quoted}{given} --run-is-dead{' --apply' * apply}"
                raise
            seen = foresee(store) if not apply or is_stuck(report) else None
        forecast = None if apply else seen
        then = next_of(answer, report, seen, given)
        shown = chain(collection(report), foreseen(forecast), then)
        answer.give(report, shown, forecast=forecast)
