"""``lcstore retire``: let go of one state, or of all that a retention does not keep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.answer import Answer, answering
from lcstore.cli.arguments import AsJson, AtState, Keep, Options, Pairs, retention_of, state_of
from lcstore.cli.decision import counts, decision
from lcstore.cli.table import Table
from lcstore.errors import InvalidInputError

if TYPE_CHECKING:
    from lcstore.maintain.retire import RetireReport
    from lcstore.retention.base import Retention


def retire(
    target: Annotated[
        str, typer.Argument(metavar="URL[@STEP]", help="With --keep a store; otherwise a state of it.")
    ],
    keep: Keep = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="With --keep: retire. Otherwise it is only shown what would go.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the record.")] = "",
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Let go of one state (URL@STEP), or of all that a retention does not keep (URL --keep).

    What --keep lets go of is only shown, unless --apply is given. A retired state is hidden, and deleted by a
    later collect; until that collect has begun `lcstore pin` brings the state back.
    """
    url, state = state_of(target, at)
    retention = retention_of(keep)
    if retention is None and state is None:
        raise typer.BadParameter("name the state (URL@STEP), or say what to keep: --keep 'latest:3'")
    if retention is not None and (state is not None or reason):
        raise typer.BadParameter("--keep decides about all states: it goes with neither @STEP nor --reason")
    if retention is None and apply:
        raise typer.BadParameter("--apply goes with --keep: one state is retired at once")
    with answering(url, as_json, options, pairs) as answer:
        if retention is None:
            _one(answer, state, reason)
        else:
            _all(answer, retention, apply=apply)


def _one(answer: Answer, state: int | str | None, reason: str) -> None:
    with answer.store(writable=True) as store:
        try:
            gone = store.retire(state, reason)
        except InvalidInputError:  # the latest, or pinned: the listing shows which are
            answer.next = f"lcstore ls {answer.quoted}"
            raise
    back = shlex.quote(f"{answer.url}@{gone.node}")
    said = [
        f"Step {gone.step} is retired: hidden now, and deleted once it is collected.",
        f"To bring it back before that: lcstore pin {back}",
    ]
    answer.give(gone, said, url=answer.url)


def _all(answer: Answer, retention: Retention, *, apply: bool) -> None:
    with answer.store(writable=apply) as store, answer.progress() as on_progress:
        report = store.retain(retention, dry_run=not apply, on_progress=on_progress)
    answer.give(report, _shown(answer.quoted, report, retention))


def _shown(url: str, report: RetireReport, retention: Retention) -> Iterator[Table | str]:
    yield decision(report)
    yield from (f"Note: {note}" for note in report.notes)
    yield f"{counts(report)}."
    if report.dry_run and report.retired:
        command = f"lcstore retire {url} --keep {shlex.quote(str(retention))} --apply"
        yield f"Nothing was changed. To do it: {command}"
    elif report.retired:
        yield f"What is retired is hidden now. To delete it: lcstore collect {url} --apply"
        yield "To bring a state back before that: lcstore pin URL@NODE"
