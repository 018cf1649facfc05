"""``lcstore import`` and ``lcstore export``: files of other tools to states of a store, and back."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import (
    AsJson,
    AtState,
    DurabilityOf,
    FileFormat,
    FileOptions,
    Files,
    Glob,
    MetricsOf,
    Options,
    Pairs,
    PolicyOf,
    Run,
    StepsFrom,
    Under,
    as_run,
    from_json,
    state_of,
)
from lcstore.terminal.table import Table, counted, size
from lcstore.terminal.ways import objects_left_out

if TYPE_CHECKING:
    from lcstore.exchange.exporting import ExportReport
    from lcstore.exchange.importing import ImportReport

_MOST_SHOWN = 3


def import_(
    files: Files,
    url: Annotated[str, typer.Argument(metavar="URL", help="The store; made if there is none.")],
    step: Annotated[int | None, typer.Option("--step", min=0, help="The step, of a single file.")] = None,
    steps_from: StepsFrom = None,
    format: FileFormat = None,
    under: Under = None,
    metrics: MetricsOf = None,
    policy: PolicyOf = None,
    durability: DurabilityOf = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing: show what would be done.")
    ] = False,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out what cannot be read; exit status 1 if any.")
    ] = False,
    skip_objects: Annotated[
        bool, typer.Option("--skip-objects", help="Leave out of files of torch what is no data, and name it.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="Threads to code with; one per core if not given.")
    ] = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
    file_options: FileOptions = None,
) -> None:
    """Have checkpoint files become states of a store, in the order of the steps in their names.

    Each is stored as a delta to the one before. Files whose states are there are passed over, so it may be
    stopped at any time and run again. Nothing is taken away, from the store or of the files, and nothing in a
    file is run.
    """
    options_of_files = from_json("--file-options", file_options)
    if _is_swapped(files[0], url):
        command = shlex.join(["lcstore", "import", *files[1:], url, files[0]])
        raise typer.BadParameter(f"{url} is no store, which is named last: {command}")
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.exchange.importing import import_files

        answer.next = ""
        with answer.progress() as on_progress:
            report = import_files(
                files,
                url,
                step=step,
                steps_from=steps_from,
                format=format,
                under=under,
                metrics=metrics or (),
                policy=policy,
                durability=cast(Any, durability),
                dry_run=dry_run,
                skip_broken=skip_broken,
                skip_objects=skip_objects,
                threads=threads,
                storage_options=answer.storage_options,
                file_options=options_of_files,
                on_progress=on_progress,
            )
        answer.give(report, _imported(answer, report), ok=report.ok)
    if not report.ok:
        raise typer.Exit(1)


def _is_swapped(first: str, last: str) -> bool:
    """Return whether the store was named first, as far as files of this machine tell."""
    is_store = [os.path.exists(os.path.join(path, "lcstore.json")) for path in (first, last)]
    return os.path.exists(last) and not is_store[1] and (is_store[0] or not glob.glob(first))


def _imported(answer: Answer, report: ImportReport) -> Iterator[Table | str]:
    numbers = ("step", "bytes", "stored")
    shown = Table("step", "file", "format", "bytes", "", "stored", right=numbers, spare=("format",))
    for one in report.files:
        now = size(one.bytes_stored) if one.bytes_stored else ""
        shown.row(one.step, one.url, one.format, size(one.nbytes), one.outcome, now)
    yield shown
    if report.left_out:
        first, more = report.left_out[0], len(report.left_out) - _MOST_SHOWN
        names = ", ".join(map(shlex.quote, report.left_out[:_MOST_SHOWN])) + f" and {more} more" * (more > 0)
        alone = f"lcstore import {shlex.quote(first)} URL --step NUMBER"
        yield f"Left out, as nothing tells which step they are of: {names}. To import one by itself: {alone}"
    if objects := dict.fromkeys(name for one in report.files for name in one.left_out):
        yield f"{objects_left_out(objects)} States have None in such places."
    yield from (f"{one.outcome.title()}: {answer.named(one.problem)}" for one in report.files if one.problem)
    new = [one for one in report.files if one.outcome != "there" and not one.problem]
    nbytes = sum(one.nbytes for one in new)
    there = sum(one.outcome == "there" for one in report.files)
    passed = f"; {there} are there already" if there else ""
    if report.dry_run:
        yield f"Nothing was changed. Without --dry-run: {counted(len(new), 'file')}, {size(nbytes)}{passed}."
        return
    if not new:
        yield f"Nothing to import: {counted(there, 'file')} {'is' if there == 1 else 'are'} there already."
        return
    stored = sum(one.bytes_stored for one in new)
    yield f"Imported: {counted(len(new), 'file')}, {size(nbytes)}, stored in {size(stored)}{passed}."
    lossy = sum(one.exact is False for one in new)
    if lossy:
        are = f"{lossy} of them {'is' if lossy == 1 else 'are'} lossy"
        way = "To keep every bit: import into a store of its own with --policy lossless."
        yield f"By the policy {report.policy}, {are}. {way}"
    yield f"To look at them: lcstore ls {answer.quoted}"


def export(
    target: Annotated[
        str, typer.Argument(metavar="URL[@STEP]", help="A store; a step of it, latest, a tag or a node's id.")
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="Where to: a path, or any URL that fsspec opens.")
    ],
    glob: Glob = None,
    format: Annotated[
        str | None,
        typer.Option("--format", help="safetensors, torch, npz or zarr; by the ending of FILE if not given."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Take the place of what is there.")] = False,
    at: AtState = None,
    run: Run = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
    file_options: FileOptions = None,
) -> None:
    """Write a state to a file: .safetensors, .pt, .npz or .zarr; the latest, if no step is named.

    Tensors are called by their names, joined with dots: with 'model/**' as model.load_state_dict has them.
    Plain values and nesting are kept beside them, so that lcstore import gives the whole state back. A .pt is
    nested, and with 'model/**' is what load_state_dict takes: lcstore import --under model takes it back.
    """
    url, named = state_of(target, at)
    options_of_file = from_json("--file-options", file_options)
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.exchange.exporting import export as export_state

        with answer.store() as store:
            snapshot = store.at(named, run=run and as_run(run))
            answer.next = ""
            with answer.progress() as on_progress:
                report = export_state(
                    snapshot,
                    file,
                    names=glob,
                    format=format,
                    overwrite=overwrite,
                    storage_options=options_of_file,
                    on_progress=on_progress,
                )
        answer.give(report, _exported(report))


def _exported(report: ExportReport) -> Iterator[str]:
    values = f" and {counted(report.values, 'plain value')}" if report.values else ""
    tensors = f"{counted(report.tensors, 'tensor')}, {size(report.nbytes)}"
    yield f"Exported: step {report.step} to {shlex.quote(report.url)}, as {report.format}: {tensors}{values}."
    if not report.exact:
        off = "" if report.error is None else f": weights are off by {report.error:.2f} checkpoint intervals"
        yield f"The state was saved lossy{off}."
    if report.as_bits:
        these = f"Tensors of {', '.join(report.as_bits)} are there as their bits, in integers"
        yield f"{these}: numpy has no such dtype. docs/exchange.md has the line that gives their values."
    if report.ties and report.format != "torch":
        shown = ", ".join(f"{key} is {first}" for key, first in [*report.ties.items()][:_MOST_SHOWN])
        more = ", ..." if len(report.ties) > _MOST_SHOWN else ""
        yield f"Tied tensors are written once: {shown}{more}"
