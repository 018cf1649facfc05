"""``lcstore compact``: make old states small and every state quick to restore."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.arguments import (
    AsJson,
    Grace,
    Keep,
    Options,
    Pairs,
    Url,
    policy_of,
    storage_options,
    understood,
)  # fmt: skip
from lcstore.cli.collect import print_collection
from lcstore.cli.opening import opened, reading_phases
from lcstore.cli.output import Answer, answering, print_lines, row, size, table
from lcstore.cli.retain import counts
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
    collect: Annotated[bool, typer.Option("--collect", help="Then `lcstore collect --apply`.")] = False,
    grace: Grace = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Add merged edges, so that every restore reads few, and states that were let go of can be deleted.

    No state changes by a bit. With --keep, first let go of what the policy does not keep. The edges take
    bytes of their own; what is not needed any more is deleted by collect. Whatever stops it, what is done is
    of use, and the next run goes on.
    """
    opening = storage_options(options, pairs)
    policy = policy_of(keep)
    most = understood("--max-bytes", parse_bytes, max_bytes)
    longest = understood("--max-seconds", parse_seconds, max_seconds)
    wait = understood("--grace", parse_seconds, grace)
    if grace is not None and not collect:
        raise typer.BadParameter("--grace goes with --collect")
    with answering(url, as_json) as answer, reading_phases(as_json) as on_progress:
        with opened(answer, opening, writable=not dry_run, threads=workers) as store:
            report = store.compact(
                keep=policy,
                dry_run=dry_run,
                max_bytes=most,
                max_seconds=longest,
                on_progress=on_progress,
            )
            collected = None
            if collect and not dry_run:
                collected = store.collect(grace=wait, on_progress=on_progress)
        if as_json:
            gone = None if collected is None else asdict(collected)
            answer.document(asdict(report) | {"collected": gone})
            return
        _print(answer, report)
        if collected is not None:
            print_collection(answer, collected)
        else:
            again = "" if policy is None else f" --keep {shlex.quote(str(policy))}"
            print_lines(answer, _next(answer, report, again))


def _print(answer: Answer, report: CompactReport) -> None:
    shown = table("compaction", "")
    shown.show_header = False
    row(shown, "edges", _edges(report))
    row(shown, "to be written" if report.dry_run else "written", size(report.bytes_written))
    row(shown, "bytes of weights, when collected", _change(size, report.bytes_before, report.bytes_after))
    row(shown, "most edges for a restore", _change(str, report.longest_before, report.longest_after))
    row(shown, "restoring the latest reads", _change(size, report.latest_before, report.latest_after))
    if report.retired is not None:
        row(shown, "retention", counts(report.retired))
    row(shown, "took", f"{report.seconds:.1f} s")
    answer.console.print(shown)
    notes = report.retired.notes if report.retired is not None else ()
    print_lines(answer, [f"Note: {note}" for note in notes])
    skipped = list(report.skipped.items())
    print_lines(answer, [f"No edge to step {step}: {why}" for step, why in skipped[:_MOST_SHOWN]])
    if len(skipped) > _MOST_SHOWN:
        print_lines(answer, [f"... and {len(skipped) - _MOST_SHOWN} more: --json has them all"])


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
