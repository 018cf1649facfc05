"""What a collection deletes, and what goes later, as people read it; for `collect` and `maintain`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lcstore.terminal.table import Table, size
from lcstore.units import counted, format_seconds

if TYPE_CHECKING:
    from lcstore.maintain.collected import CollectReport

#: Seconds by which clocks may differ, and nobody need hear of it.
_AHEAD: Final = 60


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
    if report.silence is not None and not report.silence.is_enough:
        from lcstore.maintain.dead import not_yet

        yield f"Note: now --apply would be refused: {not_yet(report.silence)}."
    elif report.silence is not None and math.isfinite(report.silence.seconds):
        passed, needed = _long(report.silence.seconds), _long(report.silence.needed)
        yield f"Nothing was saved for {passed} ({needed} is asked for), nor stored while this looked."


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
