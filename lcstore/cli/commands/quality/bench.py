"""``lcstore bench``: the policies of lcstore beside what others do, on the user's own checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, FileFormat, FileOptions, Files, StepsFrom, from_json
from lcstore.terminal.table import Table, counted, size
from lcstore.terminal.ways import objects_left_out

if TYPE_CHECKING:
    from lcstore.exchange.benching import BenchReport, Method


def bench(
    files: Files,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Compare this one; repeatable. All presets if not given."),
    ] = None,
    steps_from: StepsFrom = None,
    format: FileFormat = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads of lcstore; one per core if not given.")
    ] = None,
    as_json: AsJson = False,
    file_options: FileOptions = None,
) -> None:
    """Compare the policies of lcstore with what others do, on checkpoint files of a run of yours.

    Ratio, error and seconds of each, in one table. Of two files or more the first becomes an anchor and the
    others deltas; of one file only the anchor is seen. Nothing is written.
    """
    options_of_files = from_json("--file-options", file_options)
    with answering("", as_json) as answer:
        from lcstore.exchange.benching import POLICIES
        from lcstore.exchange.benching import bench as measure

        answer.next = ""
        with answer.progress() as on_progress:
            report = measure(
                files,
                steps_from=steps_from,
                format=format,
                policies=policy or POLICIES,
                threads=threads,
                file_options=options_of_files,
                on_progress=on_progress,
            )
        answer.give(report, _shown(report))


def _shown(report: BenchReport) -> Iterator[Table | str]:
    deltas = len(report.files) > 1
    numbers = ("anchor", "smaller", "deltas", "smaller", "error", "in intervals", "seconds")
    shown = Table("method", *(numbers if deltas else ("size", "smaller", "error", "seconds")),
                  right=(*numbers, "size"), title=_title(report))  # fmt: skip
    for method in report.methods:
        error = f"{method.error:.2g}" if method.error else "none"
        seconds = f"{method.seconds:.1f}"
        first = (size(method.bytes_first), _ratio(report.bytes_first, method.bytes_first))
        if not deltas:
            shown.row(method.name, *first, error, seconds)
            continue
        others = (size(method.bytes_others), _ratio(report.bytes_others, method.bytes_others))
        shown.row(method.name, *first, *others, error, _intervals(method), seconds)
    yield shown
    yield (
        "Errors are those of weights in the last file, as a part of their size"
        f"{', and in how far they move from file to file' if deltas else ''}. Moments of optimizers lose "
        "something too, but not under lossless. What is not lcstore's is estimated from samples, on one "
        "thread."
    )
    if report.left_out:
        yield objects_left_out(report.left_out)
    kept = [
        f"{size(one.bytes_first + one.bytes_others + one.bytes_protection)} under {one.name}"
        for one in report.methods
        if one.bytes_protection
    ]
    if kept:
        yield (
            f"A store of {'these' if deltas else 'this'} takes {', '.join(kept)}: with parity and second "
            'copies against damage, which durability="none" leaves out. What is small is kept twice for that.'
        )
    if not deltas:
        yield (
            "One file shows the anchor alone, which is nearly of full size. What makes checkpoints small is "
            "deltas: name two files or more of one run."
        )


def _title(report: BenchReport) -> str:
    total = report.bytes_first + report.bytes_others
    return f"{counted(len(report.files), 'file')}, {size(total)} of tensors"


def _ratio(raw: float, coded: float) -> str:
    return f"{raw / coded:.1f}x" if coded else ""


def _intervals(method: Method) -> str:
    return "" if method.intervals is None else f"{method.intervals:.2f}"
