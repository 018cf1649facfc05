"""``lcstore stats``: a store in numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, Url, storage_options
from lcstore.cli.opening import opened, reading
from lcstore.cli.output import Answer, answering, row, size, table
from lcstore.errors import LcstoreError

if TYPE_CHECKING:
    from lcstore.maintain.compact import CompactReport
    from lcstore.store.stats import Stats
    from lcstore.store.store import Store

_PLAN = ("planned", "bytes_written", "bytes_before", "bytes_after", "longest_before", "longest_after")


def stats(url: Url, as_json: AsJson = False, options: Options = None, pairs: Pairs = None) -> None:
    """Count what a store holds: states, bytes by kind and by pool, the ratio over all."""
    opening = storage_options(options, pairs)
    with answering(url, as_json) as answer:
        with opened(answer, opening) as store, reading(answer, "reading records") as on_progress:
            found = store.stats(on_progress)
            planned = _planned(store)
        if as_json:
            plan = None if planned is None else {name: getattr(planned, name) for name in _PLAN}
            answer.document(asdict(found) | {"ratio": found.ratio, "compaction": plan})
        else:
            _print(answer, found, planned)
        if found.unreadable:
            key, why = next(iter(found.unreadable.items()))
            count = len(found.unreadable)
            answer.note(
                f"{count} records could not be read, and are not counted; the first: {why} [object {key!r}]. "
                f"Next: lcstore verify {answer.quoted}"
            )
            raise typer.Exit(1)


def _planned(store: Store) -> CompactReport | None:
    """Return what a compaction would do: it is planned from names alone. None where it cannot be planned."""
    try:
        return store.compact(dry_run=True)
    except LcstoreError:
        return None


def _print(answer: Answer, found: Stats, planned: CompactReport | None) -> None:
    shown = table("fact", "is")
    shown.show_header = False
    row(shown, "states", f"{found.states}, of {found.steps} steps, by {found.runs} runs")
    row(shown, "anchors, deltas", f"{found.anchors}, {found.deltas}")
    if found.shortcuts:
        row(shown, "shortcuts", found.shortcuts)
    row(shown, "raw", size(found.bytes_raw["total"]))
    row(shown, "stored", size(found.bytes_stored["total"]))
    row(shown, "ratio, all counted", f"{found.ratio:.1f}x" if found.bytes_raw["total"] else "")
    if found.orphans:
        row(shown, "of no record", f"{found.orphans} objects, {size(found.orphan_bytes)} (interrupted saves)")
    if found.retired:
        row(shown, "retired", f"{found.retired} states: lcstore collect {answer.quoted} says what may go")
    if found.condemned:
        freed = f"{found.condemned} objects, {size(found.condemned_bytes)}"
        row(shown, "condemned", f"{freed}: deleted by a collect after the grace")
    if planned is not None and planned.planned:
        more = planned.bytes_after - planned.bytes_before
        ways = f"bring the longest restore from {planned.longest_before} to {planned.longest_after} edges"
        what = f"{'take' if more > 0 else 'free'} about {size(abs(more))}, and " if more else ""
        row(shown, "compaction", f"would {what}{ways}: lcstore compact {answer.quoted}")
    answer.console.print(shown)
    kinds = table("stored", "bytes", "raw", "ratio", right=("bytes", "raw", "ratio"))
    for kind, nbytes in found.bytes_stored.items():
        raw = found.bytes_raw.get(kind)
        if nbytes:
            ratio = "" if not raw else f"{raw / nbytes:.1f}x"
            row(kinds, kind, size(nbytes), "" if not raw else size(raw), ratio)
    answer.console.print(kinds)
    pools = table("pool", "bytes", right=("bytes",))
    for pool, nbytes in found.pools.items():
        row(pools, pool, size(nbytes))
    answer.console.print(pools)
