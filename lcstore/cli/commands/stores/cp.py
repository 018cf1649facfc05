"""``lcstore cp``: copy a whole store to another place."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Pairs, split_at, storage_options
from lcstore.terminal.table import counted, size

if TYPE_CHECKING:
    from lcstore.copying.copy import CopyReport


def cp(
    source: Annotated[str, typer.Argument(metavar="URL", help="The store.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where to: a place that is new or empty.")],
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Read what is there already, too, and set aside and replace what is damaged."
        ),
    ] = False,
    to_options: Annotated[
        str | None,
        typer.Option(
            "--to-options", metavar="JSON", help="Options for the second target; -o is the first's."
        ),
    ] = None,
) -> None:
    """Copy a store between any two targets, checking every byte on the way.

    What was committed when it began is copied, whoever writes to the store meanwhile. Run again, it goes on:
    what is there already, as long as it should be, is passed over, and states that the store has collected
    since stay in the copy. A target that holds another store is refused. Exit status 1 also where all states
    are let go of in the target, by marks of its own.
    """
    second = storage_options(to_options, None)
    if split_at(target)[1] is not None:
        raise typer.BadParameter(f"{target!r} would be read as a state, URL@STEP: choose a name without an @")
    with answering(source, as_json, options, pairs) as answer:
        from lcstore.store.whole import copy

        answer.whole("lcstore export {state} state.safetensors")
        answer.next = ""
        with answer.finding(), answer.progress() as on_progress:
            report = copy(
                source,
                target,
                check=check,
                source_options=answer.storage_options,
                target_options=second,
                on_progress=on_progress,
            )
        answer.give(report, _shown(answer.quoted, shlex.quote(target), report), ok=report.ok)
    if not report.ok:
        raise typer.Exit(1)


def _shown(source: str, target: str, report: CopyReport) -> Iterator[str]:
    retired = f", {report.retired} that were let go of" if report.retired else ""
    copied = f"{report.objects} objects, {size(report.nbytes)}"
    checked = ", lengths and hashes checked" if report.objects else ""
    replaced = f", {report.replaced} of them in the place of damaged ones" if report.replaced else ""
    how = "their hashes agree" if report.checked else "their lengths agree; `--check` compares hashes"
    passed = f"; {report.passed_over} objects were there already ({how})" if report.passed_over else ""
    yield f"Copied: {report.states} states{retired}, {copied}{checked}{replaced}{passed}."
    if report.older:
        yield (
            f"{counted(report.older, 'state')} of an earlier copy stay there, which the store has collected "
            f"since; to let go of them there too: lcstore maintain {target} --keep latest:3"
        )
    if report.let_go or report.let_go_in_part:
        part = f", and parts of {report.let_go_in_part}" if report.let_go_in_part else ""
        yield (
            "Let go of there, as by a repair, which no copy takes back: "
            f"{counted(report.let_go, 'more state')}{part}. To see them: lcstore ls {target} --retired"
        )
        yield f"To have them, where TO is an empty place: lcstore cp {source} TO"
    if report.kept:
        yield (
            f"{counted(report.kept, 'state')} of which a repair of the store let go, or of parts of which, "
            f"stay there as they were. To have them, where TO is an empty place: lcstore cp {target} TO"
        )
    yield f"To look at it: lcstore ls {target}"
