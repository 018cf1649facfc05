"""``lcstore export``: write a state to a file of another tool."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import (
    AsJson,
    AtState,
    FileOptions,
    Glob,
    Options,
    Pairs,
    state_of,
    storage_options,
)
from lcstore.terminal.table import counted, size

if TYPE_CHECKING:
    from lcstore.exchange.exporting import ExportReport

_MOST_SHOWN = 3


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
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
    file_options: FileOptions = None,
) -> None:
    """Write a state to a file: .safetensors, .pt, .npz or .zarr; the latest, if no step is named.

    Tensors are called by their names, joined with dots: with 'model/**' as model.load_state_dict has them.
    Plain values and nesting are kept beside them, so that lcstore import gives the whole state back.
    """
    url, named = state_of(target, at)
    options_of_file = storage_options(file_options, None)
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.exchange.exporting import export as export_state

        with answer.store() as store:
            snapshot = store.at(named)
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
        answer.give(report, _shown(report))


def _shown(report: ExportReport) -> Iterator[str]:
    values = f" and {counted(report.values, 'plain value')}" if report.values else ""
    tensors = f"{counted(report.tensors, 'tensor')}, {size(report.nbytes)}"
    yield f"Exported: step {report.step} to {shlex.quote(report.url)}, as {report.format}: {tensors}{values}."
    if report.ties and report.format != "torch":
        shown = ", ".join(f"{key} is {first}" for key, first in [*report.ties.items()][:_MOST_SHOWN])
        more = ", ..." if len(report.ties) > _MOST_SHOWN else ""
        yield f"Tied tensors are written once: {shown}{more}"
