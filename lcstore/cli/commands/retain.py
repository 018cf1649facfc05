"""``lcstore retain``: let go of all states that a retention does not keep."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from lcstore.cli.answer import answering
from lcstore.cli.arguments import Apply, AsJson, Keep, Options, Pairs, Url, as_typed, retention_of
from lcstore.cli.decision import counts, decision
from lcstore.cli.foreseen import foresee, foreseen
from lcstore.cli.table import Table

if TYPE_CHECKING:
    from lcstore.maintain.retire import RetireReport
    from lcstore.maintain.sizing import Forecast


def retain(
    url: Url,
    keep: Keep = None,
    apply: Apply = False,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Let go of all states that a retention does not keep. Only shows them, unless --apply is given.

    A state that is let go of is hidden, and deleted by a later collect; until that collect has begun `lcstore
    pin` brings the state back. The latest state of each run, and pinned ones, stay whatever is said.
    """
    retention = retention_of(keep)
    with answering(url, as_json, options, pairs) as answer:
        with answer.store(writable=apply) as store, answer.progress() as on_progress:
            report = store.retain(retention, dry_run=not apply, on_progress=on_progress)
            forecast = None if apply else foresee(store, report.retired)
        answer.give(report, _shown(answer.quoted, report, as_typed(keep), forecast), forecast=forecast)


def _shown(url: str, report: RetireReport, keep: str, forecast: Forecast | None) -> Iterator[Table | str]:
    yield decision(report)
    yield from foreseen(forecast)
    yield from (f"Note: {note}" for note in report.notes)
    yield f"{counts(report)}."
    if report.dry_run and report.retired:
        command = f"lcstore retain {url} --keep {shlex.quote(keep)} --apply"
        yield f"Nothing was changed. To do it: {command}"
    elif report.retired:
        yield f"What is retired is hidden now. To delete it: lcstore collect {url} --apply"
        yield "To bring a state back before that: lcstore pin URL@NODE"
