"""``lcstore cp``: copy a whole store, or all below a place, to another place."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Pairs, check_lasting, from_json, split_at
from lcstore.terminal.copyreport import copied
from lcstore.terminal.stores import below_of
from lcstore.terminal.tended import each_below, tell_copied


def cp(
    source: Annotated[str, typer.Argument(metavar="URL", help="The store, or what has stores below it.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where to: a place that is new or empty.")],
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Read what is there already, too, and set aside and replace what is damaged."
        ),
    ] = False,
    to_options: Annotated[
        str | None,
        typer.Option(
            "--to-options", metavar="JSON", help="Options for the second target; -o is the first's."
        ),
    ] = None,
) -> None:
    """Copy a store between any two targets, checking every byte on the way.

    What was committed when it began is copied, whoever writes to the store meanwhile. Run again, it goes on:
    what is there already, as long as it should be, is passed over, and states that the store has collected
    since stay in the copy. A target that holds another store is refused. Exit status 1 also where all states
    are let go of in the target, by marks of its own.

    A URL that is no store stands for all stores below it, eight folders deep: each goes to the same name
    below TO. One that fails stops no other.
    """
    second = from_json("--to-options", to_options)
    check_lasting(target, source)
    if split_at(target)[1] is not None:
        raise typer.BadParameter(f"{target!r} would be read as a state, URL@STEP: choose a name without an @")
    with answering(source, as_json, options, pairs) as answer:
        from lcstore.places.below import copy_below
        from lcstore.places.whole import copy

        answer.whole("lcstore export {state} state.safetensors")
        below = below_of(answer, most=1)
        answer.next = ""
        options_of: dict[str, Any] = {"source_options": answer.storage_options, "target_options": second}
        if below:
            tended = each_below(answer, copy_below, target=target, check=check, **options_of)
            tell_copied(answer, tended, shlex.quote(target))
            return
        with answer.finding(), answer.progress() as on_progress:
            report = copy(source, target, check=check, on_progress=on_progress, **options_of)
        answer.give(report, copied(answer.quoted, shlex.quote(target), report), ok=report.ok)
    if not report.ok:
        raise typer.Exit(1)
