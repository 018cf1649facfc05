"""``lcstore compact``: make old states small and every state quick to restore."""

from __future__ import annotations

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
from lcstore.terminal.compaction import compaction
from lcstore.terminal.foreseen import foresee, foreseen
from lcstore.terminal.scheduler import Scheduler, cluster
from lcstore.units import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from lcstore.compaction.compact import CompactReport


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
