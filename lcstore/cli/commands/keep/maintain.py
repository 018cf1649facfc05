"""``lcstore maintain``: collect, retain, compact and verify in one command, for every night."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from lcstore.cli.commands.trouble.verify import findings
from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import (
    Apply,
    AsJson,
    Keep,
    LeaveOut,
    MaxBytes,
    MaxSeconds,
    Options,
    Pairs,
    Threads,
    Url,
    as_typed,
    retention_of,
    typed_again,
    understood,
)
from lcstore.terminal.collection import collection, goes_by, later
from lcstore.terminal.compaction import compaction
from lcstore.terminal.decision import counts, decision, runs_of
from lcstore.terminal.foreseen import foreseen, noted
from lcstore.terminal.scheduler import Scheduler, cluster
from lcstore.terminal.stores import below_of
from lcstore.terminal.table import Table
from lcstore.terminal.tended import each_below, tell_maintained
from lcstore.terminal.ways import unseen
from lcstore.units import counted, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from lcstore.store.nightly import MaintainReport


def maintain(
    url: Url,
    keep: Keep = None,
    apply: Apply = False,
    leave_out: LeaveOut = None,
    max_bytes: MaxBytes = None,
    max_seconds: MaxSeconds = None,
    workers: Threads = None,
    scheduler: Scheduler = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Collect, retain, compact and verify, in this order. Only shows it, unless --apply is given.

    A URL that is no store stands for all stores below it, eight folders deep: one that fails stops no other.
    With --scheduler a Dask cluster does it: the merges and looks of one store, or one store in each task.

    For every night: what was let go of the night before is deleted first, so what is let go of now can be
    brought back until the next run. --max-bytes and --max-seconds bound the compaction. Where a part fails,
    those after it are left out, but for the last; exit status 1 says so, and the next run goes on.
    """
    retention = retention_of(keep)
    bounds = typed_again(max_bytes=max_bytes, max_seconds=max_seconds)
    most = understood("--max-bytes", parse_bytes, max_bytes)
    longest = understood("--max-seconds", parse_seconds, max_seconds)
    with answering(url, as_json, options, pairs) as answer:
        how: dict[str, Any] = {"dry_run": not apply, "max_bytes": most, "max_seconds": longest}
        given = typed_again(keep=as_typed(keep)) + bounds + typed_again(workers=workers, scheduler=scheduler)
        left_out = typed_again(leave_out=leave_out)
        again = f"lcstore maintain {answer.quoted}{given}{left_out} --apply"
        if below_of(answer, leave_out, most=1):
            from lcstore.places.below import maintain_below

            answer.next = f"lcstore ls {answer.quoted}" if leave_out else answer.next
            how |= {"keep": retention, "leave_out": leave_out or (), "threads": workers}
            how |= {"storage_options": answer.storage_options}
            with cluster(answer, scheduler) as client:
                tended = each_below(answer, maintain_below, client=client, **how)
            tell_maintained(answer, tended, "" if apply else again, left_out)
            return
        with (
            answer.store(writable=apply, threads=workers) as store,
            cluster(answer, scheduler) as client,
            answer.progress() as on_progress,
        ):
            runs = runs_of(store)
            report = store.maintain(retention, client=client, on_progress=on_progress, **how)
        if report.retained is not None:
            report.retained = noted(report.retained, retention, report.forecast)
        problems = {part: answer.named(str(error)) for part, error in report.problems.items()}
        shown = _shown(answer, report, bounds, again, runs)
        answer.give(report, shown, problems=problems, ok=report.ok)
        for part, problem in problems.items():
            answer.note(f"{part} failed: {problem}")
        if report.next:
            answer.note(answer.named(f"Next: {report.next.replace('{url}', answer.quoted)}"))
    if not report.ok:
        raise typer.Exit(1)


def _shown(
    answer: Answer, report: MaintainReport, bounds: str, again: str, runs: dict[str, int]
) -> Iterator[Table | str]:
    collected = report.collected
    if collected is not None and any((*goes_by(collected), collected.condemned, collected.waiting)):
        yield from collection(collected)
        yield from later(collected)
    elif collected is not None:
        yield "Nothing was let go of before that could be deleted now."
        yield from later(collected)
    if report.retained is not None:
        if report.dry_run:
            yield from decision(report.retained, runs)
        yield from (f"Note: {note}" for note in report.retained.notes)
        yield f"{counts(report.retained)}."
        if report.retained.states_let_go and not report.dry_run:
            yield f"To bring states back before the next run: lcstore unretire {answer.quoted}"
    if report.compacted is not None:
        yield from compaction(report.compacted, bounds)
        if report.compacted.is_cut_short:
            yield "The time ran out: the next maintenance goes on."
    if report.verified is not None:
        yield from findings(report.verified.findings)
        if report.verified.is_sound:
            there = f"{counted(report.verified.states, 'state')}, {report.verified.objects} objects are there"
            yield f"Verified: {there}.{unseen(answer.quoted, report.verified)}"
    yield from foreseen(report.forecast)
    if report.dry_run and report.compacted is not None and not _does(report):
        yield "Nothing to do."
    elif report.dry_run and report.compacted is not None:
        yield f"Nothing was changed. To do it: {again}"


def _does(report: MaintainReport) -> bool:
    """Return whether anything would go, or be added."""
    collected, retained, compacted = report.collected, report.retained, report.compacted
    goes = collected is not None and any((*goes_by(collected), collected.condemned))
    adds = compacted is not None and bool(compacted.planned)
    return goes or adds or (retained is not None and bool(retained.retired))
