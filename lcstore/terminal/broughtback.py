"""What comes back of what was let go of, as people read it; for `unretire`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from lcstore.terminal.answer import Answer
from lcstore.terminal.table import Table
from lcstore.units import counted, steps_text

if TYPE_CHECKING:
    from lcstore.maintain.unretire import Unretired, UnretireReport

#: What is said once states are back.
ANEW = "The next rule decides about them anew"


def brought_back(answer: Answer, report: UnretireReport, again: str) -> Iterator[Table | str]:
    """Yield what comes back, when and why it had gone, what came too late, and what to type next."""
    back, late = report.brought_back, report.too_late
    if back or late:
        yield _by_cause(report)
    yield from (f"Note: {note}" for note in report.notes)
    if late:
        export = f"lcstore export {answer.at(late[-1].node)} state.safetensors"
        yield f"Too late: {counted(len(late), 'state')} being collected. While one can be read: {export}"
    if not back:
        yield "Nothing to bring back."
    elif report.dry_run:
        yield f"{counted(len(back), 'state')} would come back. {ANEW}."
        yield f"Nothing was changed. To do it: {again}"
    else:
        yield f"{counted(len(back), 'state')} brought back. {ANEW}, so mend the rule first."
        yield f"To hold one whatever a rule says: lcstore pin {answer.at(back[-1].node)}"


def _by_cause(report: UnretireReport) -> Table:
    """Return a row for what went at one time for one reason."""
    shown = Table("retired (UTC)", "why", "states", "steps", "", right=("states",))
    came = "would come back" if report.dry_run else "back"
    told = [(one, came) for one in report.brought_back] + [(one, "too late") for one in report.too_late]

    def cause(one: tuple[Unretired, str]) -> tuple[str, str, str]:
        return one[0].created, one[0].reason, one[1]

    for (created, reason, what), group in groupby(sorted(told, key=cause), key=cause):
        steps = [one.step for one, _ in group]
        shown.row(created[:19].replace("T", " "), reason, len(steps), _steps(steps), what)
    return shown


def _steps(steps: Sequence[int]) -> str:
    """Return steps as text: the first and the last of many."""
    few = [(step, step) for step in steps] if len(steps) <= 3 else [(min(steps), max(steps))]
    return steps_text(few).partition(" ")[2]
