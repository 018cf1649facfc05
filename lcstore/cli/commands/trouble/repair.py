"""``lcstore repair``: set aside what is damaged, and keep all that is whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.commands.trouble.verify import LEVEL_HELP, Level, findings
from lcstore.errors import LcstoreError
from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import Apply, AsJson, Options, Pairs, Url
from lcstore.terminal.foreseen import foresee, foreseen
from lcstore.terminal.table import Table
from lcstore.terminal.ways import from_a_copy
from lcstore.units import counted

if TYPE_CHECKING:
    from lcstore.maintain.sizing import Forecast
    from lcstore.repair.repaired import RepairReport

_STATE = "state"


def repair(
    url: Url,
    apply: Apply = False,
    level: Annotated[Level, typer.Option("--level", help=LEVEL_HELP)] = Level.checksum,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Set aside what is damaged, and keep all that is whole. Only shows it, unless --apply is given.

    Exit status 1 if states were lost, errors remain, or something is to be done that --apply would do.

    Stop the writers of a damaged run first. What it condemns is deleted by `lcstore collect`. What it moves
    to quarantine/ stays there until you delete that folder.
    """
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.repair.repair import repair as repair_store

        answer.whole("lcstore repair {store}")
        backend = answer.backend()
        with answer.finding(), answer.progress() as on_progress:
            report = repair_store(backend, dry_run=not apply, level=level.value, on_progress=on_progress)
        forecast = None if apply else _foreseen(answer, report)
        deeper = "" if level is Level.checksum else f" --level {level.value}"
        answer.give(report, _shown(answer.quoted, report, forecast, deeper), ok=report.ok, forecast=forecast)
    if report.remaining or report.lost or (report.dry_run and report.actions):
        raise typer.Exit(1)


def _foreseen(answer: Answer, report: RepairReport) -> Forecast | None:
    """Return what would become of the bytes without what is lost; None where records are damaged."""
    from lcstore.maintain.retire import Retired

    going = [Retired(loss.step, loss.node, loss.what, loss.reason) for loss in report.lost]
    try:
        with answer.store() as store:
            return foresee(store, going)
    except LcstoreError:
        return None


def _shown(url: str, report: RepairReport, forecast: Forecast | None, deeper: str) -> Iterator[Table | str]:
    if report.way_back:
        yield _before(url, report)
    if report.lost:
        columns = ("lost: step", "what", "can be read", "known as", "because of")
        lost = Table(*columns, right=("lost: step",), spare=["can be read"], brief=True)
        for loss in report.lost:
            lost.row(loss.step, loss.what, loss.rest, ", ".join(loss.names), loss.reason, style="red")
        yield lost
    if report.actions:
        first = "to do" if report.dry_run else "done"
        deeds = Table(first, "step", "what", "object", right=("step",), spare=["object"], brief=True)
        for action in report.actions:
            deeds.row(action.deed, action.step, action.message, action.key)
        yield deeds
    yield from findings(report.remaining)
    yield from foreseen(forecast)
    yield from _summary(url, report, deeper)


def _before(url: str, report: RepairReport) -> str:
    """Return what is to be done before a repair that would let go of what may be there."""
    return f"{report.way_back}, before any repair. Then: lcstore verify {url}"


def _what_to_save(report: RepairReport) -> Iterator[str]:
    """Yield what can be read of states that are let go of as a whole, and how to save it."""
    readable = [loss for loss in report.lost if loss.what == _STATE and loss.rest]
    if not readable:
        return
    last = readable[-1]
    yield (
        f"Weights or buffers are lost of {counted(len(readable), 'state')}, and a repair lets go of all of "
        f"it. What else there is can be read until a collect deletes it. To save it, as of step {last.step}, "
        f"in Python: lcstore.open({report.url!r}, 'r').restore({last.node!r}, {last.rest})"
    )


def _summary(url: str, report: RepairReport, deeper: str) -> list[str]:
    latest = "none can be restored" if report.latest is None else f"the latest of step {report.latest}"
    left = f"{counted(report.states, 'state')}, {latest}"
    if report.ok:
        seen = f" at level {report.level}" * (report.level != "restore")
        return [f"Nothing to repair{seen}: {left}."]
    from lcstore.check.findings import UNRECORDED

    lines = list(_what_to_save(report))
    if report.lost and report.dry_run:
        none = "No state would be left. " if report.latest is None else ""
        lines.append(f"{none}{from_a_copy(url)}")
    if report.way_back:
        lines.append(f"Nothing was changed. It would leave {left}. {_before(url, report)}")
    elif report.actions and report.dry_run:
        lines.append(
            f"Nothing was changed. It would leave {left}. To do it: lcstore repair {url}{deeper} --apply"
        )
    elif report.actions:
        lines.append(
            f"Repaired: {left}. To delete what is not needed any more: lcstore collect {url} --apply"
        )
    if report.remaining:
        lines.append(f"Errors that no repair can mend, shown above: {len(report.remaining)}.")
    if any(one.check == UNRECORDED for one in report.remaining):
        lines.append(from_a_copy(url))
    return lines
