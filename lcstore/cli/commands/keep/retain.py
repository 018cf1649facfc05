"""``lcstore retain``: let go of all states that a retention does not keep."""

from __future__ import annotations

import shlex

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import Apply, AsJson, Keep, Options, Pairs, Url, as_typed, retention_of
from lcstore.terminal.decision import decided, runs_of
from lcstore.terminal.foreseen import foresee, noted


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
    unretire` brings the state back. The latest state of each run, and pinned ones, stay whatever is said.
    """
    retention = retention_of(keep)
    with answering(url, as_json, options, pairs) as answer:
        with answer.store(writable=apply) as store, answer.progress() as on_progress:
            runs = runs_of(store)
            report = store.retain(retention, dry_run=not apply, on_progress=on_progress)
            forecast = None if apply else foresee(store, report.retired)
        report = noted(report, retention, forecast)
        command = f"lcstore retain {answer.quoted} --keep {shlex.quote(as_typed(keep))}"
        answer.give(report, decided(answer.quoted, report, command, forecast, runs=runs), forecast=forecast)
