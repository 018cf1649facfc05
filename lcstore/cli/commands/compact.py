"""``lcstore compact``: make old states small and every state quick to restore."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.answer import Answer, answering
from lcstore.cli.arguments import AsJson, Grace, Keep, Options, Pairs, Url, retention_of, understood
from lcstore.cli.commands.collect import collection
from lcstore.cli.decision import counts
from lcstore.cli.table import Table, size
from lcstore.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from lcstore.maintain.compact import CompactReport

_MOST_SHOWN = 5


def compact(
    url: Url,
    keep: Keep = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing: show the plan.")] = False,
    max_bytes: Annotated[
        str | None, typer.Option("--max-bytes", metavar="SIZE", help="Write no more than this: 10GB.")
    ] = None,
    max_seconds: Annotated[
        str | None, typer.Option("--max-seconds", metavar="TIME", help="Begin nothing after this time: 2h.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Threads to merge with; one per core if not given.")
    ] = None,
    collect: Annotated[bool, typer.Option("--collect", help="Then run `lcstore collect --apply`.")] = False,
    grace: Grace = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Add merged edges, so that every restore reads few, and states that were let go of can be deleted.

    No state changes by a bit. With --keep, first let go of what the retention does not keep. The edges take
    bytes of their own; `lcstore collect` deletes what is not needed any more. A compaction may be stopped at
    any time: what is done is of use, and the next one goes on.
    """
    retention = retention_of(keep)
    most = understood("--max-bytes", parse_bytes, max_bytes)
    longest = understood("--max-seconds", parse_seconds, max_seconds)
    wait = understood("--grace", parse_seconds, grace)
    if grace is not None and not collect:
        raise typer.BadParameter("--grace goes with --collect")
    with answering(url, as_json, options, pairs) as answer, answer.progress() as on_progress:
        with answer.store(writable=not dry_run, threads=workers) as store:
            report = store.compact(
                keep=retention,
                dry_run=dry_run,
                max_bytes=most,
                max_seconds=longest,
                on_progress=on_progress,
            )
            collected = None
            if collect and not dry_run:
                collected = store.collect(grace=wait, on_progress=on_progress)
        again = "" if retention is None else f" --keep {shlex.quote(str(retention))}"
        then = _next(answer, report, again) if collected is None else collection(answer, collected)
        answer.give(report, chain(_compaction(report), then), collected=collected)


def _compaction(report: CompactReport) -> Iterator[Table | str]:
    shown = Table("compaction", "", header=False)
    shown.row("edges", _edges(report))
    shown.row("to be written" if report.dry_run else "written", size(report.bytes_written))
    shown.row("bytes of weights, when collected", _change(size, report.bytes_before, report.bytes_after))
    if report.bytes_besides:
        shown.row("against damage", f"{size(report.bytes_besides)} of that: anchors")
    shown.row("most edges for a restore", _change(str, report.longest_before, report.longest_after))
    shown.row("restoring the latest reads", _change(size, report.latest_before, report.latest_after))
    if report.retired is not None:
        shown.row("retention", counts(report.retired))
    shown.row("took", f"{report.seconds:.1f} s")
    yield shown
    if report.retired is not None:
        yield from (f"Note: {note}" for note in report.retired.notes)
    skipped = list(report.skipped.items())
    yield from (f"No edge to step {step}: {why}" for step, why in skipped[:_MOST_SHOWN])
    if len(skipped) > _MOST_SHOWN:
        yield f"... and {len(skipped) - _MOST_SHOWN} more: --json has them all"


def _edges(report: CompactReport) -> str:
    anchors = f", {report.anchors} of them anchors" if report.anchors else ""
    added = "" if report.dry_run else f", {report.added} added"
    return f"{report.planned} planned{anchors}{added}"


def _change(words: Callable[[int], str], before: int, after: int) -> str:
    return f"{words(before)} -> {words(after)}"


def _next(answer: Answer, report: CompactReport, again: str) -> list[str]:
    url = answer.quoted
    if report.dry_run:
        retires = report.retired is not None and report.retired.retired
        if not report.planned and not retires:
            return ["Nothing to do: the store is compact."]
        return [f"Nothing was changed. To do it: lcstore compact {url}{again}"]
    lines = []
    if report.added + len(report.skipped) < report.planned:
        lines.append(f"The time ran out; to go on: lcstore compact {url}")
    if report.bytes_after < report.bytes_before or (report.retired is not None and report.retired.retired):
        lines.append(f"To see what can be deleted now: lcstore collect {url}")
    return lines or ["The store is compact."]
