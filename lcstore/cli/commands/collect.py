"""``lcstore collect``: delete what no kept state needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lcstore.cli.answer import Answer, answering
from lcstore.cli.arguments import Apply, AsJson, Grace, Options, Pairs, Url, understood
from lcstore.cli.table import Table, size
from lcstore.units import format_seconds, parse_seconds

if TYPE_CHECKING:
    from lcstore.maintain.collect import CollectReport


def collect(
    url: Url,
    apply: Apply = False,
    grace: Grace = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Delete what no kept state needs. Only shows it, unless --apply is given.

    An object that no kept state needs is condemned first. A collect that runs a grace later deletes it, so
    nothing that someone may be reading goes at once.
    """
    seconds = understood("--grace", parse_seconds, grace)
    with answering(url, as_json, options, pairs) as answer:
        with answer.store(writable=apply) as store, answer.progress() as on_progress:
            report = store.collect(grace=seconds, dry_run=not apply, on_progress=on_progress)
        answer.give(report, collection(answer, report))


def collection(answer: Answer, report: CollectReport) -> Iterator[Table | str]:
    """Yield what went, or would go, and which command is next."""
    shown = Table("would go" if report.dry_run else "deleted", "", right=("",))
    shown.row("states", report.deleted_states)
    shown.row("shortcuts", report.deleted_shortcuts)
    shown.row("objects", report.deleted_objects)
    shown.row("bytes", size(report.deleted_bytes))
    if not report.dry_run:
        shown.row("marks that nothing refers to", report.deleted_marks)
        shown.row("condemned now", report.condemned)
        shown.row("condemned, and too young to go", report.waiting)
    shown.row("states that stay", report.kept_states)
    yield shown
    yield from _next(answer, report)


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
