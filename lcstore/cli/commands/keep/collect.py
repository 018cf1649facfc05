"""``lcstore collect``: delete what no kept state needs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.errors import InvalidInputError
from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import Apply, AsJson, Grace, Options, Pairs, Url, typed_again, understood
from lcstore.terminal.collection import collection, goes_by, later
from lcstore.terminal.foreseen import foresee, foreseen
from lcstore.units import counted, parse_seconds

if TYPE_CHECKING:
    from lcstore.maintain.collected import CollectReport
    from lcstore.maintain.sizing import Forecast


def collect(
    url: Url,
    apply: Apply = False,
    grace: Grace = None,
    run_is_dead: Annotated[
        bool,
        typer.Option(
            "--run-is-dead",
            help="With --grace 0: nothing writes to this store any more, so space may be free at once.",
        ),
    ] = False,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Delete what no kept state needs. Only shows it, unless --apply is given.

    An object that no kept state needs is condemned first. A collect that runs a grace later deletes it, so
    nothing that someone may be reading goes at once. With --run-is-dead a shorter grace is taken, if nothing
    was saved for twice as long as saves were apart (a minute at least), and nothing is stored meanwhile.
    """
    if run_is_dead and grace is None:
        raise typer.BadParameter("--run-is-dead goes with a grace: --grace 0 --run-is-dead")
    seconds = understood("--grace", parse_seconds, grace)
    with answering(url, as_json, options, pairs) as answer:
        with answer.store(writable=apply) as store, answer.progress() as on_progress:
            given = typed_again(grace=grace)
            try:
                report = store.collect(
                    grace=seconds, run_is_dead=run_is_dead, dry_run=not apply, on_progress=on_progress
                )
            except InvalidInputError:  # the grace is too short for a run that may live
                answer.next = f"lcstore collect {answer.quoted}{given} --run-is-dead{' --apply' * apply}"
                raise
            seen = foresee(store) if not apply or _is_stuck(report) else None
        forecast = None if apply else seen
        then = _next(answer, report, seen, given + " --run-is-dead" * run_is_dead)
        shown = chain(collection(report), foreseen(forecast), then)
        answer.give(report, shown, forecast=forecast)


def _goes(report: CollectReport) -> bool:
    return any((*goes_by(report), report.waiting))


def _is_stuck(report: CollectReport) -> bool:
    """Return whether nothing goes though states were let go of."""
    return report.retired_states > 0 and not _goes(report)


def _next(answer: Answer, report: CollectReport, seen: Forecast | None, given: str) -> list[str]:
    command = f"lcstore collect {answer.quoted}{given} --apply"
    if not _goes(report):
        more = _room_for_more(answer, report, seen) if _is_stuck(report) else ()
        return ["Nothing to collect: kept states need all that is there.", *later(report), *more]
    if report.dry_run:
        return [*later(report), f"Nothing was changed. To do it: {command}"]
    return [*later(report), *[f"Then: {command}"][: report.waiting]]


def _room_for_more(answer: Answer, report: CollectReport, seen: Forecast | None) -> Iterator[str]:
    """Yield how to free what kept states need of those that were let go of, or that nothing frees it."""
    url, let_go = answer.quoted, f"{counted(report.retired_states, 'state')} let go of"
    if seen is not None and seen.compaction_frees <= 0:
        yield (
            f"Nothing more can be freed: kept states are read over {let_go}, and what a compaction would put "
            "in the place of theirs takes no less."
        )
        return
    yield (
        f"Of {let_go} they need the bytes, as deltas to them. First: lcstore compact {url}; then collect "
        "again. In between that takes up to one full state for each line of training that is kept"
    )
    yield f"Where there is no room for it: lcstore cp {url} TO; then lcstore rm {url} --apply"
