"""``lcstore show``: one state, its tensors and its plain values."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from lcstore.cli.commands.look.ls import labels, marked, ratio_of
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, AtState, Glob, Options, Pairs, Run, as_run, state_of
from lcstore.terminal.printing import width_of
from lcstore.terminal.table import Table, brief, counted, shape_text, size

if TYPE_CHECKING:
    from lcstore.index.info import StepInfo
    from lcstore.index.states import Listed

#: Of a state of thousands of tensors, or values, so many are shown at a terminal; all to other programs.
_MOST_SHOWN = 100
#: So many values of one list are shown as that.
_LEAST_FOLDED = 3
_ITEM = re.compile("/#[0-9]+$")
#: Shape, dtype and role by name.
Tensors: TypeAlias = dict[str, tuple[tuple[int, ...], str, str]]


def show(
    target: Annotated[
        str, typer.Argument(metavar="URL[@STEP]", help="A store; a step of it, latest, a tag or a node's id.")
    ],
    glob: Glob = None,
    at: AtState = None,
    run: Run = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Show what one state holds; the latest, if no step is named."""
    url, named = state_of(target, at)
    with answering(url, as_json, options, pairs) as answer:
        with answer.store() as store:
            info = store.info(named, run=run and as_run(run))
            states = store.states(records=False, retired=True)
            snapshot = store.at(info.node)
            wanted = set(snapshot.names(glob))
            tensors = {name: about for name, about in snapshot.tensors().items() if name in wanted}
            leaves = {name: value for name, value in snapshot.leaves().items() if name in wanted}
            anew = snapshot.set_anew() if info.base is not None else []
            updated = snapshot.updated()
        listed = next((state for state in states if state.node == info.node), None)
        about = {
            name: {"shape": shape, "dtype": dtype, "role": role}
            for name, (shape, dtype, role) in tensors.items()
        }
        said = {} if listed is None else labels(listed)
        facts = {"url": url, "ratio": ratio_of(info), "tensors": about, "values": leaves}
        shown = _shown(_about(info, listed, anew, updated), tensors, leaves)
        answer.give(info, shown, set_anew=anew, updated=updated, **facts, **said)


def _shown(about: Table, tensors: Tensors, leaves: dict[str, object]) -> Iterator[Table | str]:
    yield about
    most = sys.maxsize if width_of(sys.stdout) is None else _MOST_SHOWN
    if tensors:
        shown = Table(
            "tensor", "shape", "dtype", "kept as", "elements", right=("elements",), spare=["elements"]
        )
        for name, (shape, dtype, role) in islice(tensors.items(), most):
            kept = role.replace("_", " ")
            shown.row(name, shape_text(shape), dtype, kept, f"{math.prod(shape):,}")
        yield shown
    if leaves:
        values = Table("value", "type", "is")
        rows = _folded(leaves)
        for name, value in islice(rows.items(), most):
            values.row(name, type(value).__name__, brief(value, 100))
        yield values
        leaves = rows
    left = [f"{len(of) - most} more {what}" for what, of in
            (("tensors", tensors), ("values", leaves)) if len(of) > most]  # fmt: skip
    if left:
        yield f"... and {' and '.join(left)}: some by their names, as 'model/**'; all by a pipe or --json"


def _folded(leaves: dict[str, object]) -> dict[str, object]:
    """Return plain values by name, those that are numbered in one list as one."""
    found: dict[str, object] = {}
    for outer, names in groupby(
        leaves, key=lambda name: name[: name.rfind("/#")] if _ITEM.search(name) else ""
    ):
        inside = {name: leaves[name] for name in names}
        found |= {outer: [*inside.values()]} if outer and len(inside) >= _LEAST_FOLDED else inside
    return found


def _about(info: StepInfo, listed: Listed | None, anew: list[str], updated: dict[str, list[str]]) -> Table:
    about = Table("step", str(info.step))
    about.row("node", info.node)
    about.row("kind", info.kind if info.base is None else f"{info.kind} to {info.base}")
    about.row("stored", f"{size(info.bytes_stored)} for {size(info.bytes_raw)}, {ratio_of(info):.1f}x")
    if anew:
        why = f"new, moved too far for a delta, or laid out afresh: {', '.join(anew[:3])}"
        about.row("set anew", f"{len(anew)} of its tensors, {why}{', ...' * (len(anew) > 3)}")
    for optimizer, names in updated.items():
        first = ", ".join(f"{place} {name}" for place, name in enumerate(names[:3]))
        about.row(f"{optimizer} updates", f"by its numbers: {first}{', ...' * (len(names) > 3)}")
    if info.policy is not None:
        about.row("policy", info.policy)
    about.row("exact", "yes: every bit comes back" if info.exact else "no")
    if info.error is not None:
        about.row("error", f"{info.error:.2f} checkpoint intervals")
    if info.row_error is not None:
        about.row("worst row", f"off by {info.row_error:.1%} of its size, among those looked at")
    for what, count in (("weights", info.not_finite), ("moments", info.moments_not_finite)):
        if count:
            about.row(f"{what}: NaN", f"{counted(count, 'tensor')} with values that are NaN or infinite")
    about.row("run", f"{info.run} ({info.run_id}), commit {info.seq}")
    about.row("created", info.created)
    for name, values in (("metrics", info.metrics), ("metadata", info.metadata)):
        if values:
            about.row(name, ", ".join(f"{key} {value}" for key, value in values.items()))
    if listed is not None and listed.tags:
        about.row("tags", ", ".join(listed.tags))
    if listed is not None and marked(listed):
        about.row("marked", marked(listed))
    if listed is not None and listed.without:
        about.row("without", f"{', '.join(listed.without)}: let go of, or lost to damage")
    return about
