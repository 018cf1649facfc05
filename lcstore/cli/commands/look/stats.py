"""``lcstore stats``: a store in numbers."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from lcstore.errors import LcstoreError
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Pairs, Url
from lcstore.terminal.foreseen import foresee
from lcstore.terminal.stores import below_of, count_stores, lost_of
from lcstore.terminal.table import Table, counted, size

if TYPE_CHECKING:
    from lcstore.compaction.compact import CompactReport
    from lcstore.maintain.sizing import Forecast
    from lcstore.read.statistics import Stats
    from lcstore.store.store import Store

_PLAN = ("planned", "bytes_written", "bytes_before", "bytes_after", "longest_before", "longest_after")

#: The share of all bytes from which on protection is worth a hint.
_MUCH = 0.4
#: Restores that read no more than this part of it are worth the bytes that make them so.
_LESS = 0.75
#: So many times the bytes that are stored, on the disk, are worth a line.
_WASTED = 1.25


def stats(url: Url, as_json: AsJson = False, options: Options = None, pairs: Pairs = None) -> None:
    """Count what a store holds: states, bytes by kind and by pool, the ratio over all; or each one below."""
    with answering(url, as_json, options, pairs) as answer:
        below = below_of(answer)
        if below:
            count_stores(answer, below)
            return
        with answer.store() as store, answer.progress("reading records") as on_progress:
            found = store.stats(on_progress)
            planned, lost = _planned(store), "" if found.states or found.retired else lost_of(store)
            # It reads all records again: only where names alone say that something may go.
            leaves_less = planned is not None and planned.bytes_after < planned.bytes_before
            forecast = foresee(store) if leaves_less or found.may_be_stuck else None
        plan = None if planned is None else {name: getattr(planned, name) for name in _PLAN}
        if plan is not None and forecast is not None:
            plan["bytes_written"] = forecast.compaction_writes
        answer.give(
            found,
            _tables(answer.quoted, found, _gain(planned, forecast), forecast),
            ratio=found.ratio,
            compaction=plan,
        )
        if found.unreadable:
            key, why = next(iter(found.unreadable.items()))
            unread = counted(len(found.unreadable), "record")
            lost = f"{unread} could not be read: not counted here; the first: {why} [object {key!r}]"
        if lost:
            answer.note(f"{lost}. Next: lcstore verify {answer.quoted}")
            raise typer.Exit(1)


def _planned(store: Store) -> CompactReport | None:
    """Return what a compaction would do: of records it takes those of the latest state. None if it cannot."""
    try:
        return store.planned()
    except LcstoreError:
        return None


def _tables(url: str, found: Stats, gain: str, forecast: Forecast | None) -> Iterator[Table]:
    yield _facts(url, found, gain, forecast)
    kinds = Table("stored", "bytes", "raw", "ratio", right=("bytes", "raw", "ratio"))
    for kind, nbytes in found.bytes_stored.items():
        raw = found.bytes_raw.get(kind)
        if nbytes:
            kinds.row(kind, size(nbytes), *((size(raw), f"{raw / nbytes:.1f}x") if raw else ("", "")))
    yield kinds
    pools = Table("pool", "bytes", right=("bytes",))
    for pool, nbytes in found.pools.items():
        pools.row(pool, size(nbytes))
    yield pools


def _facts(url: str, found: Stats, gain: str, forecast: Forecast | None) -> Table:
    from lcstore.storage.traits import can_be_written

    shown, writes = Table("fact", "is", header=False), can_be_written(shlex.split(url)[0])
    shown.row("states", f"{found.states}, of {counted(found.steps, 'step')}, by {counted(found.runs, 'run')}")
    shown.row("anchors, deltas", f"{found.anchors}, {found.deltas}")
    if found.shortcuts:
        shown.row("shortcuts", found.shortcuts)
    shown.row("raw", size(found.bytes_raw["total"]))
    shown.row("stored", size(found.bytes_stored["total"]))
    if (found.bytes_on_disk or 0) > _WASTED * found.bytes_stored["total"]:
        shown.row("on the disk", f"{size(found.bytes_on_disk or 0)}, as each file takes whole blocks")
    shown.row("ratio, all counted", f"{found.ratio:.1f}x" if found.bytes_raw["total"] else "")
    if found.protection_bytes:
        most = found.protection_bytes > _MUCH * found.bytes_stored["total"]
        hint = " (the parity of what is small is a copy: durability='none' leaves it out)" if most else ""
        shown.row("against damage", f"{size(found.protection_bytes)} of that: parity and second copies{hint}")
    if found.orphans:
        orphans = f"{counted(found.orphans, 'object')}, {size(found.orphan_bytes)}"
        shown.row("of no record", f"{orphans} (interrupted saves)")
    if found.quarantined:
        aside = f"{counted(found.quarantined, 'object')}, {size(found.quarantined_bytes)}"
        shown.row("in quarantine/", f"{aside}, set aside by a repair: yours to delete")
    if found.retired:
        goes = f": lcstore collect {url} says what may go" if writes else ""
        if forecast is not None and forecast.can_be_freed <= 0:
            goes = ", over which kept states are read: nothing can be freed"
        shown.row("retired", f"{counted(found.retired, 'state')}{goes}")
    if found.condemned:
        freed = f"{counted(found.condemned, 'object')}, {size(found.condemned_bytes)}"
        shown.row("condemned", f"{freed}: deleted by a collect after the grace")
    if gain:
        then = f"lcstore compact {url} --dry-run" if writes else f"lcstore cp {url} TO, and compact the copy"
        shown.row("compaction", f"would {gain}: {then}")
    return shown


def _gain(planned: CompactReport | None, forecast: Forecast | None) -> str:
    """Return what a compaction is good for; "" where it is worth nothing."""
    if planned is None or not planned.planned:
        return ""
    does = []
    if planned.longest_after < _LESS * planned.longest_before:
        does.append(
            f"have a restore add up {planned.longest_after} deltas at the most, not {planned.longest_before}"
        )
    before, after = planned.latest_before, planned.latest_after
    if before is not None and after is not None and after < _LESS * before:
        change = f"{size(before)} to {size(after)}"
        does.append(f"bring what restoring the latest reads from {change}")
    if forecast is not None and forecast.compaction_frees > 0:
        does.append(f"leave {size(forecast.compaction_frees)} less once collected")
    return ", and ".join(does)
