"""``lcstore report``: a store on one page of HTML."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Run, Url, as_run, divided, from_json
from lcstore.terminal.printing import until_unread
from lcstore.terminal.table import Table

if TYPE_CHECKING:
    from lcstore.report.facts import StoreReport

_STDOUT: Final = "-"


def report(
    url: Url,
    outputs: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Where to: a path, any URL that fsspec opens, or - for stdout; report.html if not given. "
            "KEY=VALUE is an option for the target, as of other commands.",
        ),
    ] = None,
    run: Run = None,
    as_json: AsJson = False,
    options: Options = None,
    file_options: Annotated[
        str | None, typer.Option("--file-options", metavar="JSON", help="Options for where FILE is.")
    ] = None,
) -> None:
    """Show a store on one page of HTML, which needs no network and no JavaScript.

    Bytes, layers that stand out, metrics, what restores cost, and whether all is there: by names and records,
    so that no tensor is restored. --run is of layers. A file that is there is replaced. --json prints what
    the page shows and writes no page unless a FILE is named. Exit status 1 if anything is damaged.
    """
    files, pairs = divided(outputs or [])
    options_of_file = from_json("--file-options", file_options)
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.report.extra import check_drawing
        from lcstore.report.gather import gather
        from lcstore.report.page import page_of
        from lcstore.report.writing import write_page

        file = files[-1] if files else None if as_json else "report.html"
        if file is not None:
            answer.next = ""
            check_drawing()
        with answer.store() as store, answer.progress() as on_progress:
            found = gather(store, on_progress, run and as_run(run))
        answer.next = ""
        if file == _STDOUT and not as_json:
            with until_unread():
                sys.stdout.write(page_of(found))
        elif file is not None and file != _STDOUT:
            write_page(found, file, options_of_file)
        if file != _STDOUT or as_json:
            answer.give(found, _shown(found, file), ok=found.verified.is_sound)
    if not found.verified.is_sound:
        raise typer.Exit(1)


def _shown(found: StoreReport, file: str | None) -> Iterator[Table | str]:
    from lcstore.report.words import next_commands, verdict

    yield from verdict(found)
    for command, why in next_commands(found)[:1]:
        yield f"Next: `{command}` {why}"
    yield f"The page: {file}"
