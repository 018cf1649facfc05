"""``lcstore repair``: set aside what is damaged, and keep all that is whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, Url, storage_options
from lcstore.cli.output import Answer, answering, row, table
from lcstore.cli.verify import LEVEL_HELP, Level, phases, print_findings, print_lines

if TYPE_CHECKING:
    from lcstore.check.repaired import RepairReport


def repair(
    url: Url,
    apply: Annotated[bool, typer.Option("--apply", help="Do it; without this it is only said.")] = False,
    level: Annotated[Level, typer.Option("--level", help=LEVEL_HELP)] = Level.checksum,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Set aside what is damaged, and keep all that is whole; exit status 1 if anything is damaged.

    Stop the writers of a damaged run first. What is set aside is deleted by `collect` alone.
    """
    opening = storage_options(options, pairs)
    with answering(url, as_json) as answer:
        from lcstore.check.repair import repair as repair_store
        from lcstore.storage.targets import open_backend

        answer.next = f"lcstore doctor {answer.quoted}"
        # Not through `lcstore.open`: it refuses a store whose own record is damaged.
        backend = open_backend(url, opening)
        with phases(as_json) as on_progress:
            report = repair_store(backend, dry_run=not apply, level=level.value, on_progress=on_progress)
        if as_json:
            answer.document(asdict(report) | {"ok": report.ok})
        else:
            _print(answer, report)
    if not report.ok:
        raise typer.Exit(1)


def _print(answer: Answer, report: RepairReport) -> None:
    if report.lost:
        shown = table("lost: step", "what", "known as", "because of", right=("lost: step",))
        for loss in report.lost:
            row(shown, loss.step, loss.what, ", ".join(loss.names), loss.reason, style="red")
        answer.console.print(shown)
    if report.actions:
        shown = table("done" if not report.dry_run else "to do", "step", "object", "what", right=("step",))
        for action in report.actions:
            row(shown, action.deed, action.step, action.key, action.message)
        answer.console.print(shown)
    print_findings(answer, report.remaining)
    print_lines(answer, _summary(answer.quoted, report))


def _summary(url: str, report: RepairReport) -> list[str]:
    latest = "none can be restored" if report.latest is None else f"the latest of step {report.latest}"
    left = f"{report.states} states, {latest}"
    if report.ok:
        return [f"Nothing to repair: {left}."]
    lines = []
    if report.lost and report.dry_run and report.latest is None:
        lines.append("No state would be left: first bring back the objects named above from a copy.")
    if report.actions and report.dry_run:
        lines.append(f"Nothing was changed. It would leave {left}. To do it: lcstore repair {url} --apply")
    elif report.actions:
        lines.append(f"Repaired: {left}. What is not needed any more is deleted by: lcstore collect {url}")
    if report.remaining:
        lines.append(f"{len(report.remaining)} errors remain that no repair can mend; they are shown above.")
    return lines
