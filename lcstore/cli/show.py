"""``lcstore show``: one state, its tensors and its plain values."""

from __future__ import annotations

import math
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.cli.arguments import AsJson, AtState, Options, Pairs, state_of, storage_options
from lcstore.cli.ls import labels, marked
from lcstore.cli.opening import opened
from lcstore.cli.output import Answer, answering, row, size, table
from lcstore.errors import NotFoundError

if TYPE_CHECKING:
    from lcstore.index.info import StepInfo
    from lcstore.index.listing import Listed


def show(
    target: Annotated[
        str, typer.Argument(metavar="URL[@STEP]", help="A store; a step of it, latest, a tag or a node's id.")
    ],
    glob: Annotated[
        str | None, typer.Argument(metavar="[GLOB]", help="Only paths that match: 'model/**'.")
    ] = None,
    at: AtState = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Show what one state holds; the latest, if no step is named."""
    url, named = state_of(target, at)
    opening = storage_options(options, pairs)
    with answering(url, as_json) as answer:
        from lcstore.state.names import match, parse_name

        with opened(answer, opening) as store:
            info = store.info(named)
            states = store.states(records=False, retired=True)
            tensors, leaves = store.paths(info.node), store.leaves(info.node)
        listed = next((state for state in states if state.node == info.node), None)
        if glob is not None:
            tensors = {path: about for path, about in tensors.items() if match(glob, parse_name(path))}
            leaves = {path: value for path, value in leaves.items() if match(glob, parse_name(path))}
            if not tensors and not leaves:
                whole = info.node if listed is not None and listed.retired else info.step
                answer.next = f"lcstore show {shlex.quote(f'{url}@{whole}')}"
                raise NotFoundError(f"nothing at step {info.step} matches {glob!r}")
        if as_json:
            answer.document(_document(url, info, listed, tensors, leaves))
        else:
            _print(answer, info, listed, tensors, leaves)


def _document(
    url: str,
    info: StepInfo,
    listed: Listed | None,
    tensors: dict[str, tuple[tuple[int, ...], str, str]],
    leaves: dict[str, object],
) -> dict[str, Any]:
    about = {
        path: {"shape": shape, "dtype": dtype, "role": role} for path, (shape, dtype, role) in tensors.items()
    }
    ratio = info.bytes_raw / max(info.bytes_stored, 1)
    found = {"url": url, "ratio": ratio} | asdict(info) | {"tensors": about, "values": leaves}
    return found if listed is None else found | labels(listed)


def _print(
    answer: Answer,
    info: StepInfo,
    listed: Listed | None,
    tensors: dict[str, tuple[tuple[int, ...], str, str]],
    leaves: dict[str, object],
) -> None:
    about = table("step", str(info.step))
    ratio = info.bytes_raw / max(info.bytes_stored, 1)
    row(about, "node", info.node)
    row(about, "kind", info.kind if info.base is None else f"{info.kind} to {info.base}")
    row(about, "stored", f"{size(info.bytes_stored)} for {size(info.bytes_raw)}, {ratio:.1f}x")
    row(about, "exact", "yes: every bit comes back" if info.exact else "no")
    if info.error is not None:
        row(about, "error", f"{info.error:.2f} checkpoint intervals")
    if info.row_error is not None:
        row(about, "worst row", f"off by {info.row_error:.1%} of its size, among those looked at")
    row(about, "run", f"{info.run} ({info.run_id}), commit {info.seq}")
    row(about, "created", info.created)
    for name, values in (("metrics", info.metrics), ("metadata", info.metadata)):
        if values:
            row(about, name, ", ".join(f"{key} {value}" for key, value in values.items()))
    if listed is not None and listed.tags:
        row(about, "tags", ", ".join(listed.tags))
    if listed is not None and marked(listed):
        row(about, "marked", marked(listed))
    answer.console.print(about)
    if tensors:
        shown = table("tensor", "shape", "dtype", "kept as", "elements", right=("elements",))
        for path, (shape, dtype, role) in tensors.items():
            kept = role.replace("_", " ")
            row(shown, path, "x".join(map(str, shape)) or "scalar", dtype, kept, f"{math.prod(shape):,}")
        answer.console.print(shown)
    if leaves:
        values_table = table("value", "type", "is")
        for path, value in leaves.items():
            text = repr(value)
            row(values_table, path, type(value).__name__, text if len(text) <= 100 else f"{text[:97]}...")
        answer.console.print(values_table)
