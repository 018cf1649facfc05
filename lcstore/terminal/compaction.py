"""What a compaction adds, as people read it; for `compact` and `maintain`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lcstore.terminal.table import Table, size

if TYPE_CHECKING:
    from lcstore.compaction.compact import CompactReport

_MOST_SHOWN = 5


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
