"""What a collection deletes, and what goes later, as people read it; for `collect` and `maintain`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lcstore.terminal.answer import Answer
from lcstore.terminal.table import Table, size
from lcstore.units import counted, format_seconds

if TYPE_CHECKING:
    from lcstore.maintain.collected import CollectReport
    from lcstore.maintain.sizing import Forecast

#: Seconds by which clocks may differ, and nobody need hear of it.
_AHEAD: Final = 60
NOTHING: Final = "Nothing to collect: kept states need all that is there."


def collection(report: CollectReport) -> Iterator[Table | str]:
    """Yield what went, or would go."""
    shown = Table("would go now" if report.dry_run else "deleted", "", right=("",))
    shown.row("states", report.deleted_states)
    shown.row("shortcuts", report.deleted_shortcuts)
    shown.row("objects", report.deleted_objects)
    shown.row("bytes", size(report.deleted_bytes))
    if report.deleted_leftovers:
        nbytes = size(report.deleted_leftover_bytes)
        shown.row("of that, files of killed writes", f"{report.deleted_leftovers}, {nbytes}")
    shown.row("marks that nothing refers to", report.deleted_marks)
    if report.grace_seconds:
        shown.row("would be condemned now" if report.dry_run else "condemned now", report.condemned)
    if report.grace_seconds or not report.dry_run:
        shown.row("condemned, and too young to go", report.waiting)
        shown.row("bytes of that", size(report.waiting_bytes))
    shown.row("states that stay", report.kept_states)
    yield shown
    if too_early := refusal(report):
        yield f"Note: {too_early}."
    elif report.silence is not None and math.isfinite(report.silence.seconds):
        passed, needed = _long(report.silence.seconds), _long(report.silence.needed)
        yield f"Nothing was saved for {passed} ({needed} is asked for), nor stored while this looked."


def refusal(report: CollectReport) -> str:
    """Return why --apply would be refused now; "" where it would not be."""
    if report.silence is None or report.silence.is_enough:
        return ""
    from lcstore.maintain.dead import not_yet

    return f"now --apply would be refused: {not_yet(report.silence)}"


def goes_by(report: CollectReport) -> tuple[int, int, int, int]:
    """Return how many states, shortcuts, objects and files of killed writes go."""
    objects = report.deleted_objects
    return report.deleted_states, report.deleted_shortcuts, objects, report.deleted_leftovers


def later(report: CollectReport) -> Iterator[str]:
    """Yield when the rest goes, where not all goes now."""
    if report.waiting_leftovers:
        files = counted(report.waiting_leftovers, "file")
        yield (
            f"{files} of writes that have not ended, {size(report.waiting_leftover_bytes)}, may be of a "
            f"living process: collected once nobody wrote to them for {_long(report.leftover_seconds)}."
        )
    if report.uncondemned:
        yield f"There was no room to condemn {report.uncondemned} more of what goes: a later collect does."
    if report.spared_states:
        states = counted(report.spared_states, "state")
        yield f"{states} let go of lately: spared, so that `lcstore unretire` can bring them back."
    if not report.waiting:
        return
    if report.dry_run and report.condemned:
        grace = _words(report.grace_seconds)
        how = f"a run with --apply condemns them, and one that runs {grace} after that deletes them"
    else:
        clock = ", by the clock of this machine" * report.dry_run
        how = f"they are condemned, and all old enough in {_long(report.waiting_seconds)}{clock}"
    yield f"{size(report.waiting_bytes)} go later: {how}."
    if report.dry_run and report.condemned_states:
        states = counted(report.condemned_states, "state")
        yield f"Until a run with --apply, `lcstore unretire` can bring back {states} of that, and none later."
    ahead = report.waiting_seconds - report.grace_seconds
    if ahead > _AHEAD:
        yield (
            f"The time of a condemnation lies {_long(ahead)} ahead: a clock was wrong, or is. Set it right, "
            "and have the files of condemned/ bear the time of now (`touch`): their grace begins then."
        )


def goes(report: CollectReport) -> bool:
    """Return whether anything goes, now or later."""
    return any((*goes_by(report), report.waiting))


def is_stuck(report: CollectReport) -> bool:
    """Return whether nothing goes though states were let go of."""
    return report.retired_states > 0 and not goes(report)


def next_of(answer: Answer, report: CollectReport, seen: Forecast | None, given: str) -> list[str]:
    """Return what follows a collection; `given` are its options as they are typed."""
    command = f"lcstore collect {answer.quoted}{given} --apply"
    if not goes(report):
        more = _room_for_more(answer, report, seen) if is_stuck(report) else ()
        return [NOTHING, *later(report), *more]
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


def _long(seconds: float) -> str:
    """Return how long something was, roughly."""
    for unit, size_of in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size_of:
            return f"{seconds / size_of:.0f} {unit}"
    return f"{seconds:.0f} s"


def _words(seconds: float) -> str:
    """Return a grace as text; nothing where there is none."""
    if not seconds:
        return ""
    hours = seconds / 3600
    return f"{hours:g} h" if hours == int(hours) else format_seconds(seconds) or f"{seconds:g} s"
