"""What every dry run shows besides: the bytes of the store now, and what maintenance would make of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from lcstore.errors import LcstoreError
from lcstore.terminal.table import Table, size

if TYPE_CHECKING:
    from lcstore.maintain.retire import Retired, RetireReport
    from lcstore.maintain.sizing import Forecast
    from lcstore.retention.base import Retention
    from lcstore.store.store import Store


def foresee(store: Store, going: Iterable[Retired] = (), *, max_bytes: int | None = None) -> Forecast | None:
    """Return what would become of a store's bytes; None where damage keeps that from being known."""
    try:
        return store.forecast(going, max_bytes=max_bytes)
    except LcstoreError:
        return None


def noted(report: RetireReport, rule: Retention, found: Forecast | None) -> RetireReport:
    """Return a report that says, too, where the store stays above a budget of the rule."""
    from lcstore.retention.keep import Budget

    if found is None:
        return report
    left = min(found.bytes_collected, found.bytes_without)
    over = [
        f"{part} counts the data of the states that it keeps, and neither records nor what compaction adds: "
        f"about {size(left)} will be stored"
        for part in rule.parts
        if isinstance(part, Budget) and left > part.nbytes
    ]
    return replace(report, notes=(*report.notes, *over))


def foreseen(found: Forecast | None) -> Iterator[Table | str]:
    """Yield the bytes now, after compaction, and after collection, and why they grow where they do."""
    if found is None:
        return
    shown = Table("stored bytes of the store", "", right=("",))
    shown.row("now", size(found.bytes_now))
    shown.row("once compacted, about", size(found.bytes_compacted))
    shown.row("once collected after that, about", size(found.bytes_collected))
    if found.bytes_without < found.bytes_collected:
        shown.row("once collected, not compacted, about", size(found.bytes_without))
    if not found.has_room:
        shown.row("room for a compaction", size(found.room or 0))
    yield shown
    if found.closed:
        yield f"This user may change nothing in {found.closed}: with --apply this ends in an error."
    if found.lacking:
        yield (
            f"The disk lacks {size(found.lacking)} for the records that let go of states, of 4 KiB each. "
            "Parity and second copies of what goes make way for them, as far as there are any. Make room "
            "first, or not all states may go."
        )
    if not found.has_room:
        yield (
            "The disk lacks room for all of that: a compaction stops before it is full, and says so. "
            "Make room first, or copy the store to another disk with `lcstore cp`."
        )
    if found.bytes_collected > found.bytes_now:
        yield (
            "A compaction would add more than it frees: edges that keep restores short, and anchors that "
            "bound what damage costs."
        )
    elif found.bytes_compacted > found.bytes_now:
        yield "More at first: what merged edges stand for goes when it is collected, once its grace is over."
    if found.bytes_without < min(found.bytes_now, found.bytes_collected):
        yield (
            f"Without merged edges, which keep restores short, {size(found.bytes_without)} would be left: "
            "`lcstore retain` and `lcstore collect` alone do that, and `lcstore maintain` by `--max-bytes 0`."
        )
