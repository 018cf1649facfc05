"""``lcstore verify``: is everything that was committed still there, and what it was?"""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, Url, storage_options
from lcstore.cli.output import Answer, answering, printable, progress, row, size, table

if TYPE_CHECKING:
    from lcstore.store.findings import Report

_STYLES = {"error": "red", "warning": "yellow", "info": None}
_MOST_SHOWN = 100


class Level(StrEnum):
    """How thoroughly to look."""

    structure = "structure"
    checksum = "checksum"


def verify(
    url: Url,
    level: Annotated[
        Level, typer.Option("--level", help="structure: records, lengths of objects; checksum: every byte.")
    ] = Level.structure,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Look for damage. Changes nothing; exit status 1 if anything is damaged."""
    opening = storage_options(options, pairs)
    with answering(url, as_json) as answer:
        from lcstore.store.targets import open_backend
        from lcstore.store.verify import verify as verify_store

        answer.next = f"lcstore doctor {answer.quoted}"
        # Not through `lcstore.open`: it refuses a store whose own record is damaged.
        backend = open_backend(url, opening)
        with progress(as_json) as bar:
            tasks = {}

            def on_progress(phase: str, done: int, total: int) -> None:
                if phase not in tasks:
                    tasks[phase] = bar.add_task(phase)
                bar.update(tasks[phase], completed=done, total=total)

            report = verify_store(backend, level.value, on_progress)
        if as_json:
            answer.document(asdict(report) | {"ok": report.ok})
        else:
            _print(answer, report)
    if not report.ok:
        raise typer.Exit(1)


def _print(answer: Answer, report: Report) -> None:
    console = answer.console
    if report.findings:
        shown = table("", "step", "object", "what", right=("step",))
        for found in report.findings[:_MOST_SHOWN]:
            row(shown, found.severity, found.step, found.key, found.message, style=_STYLES[found.severity])
        console.print(shown)
        if len(report.findings) > _MOST_SHOWN:
            console.print(f"... and {len(report.findings) - _MOST_SHOWN} more: --json has them all")
    for line in _summary(answer.quoted, report):
        console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def _summary(url: str, report: Report) -> list[str]:
    read = f", {size(report.bytes_read)} read and compared" if report.level == "checksum" else ""
    looked = f"{report.states} states, {report.objects} objects{read} in {report.seconds:.1f} s"
    if report.ok:
        deeper = f" For every byte: lcstore verify {url} --level checksum"
        return [f"Good: {looked}.{deeper if report.level == 'structure' else ''}"]
    lines = [f"Damaged: {report.count('error')} errors in {looked}."]
    if report.lost:
        steps = f"step {report.lost[0]}" if len(report.lost) == 1 else f"{len(report.lost)} states"
        span = f", of steps {report.lost[0]} to {report.lost[-1]}" if len(report.lost) > 1 else ""
        lines.append(f"Cannot be restored: {steps}{span}.")
    if report.good is not None:
        command = next((found.next for found in report.findings if found.next and "show" in found.next), "")
        lines.append(f"The latest that looks whole is step {report.good}. Next: {command}")
    elif report.states:
        lines.append("No state looks whole: bring the objects named above back from a copy of the store.")
    return lines
