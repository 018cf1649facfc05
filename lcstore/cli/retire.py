"""``lcstore retire``: let go of one state, or of all that a rule does not keep."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.cli.arguments import (
    AsJson,
    AtState,
    Keep,
    Options,
    Pairs,
    retention_of,
    state_of,
    storage_options,
)  # fmt: skip
from lcstore.cli.opening import opened, reading_phases
from lcstore.cli.output import Answer, answering, print_lines
from lcstore.cli.retain import counts, print_decision
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
        bool, typer.Option("--apply", help="With --keep: do it. Otherwise it is only shown.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the record.")] = "",
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Let go of one state (URL@STEP), or of all that a rule does not keep (URL --keep).

    The latter is only shown, unless --apply is given. A retired state is hidden, and deleted by a later
    collect; until that has begun `lcstore pin` brings it back.
    """
    url, state = state_of(target, at)
    opening = storage_options(options, pairs)
    rule = retention_of(keep)
    if rule is None and state is None:
        raise typer.BadParameter("name the state (URL@STEP), or say what to keep: --keep 'latest:3'")
    if rule is not None and (state is not None or reason):
        raise typer.BadParameter("--keep decides about all states: it goes with neither @STEP nor --reason")
    if rule is None and apply:
        raise typer.BadParameter("--apply goes with --keep: one state is retired at once")
    with answering(url, as_json) as answer:
        if rule is None:
            _one(answer, opening, state, reason)
        else:
            _all(answer, opening, rule, apply=apply)


def _one(answer: Answer, opening: dict[str, Any], state: int | str | None, reason: str) -> None:
    with opened(answer, opening, writable=True) as store:
        try:
            gone = store.retire(state, reason)
        except InvalidInputError:  # the latest, or pinned: the listing shows which are
            answer.next = f"lcstore ls {answer.quoted}"
            raise
    if answer.as_json:
        answer.document({"url": answer.url} | asdict(gone))
        return
    back = shlex.quote(f"{answer.url}@{gone.node}")
    print_lines(answer, [
        f"Step {gone.step} is retired: hidden now, and deleted once it is collected.",
        f"To bring it back before that: lcstore pin {back}",
    ])  # fmt: skip


def _all(answer: Answer, opening: dict[str, Any], rule: Retention, *, apply: bool) -> None:
    with opened(answer, opening, writable=apply) as store, reading_phases(answer.as_json) as on_progress:
        report = store.retain(rule, dry_run=not apply, on_progress=on_progress)
    if answer.as_json:
        answer.document(asdict(report))
        return
    print_decision(answer, report)
    print_lines(answer, _summary(answer, report, rule))


def _summary(answer: Answer, report: RetireReport, rule: Retention) -> list[str]:
    lines = [*(f"Note: {note}" for note in report.notes), f"{counts(report)}."]
    if report.dry_run and report.retired:
        command = f"lcstore retire {answer.quoted} --keep {shlex.quote(str(rule))} --apply"
        lines.append(f"Nothing was changed. To do it: {command}")
    elif report.retired:
        lines.append(f"What is retired is hidden now. To delete it: lcstore collect {answer.quoted} --apply")
        lines.append("To bring a state back before that: lcstore pin URL@NODE")
    return lines
