"""``lcstore collect``: delete what no kept state needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.arguments import AsJson, Grace, Options, Pairs, Url, storage_options, understood
from lcstore.cli.opening import opened, reading_phases
from lcstore.cli.output import Answer, answering, print_lines, row, size, table
from lcstore.units import format_seconds, parse_seconds

if TYPE_CHECKING:
    from lcstore.maintain.collect import CollectReport


def collect(
    url: Url,
    apply: Annotated[bool, typer.Option("--apply", help="Do it. Otherwise it is only shown.")] = False,
    grace: Grace = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Delete what no kept state needs. Only shows it, unless --apply is given.

    What is needed by none is condemned first, and deleted by a collect that runs a grace later: nothing
    that someone may be reading goes at once.
    """
    opening = storage_options(options, pairs)
    seconds = understood("--grace", parse_seconds, grace)
    with answering(url, as_json) as answer:
        with opened(answer, opening, writable=apply) as store, reading_phases(as_json) as on_progress:
            report = store.collect(grace=seconds, dry_run=not apply, on_progress=on_progress)
        if as_json:
            answer.document(asdict(report))
        else:
            print_collection(answer, report)


def print_collection(answer: Answer, report: CollectReport) -> None:
    """Print what went, or would go, and which command is next."""
    shown = table("would go" if report.dry_run else "deleted", "", right=("",))
    row(shown, "states", report.deleted_states)
    row(shown, "shortcuts", report.deleted_shortcuts)
    row(shown, "objects", report.deleted_objects)
    row(shown, "bytes", size(report.deleted_bytes))
    if not report.dry_run:
        row(shown, "marks that nothing refers to", report.deleted_marks)
        row(shown, "condemned now", report.condemned)
        row(shown, "condemned, and too young to go", report.waiting)
    row(shown, "states that stay", report.kept_states)
    answer.console.print(shown)
    print_lines(answer, _next(answer, report))


def _next(answer: Answer, report: CollectReport) -> list[str]:
    command = f"lcstore collect {answer.quoted} --apply"
    grace = _words(report.grace_seconds)
    if report.dry_run:
        if not report.deleted_objects and not report.deleted_states and not report.deleted_shortcuts:
            return ["Nothing to collect: kept states need all that is there."]
        how = f"condemns it; one that runs {grace} later deletes it" if grace else "deletes it"
        return [f"Nothing was changed. A collect {how}: {command}"]
    if report.waiting:
        return [f"What is condemned is deleted by a collect that runs {grace} after that: {command}"]
    return []


def _words(seconds: float) -> str:
    if not seconds:
        return ""
    hours = seconds / 3600
    return f"{hours:g} h" if hours == int(hours) else format_seconds(seconds) or f"{seconds:g} s"
