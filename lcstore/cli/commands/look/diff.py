"""``lcstore diff``: what changed from one state to another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.errors import NotFoundError
from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import AsJson, Glob, Options, Pairs, Run, as_run, as_state, split_at
from lcstore.terminal.table import Table, brief, shape_text

if TYPE_CHECKING:
    from lcstore.store.store import Store
    from lcstore.walks.diff import Diff, Side, TensorDiff

_COLUMNS = ("tensor", "relative", "error", "growth", "norm", "changed", "largest", "shape", "dtype", "")
_NUMBERS = ("relative", "error", "growth", "norm", "changed", "largest")
_MOSTLY_ERROR = (
    "error: about how much of `relative` is what the two saves left out. Where that is most of it, compare "
    "states that are further apart, or exact ones."
)


class Sort(StrEnum):
    """What a table of differences is sorted by."""

    relative = "relative"
    growth = "growth"
    norm = "norm"
    path = "path"


def diff(
    first: Annotated[
        str,
        typer.Argument(metavar="URL@A", help="A store and a state of it: step, latest, tag or node's id."),
    ],
    second: Annotated[
        str,
        typer.Argument(metavar="URL@B", help="Another state, of any store; @B, or a step, for the same one."),
    ],
    glob: Glob = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only so many tensors.")] = None,
    sort: Annotated[
        Sort, typer.Option("--sort", help="What the tensors are sorted by; the largest first.")
    ] = Sort.relative,
    run: Run = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Compare two states, tensor by tensor; the most changed first, optimizers and counters last.

    Those that restore the same are counted, and how many of these may differ by their errors. What differs of
    their metrics and metadata stands below.
    """
    url, a = split_at(first)
    if a is None and glob is not None and second.isdecimal() and glob.isdecimal():
        raise typer.BadParameter(f"name the states so: lcstore diff {first}@{second} @{glob}")
    second = f"@{second}" if second.isdecimal() else second
    other, b = (url, _state(second)) if second.startswith("@") else split_at(second)
    with answering(url, as_json, options, pairs) as answer:
        with answer.store() as store:
            if other == url:
                found = store.diff(a, b, glob, run=run and as_run(run))
                if found.a == found.b:
                    _tell_of_others(answer, store, found.a)
            else:
                answer.url = other
                with answer.store() as another:
                    found = store.diff(a, b, glob, run=run and as_run(run), other=another)
        if glob is not None and not found.tensors and not found.values:
            raise NotFoundError(f"nothing in either state matches {glob!r}", missing="tensor")
        ranked = found.sorted(sort.value)
        differing = [one for one in ranked if one.status != "same"]
        answer.give(_facts(found, ranked[:limit]), _tables(found, differing, limit))


def _tell_of_others(answer: Answer, store: Store, side: Side) -> None:
    """Say of a state that is compared with itself by which ids there are others of its step."""
    states = store.states(records=False)
    others = [state.node for state in states if state.step == side.step and state.node != side.node]
    if others:
        answer.note(f"both are one state; by id there is also {', '.join(f'@{node}' for node in others)}")


def _state(text: str) -> int | str:
    if len(text) == 1:
        raise typer.BadParameter("'@' names no state: write @1000, or @latest")
    return as_state(text[1:])


def _facts(found: Diff, shown: list[TensorDiff]) -> dict[str, Any]:
    from lcstore.state.tree import MISSING

    values = {
        path: {
            name: value for name, value in zip(("before", "after"), pair, strict=True) if value is not MISSING
        }
        for path, pair in found.values.items()
    }
    return {
        "a": found.a,
        "b": found.b,
        "tensors": map(_numbers, shown),
        "count": len(found),
        "total": _numbers(found.total),
        "values": values,
    }


def _numbers(one: TensorDiff) -> dict[str, Any]:
    """Return a difference as JSON; what could not be compared has no numbers."""
    about = asdict(one) | {"is_mostly_error": one.is_mostly_error, "may_differ": one.may_differ}
    if not one.size:
        about |= dict.fromkeys(("norm", "relative", "changed", "largest", "scale", "growth"))
    if math.isnan(one.error):
        about["error"] = None
    return about


def _tables(found: Diff, differing: list[TensorDiff], limit: int | None) -> Iterator[Table | str]:
    a, b = found.a, found.b
    where = a.url if a.url == b.url else f"{a.url} to {b.url}"
    yield f"{where}, step {' to '.join(found.steps)}"
    if differing:
        table = Table(*_COLUMNS, right=_NUMBERS, spare=("dtype", "largest", "norm", "changed"))
        for one in differing[:limit]:
            table.row(*_cells(one))
        if len(found) > 1:
            left = len(differing) - len(differing[:limit])
            table.row(f"all {len(found)}" + f" ({left} not shown)" * (left > 0), *_cells(found.total)[1:])
        yield table
        if any(one.is_mostly_error for one in differing):
            yield _MOSTLY_ERROR
    yield from found.said_of_same()
    if found.values:
        values = Table("value", "before", "after")
        for path, (before, after) in found.values.items():
            values.row(path, brief(before, 60), brief(after, 60))
        yield values
    yield from found.said_of_labels()


def _cells(one: TensorDiff) -> tuple[object, ...]:
    from lcstore.walks.diff import cells_of

    numbers, note = cells_of(one)
    sides = [side for side in (one.before, one.after) if side is not None]
    shapes, dtypes = (shape_text(side.shape) for side in sides), (side.dtype for side in sides)
    return (one.path, *numbers, *(" to ".join(dict.fromkeys(both)) for both in (shapes, dtypes)), note)
