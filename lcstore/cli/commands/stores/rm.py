"""``lcstore rm``: delete a whole store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import Apply, AsJson, Options, Pairs, Url
from lcstore.terminal.table import Table, size

if TYPE_CHECKING:
    from lcstore.maintain.removal import RemoveReport

_MOST_SHOWN = 10


def rm(
    url: Url,
    apply: Apply = False,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Delete a whole store, with all of its states. Only shows it, unless --apply is given.

    Pinned states go too. Only what lcstore stores goes: whatever else lies there is named, and left. Stop the
    runs that write there first. Interrupted and run again, it goes on.
    """
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.places.whole import remove

        answer.whole("lcstore retire {state}")
        answer.next = f"lcstore ls {answer.quoted}"
        with answer.finding(), answer.progress() as on_progress:
            report = remove(
                url, dry_run=not apply, storage_options=answer.storage_options, on_progress=on_progress
            )
        answer.told = report.url
        answer.give(report, _shown(answer, report))


def _shown(answer: Answer, report: RemoveReport) -> Iterator[Table | str]:
    shown = Table("would go" if report.dry_run else "deleted", "", right=("",))
    shown.row("states, retired ones too", report.states)
    if report.states:
        shown.row("of steps", f"{report.first} to {report.last}")
    shown.row("objects", report.objects)
    shown.row("bytes", size(report.nbytes))
    if report.marked:
        shown.row("among them", report.marked)
    yield shown
    if report.foreign:
        names = ", ".join(report.foreign[:_MOST_SHOWN])
        more = len(report.foreign) - _MOST_SHOWN
        left = "would be left" if report.dry_run else "is left"
        yield f"Not lcstore's, and {left}: {names}" + (f" and {more} more" if more > 0 else "")
    if report.dry_run:
        yield f"Nothing was changed. To delete it for good: lcstore rm {answer.quoted} --apply"
