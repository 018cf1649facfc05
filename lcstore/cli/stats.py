"""``lcstore stats``: a store in numbers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, Url, storage_options
from lcstore.cli.opening import opened, reading
from lcstore.cli.output import Answer, answering, row, size, table

if TYPE_CHECKING:
    from lcstore.store.stats import Stats


def stats(url: Url, as_json: AsJson = False, options: Options = None, pairs: Pairs = None) -> None:
    """Count what a store holds: states, bytes by kind and by pool, the ratio over all."""
    opening = storage_options(options, pairs)
    with answering(url, as_json) as answer:
        with opened(answer, opening) as store, reading(answer, "reading records") as on_progress:
            found = store.stats(on_progress)
        if as_json:
            answer.document(asdict(found) | {"ratio": found.ratio})
        else:
            _print(answer, found)
        if found.unreadable:
            key, why = next(iter(found.unreadable.items()))
            count = len(found.unreadable)
            answer.note(
                f"{count} records could not be read, and are not counted; the first: {why} [object {key!r}]. "
                f"Next: lcstore verify {answer.quoted}"
            )
            raise typer.Exit(1)


def _print(answer: Answer, found: Stats) -> None:
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
