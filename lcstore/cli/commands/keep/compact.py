"""``lcstore compact``: make old states small and every state quick to restore."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import (
    AsJson,
    MaxBytes,
    MaxSeconds,
    Moved,
    Options,
    Pairs,
    Threads,
    Url,
    typed_again,
    understood,
)
from lcstore.terminal.foreseen import foresee, foreseen
from lcstore.terminal.scheduler import Scheduler, cluster
from lcstore.terminal.table import Table, size
from lcstore.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from lcstore.maintain.compact import CompactReport

_MOST_SHOWN = 5


def compact(
    url: Url,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing: show the plan.")] = False,
    max_bytes: MaxBytes = None,
    max_seconds: MaxSeconds = None,
    workers: Threads = None,
    scheduler: Scheduler = None,
    keep: Moved = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Add merged edges, so that every restore reads few, and what was let go of can be deleted.

    Nothing is deleted or let go of, and no state changes by a bit. The edges take bytes of their own; what
    they make needless is deleted by `lcstore collect`. A compaction may be stopped at any time: what is done
    is of use, and the next one goes on. With --scheduler the workers of a Dask cluster merge, an edge in each
    task.
    """
    if keep is not None:
        raise typer.BadParameter(
            "compact lets go of nothing: lcstore retain URL --keep RETENTION does, and lcstore maintain URL "
            "--keep RETENTION does both"
        )
    most = understood("--max-bytes", parse_bytes, max_bytes)
    longest = understood("--max-seconds", parse_seconds, max_seconds)
    with answering(url, as_json, options, pairs) as answer, answer.progress() as on_progress:
        with (
            answer.store(writable=not dry_run, threads=workers) as store,
            cluster(answer, scheduler) as client,
        ):
            report = store.compact(
                dry_run=dry_run,
                max_bytes=most,
                max_seconds=longest,
                on_progress=on_progress,
                client=client,
            )
            # How far it comes within a time is not foreseen.
            forecast = foresee(store, max_bytes=most) if dry_run and longest is None else None
        bounds = typed_again(max_bytes=max_bytes, max_seconds=max_seconds)
        by = typed_again(workers=workers, scheduler=scheduler)
        shown = chain(compaction(report, bounds), foreseen(forecast), _next(answer, report, bounds, by))
        answer.give(report, shown, forecast=forecast)


def compaction(report: CompactReport, bounds: str) -> Iterator[Table | str]:
    """Yield what was added, or would be within bounds, with all that is stored besides."""
    shown = Table("compaction", "", header=False)
    shown.row("edges", "up to " * bool(report.dry_run and report.planned and bounds) + _edges(report))
    shown.row("to be written, about" if report.dry_run else "written", size(report.bytes_written))
    if report.bytes_besides:
        shown.row("against damage", f"{size(report.bytes_besides)} of anchors")
    shown.row("most edges for a restore", _change(str, report.longest_before, report.longest_after))
    if report.latest_before and report.latest_after:
        shown.row("restoring the latest reads", _change(size, report.latest_before, report.latest_after))
    shown.row("took", f"{report.seconds:.1f} s")
    yield shown
    yield from (f"No edge to step {step}: {why}" for step, why in report.skipped[:_MOST_SHOWN])
    if len(report.skipped) > _MOST_SHOWN:
        yield f"... and {len(report.skipped) - _MOST_SHOWN} more: --json has them all"


def _edges(report: CompactReport) -> str:
    anchors = f", {report.anchors} of them anchors" if report.anchors else ""
    added = "" if report.dry_run else f", {report.added} added"
    return f"{report.planned} planned{anchors}{added}"


def _change(words: Callable[[int], str], before: int, after: int) -> str:
    return f"{words(before)} -> {words(after)}"


def _next(answer: Answer, report: CompactReport, bounds: str, by: str) -> list[str]:
    url = answer.quoted
    if report.dry_run:
        if not report.planned and bounds:
            return [f"Nothing within{bounds}. To see what there is without: lcstore compact {url} --dry-run"]
        if not report.planned:
            return ["Nothing to do: the store is compact."]
        return [f"Nothing was changed. To do it: lcstore compact {url}{bounds}{by}"]
    lines = []
    if report.is_cut_short:
        lines.append(f"The time ran out; to go on: lcstore compact {url}{bounds}{by}")
    if report.bytes_after < report.bytes_before:
        lines.append(f"To see what can be deleted now: lcstore collect {url}")
    return lines or [f"All that fits{bounds} is there." if bounds else "The store is compact."]
