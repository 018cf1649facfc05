"""``lcstore verify``: is everything that was committed still there, and what it was?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.cli.arguments import AsJson, Options, Pairs, Url, storage_options
from lcstore.cli.output import Answer, answering, printable, progress, row, size, table

if TYPE_CHECKING:
    from lcstore.index.findings import Finding, Report

_STYLES = {"error": "red", "warning": "yellow", "info": None}
_MOST_SHOWN = 100
LEVEL_HELP = (
    "structure: records, and lengths of objects; checksum: every byte; decode: every frame; "
    "restore: every edge leads to the values committed."
)


class Level(StrEnum):
    """How thoroughly to look."""

    structure = "structure"
    checksum = "checksum"
    decode = "decode"
    restore = "restore"


def verify(
    url: Url,
    level: Annotated[Level, typer.Option("--level", help=LEVEL_HELP)] = Level.structure,
    sample: Annotated[
        str | None,
        typer.Option(
            "--sample", metavar="N/T", help="Only the N-th of T parts of the objects: 1/10, 2/10, ..."
        ),
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option("--max-seconds", min=0.001, help="Stop in time, and say how far it got.")
    ] = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Look for damage. Changes nothing; exit status 1 if anything is damaged."""
    opening = storage_options(options, pairs)
    part = _sample(sample)
    with answering(url, as_json) as answer:
        from lcstore.check.verify import verify as verify_store
        from lcstore.storage.targets import open_backend

        answer.next = f"lcstore doctor {answer.quoted}"
        # Not through `lcstore.open`: it refuses a store whose own record is damaged.
        backend = open_backend(url, opening)
        with phases(as_json) as on_progress:
            report = verify_store(backend, level.value, on_progress, sample=part, max_seconds=max_seconds)
        if as_json:
            answer.document(asdict(report) | {"ok": report.ok})
        else:
            _print(answer, report)
    if not report.ok:
        raise typer.Exit(1)


@contextmanager
def phases(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Show a progress bar for each thing that is being done."""
    with progress(quiet) as bar:
        tasks = {}

        def on_progress(phase: str, done: int, total: int) -> None:
            if phase not in tasks:
                tasks[phase] = bar.add_task(phase)
            bar.update(tasks[phase], completed=done, total=total)

        yield on_progress


def _sample(text: str | None) -> tuple[int, int]:
    """Return N and T of ``N/T``."""
    if text is None:
        return 1, 1
    number, slash, of = text.partition("/")
    if slash and number.isascii() and number.isdigit() and of.isascii() and of.isdigit():
        part = int(number), int(of)
        if 1 <= part[0] <= part[1]:
            return part
    raise typer.BadParameter("--sample takes N/T: 1/10 to 10/10, say")


def print_findings(answer: Answer, findings: tuple[Finding, ...]) -> None:
    """Print what was found, the gravest first."""
    if not findings:
        return
    shown = table("", "step", "object", "what", right=("step",))
    for found in findings[:_MOST_SHOWN]:
        row(shown, found.severity, found.step, found.key, found.message, style=_STYLES[found.severity])
    answer.console.print(shown)
    if len(findings) > _MOST_SHOWN:
        answer.console.print(f"... and {len(findings) - _MOST_SHOWN} more: --json has them all")


def print_lines(answer: Answer, lines: list[str]) -> None:
    """Print plain lines."""
    for line in lines:
        answer.console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


def _print(answer: Answer, report: Report) -> None:
    print_findings(answer, report.findings)
    print_lines(answer, _summary(answer.quoted, report))


def _summary(url: str, report: Report) -> list[str]:
    done = {"structure": "", "checksum": " and compared", "decode": " and decoded", "restore": " and proved"}
    read = f", {size(report.bytes_read)} read{done[report.level]}" if report.level != "structure" else ""
    looked = f"{report.states} states, {report.objects} objects{read} in {report.seconds:.1f} s"
    if report.skipped:
        looked += f"; {report.skipped} objects not looked at"
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
    lines.append(f"What a repair would do, and save: lcstore repair {url}")
    return lines
