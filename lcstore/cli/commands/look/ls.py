"""``lcstore ls``: what states a store has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lcstore.errors import InvalidInputError
from lcstore.graph.lines import backwards
from lcstore.index.gone import all_gone
from lcstore.terminal.answer import Answer, answering
from lcstore.terminal.arguments import AsJson, BestBy, Options, Pairs, Run, Url, as_run
from lcstore.terminal.bests import by_of, give_bests
from lcstore.terminal.stores import below_of, list_stores, lost_of, metrics_text
from lcstore.terminal.table import Table, brief_ids, counted, size

if TYPE_CHECKING:
    from lcstore.index.info import StepInfo
    from lcstore.index.states import Listed

_BYTES = ("stored", "parity", "ratio")
_COLUMNS = ("step", "", "run", "kind", *_BYTES, "error", "exact", "metrics", "tags", "created (UTC)")
_FAST = ("step", "", "run", "kind", "weights", "tags")
_NUMBERS = ("step", "run", "stored", "parity", "weights", "ratio", "error")
#: What is said of the state that a run went on from where it is not kept, by what is known of it.
_ORIGINS = {"retired": "{}, let go of", "before": "{} or later"}
_SPARE = (
    "parity", "created (UTC)", "exact", "error", "run", "ratio", "metrics", "kind", "tags", "weights",
    "stored",
)  # fmt: skip


def ls(
    url: Url,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Only so many, the ones of the greatest steps.")
    ] = None,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Read no records: names tell step, kind, bytes of weights, tags."),
    ] = False,
    retired: Annotated[
        bool, typer.Option("--retired", help="Also those that were let go of and are still there.")
    ] = False,
    runs: Annotated[bool, typer.Option("--runs", help="The runs, and the steps that each saved.")] = False,
    best: BestBy = None,
    run: Run = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """List the states of a store, by step; or the stores below a URL, each with its latest metrics.

    `error` is how far restored weights are off, in units of how far they move from save to save, by a sample
    of each tensor: it may miss what a few weights do. Anchors and exact states have none.

    --best shows the best state of each store, or of each run of one, with what differs of their metadata.

    Where states share a step, the beginnings of their nodes' ids tell them apart: URL@ID names one. Stores
    are looked for eight folders deep. What has no room in the terminal is left out, and told: --json has all.
    """
    by = by_of(best, alone=not (fast or limit or retired))
    with answering(url, as_json, options, pairs) as answer:
        below = below_of(answer)
        if below and run is not None:
            raise InvalidInputError(f"{answer.url} is a place of {len(below)} stores: --run goes with one")
        if below:
            list_stores(answer, below, fast=fast, by=by)
            return
        words = "reading records (--fast reads names only)"
        with answer.store() as store, answer.progress(words) as on_progress:
            found = store.states(
                run=run and as_run(run),
                records=best is not None or not (fast or runs),
                limit=limit,
                retired=retired,
                on_progress=on_progress,
            )
            every = [] if found and not runs else store.states(records=False, retired=True)
            hidden = 0 if found else len(every)
            lost = "" if found or every else lost_of(store)
        columns = _FAST if fast else _COLUMNS
        shown = _table(found, columns, named=retired) if found else [_why_none(answer, hidden, lost)]
        if by is not None and found:
            give_bests(answer, found, by, run)
        elif runs or by is not None:
            rows = _runs(found, every) if runs else []
            answer.give({"url": url, "runs": rows}, [_run_table(rows)] if rows else shown)
        else:
            answer.give({"url": url, "states": map(_facts, found)}, shown)
        broken = [state for state in found if state.problem is not None]
        if broken:
            first, count = broken[0].problem, len(broken)
            command = f"lcstore verify {answer.quoted}"
            answer.note(f"{counted(count, 'record')} could not be read; the first: {first}. Next: {command}")
        if lost and as_json:
            answer.note(f"{lost}. Next: lcstore verify {answer.quoted}")
        if broken or lost:
            raise typer.Exit(1)


def _why_none(answer: Answer, hidden: int, lost: str) -> str:
    if lost:
        return f"{lost}: lcstore verify {answer.quoted}"
    if hidden:
        return f"{all_gone(hidden)}: lcstore ls {answer.quoted} --retired"
    return f"{answer.url} is a store without a state yet: a training run has still to save into it"


def _facts(state: Listed) -> dict[str, Any]:
    info = state.info
    about: dict[str, Any] = {
        "step": state.step,
        "node": state.node,
        "base": state.base,
        "kind": state.kind,
        "run": state.run,
        "run_id": state.run_id,
        "latest": state.latest,
        "bytes_weights": state.bytes_weights,
    } | labels(state)
    if state.problem is not None:
        return about | {"problem": {"kind": state.problem.kind, "message": str(state.problem)}}
    if info is None:
        return about
    return about | {
        "bytes_stored": info.bytes_stored,
        "bytes_parity": info.bytes_parity,
        "bytes_raw": info.bytes_raw,
        "ratio": ratio_of(info),
        "error": info.error,
        "row_error": info.row_error,
        "not_finite": info.not_finite,
        "moments_not_finite": info.moments_not_finite,
        "exact": info.exact,
        "metrics": info.metrics,
        "metadata": info.metadata,
        "created": info.created,
    }


def ratio_of(info: StepInfo) -> float:
    """Return how many times fewer bytes a state takes than it has."""
    return info.bytes_raw / max(info.bytes_stored, 1)


def labels(state: Listed) -> dict[str, Any]:
    """Return the tags, pins and marks that a state got since it was saved, for ``--json``."""
    pins = {"pinned": bool(state.pinned_by), "pinned_by": state.pinned_by}
    pins |= {"brought_back": state.brought_back}
    gone = {"retired": state.retired, "condemned": state.condemned, "without": state.without}
    return {"tags": state.tags} | pins | gone


def marked(state: Listed) -> str:
    """Return the marks of a state as text."""
    marks = {
        "latest": state.latest,
        "pinned": bool(state.pinned_by),
        "brought back": state.brought_back,
        "retired": state.retired and not state.condemned,
        "being collected": state.condemned,
        "in part": bool(state.without),
    }
    return ", ".join(mark for mark, true in marks.items() if true)


def _table(found: list[Listed], columns: tuple[str, ...], *, named: bool) -> Iterator[Table]:
    """Yield the states; with their nodes where steps and runs do not tell them apart, or they are `named`."""
    ids: defaultdict[int, set[str]] = defaultdict(set)
    for state in found:
        ids[state.run].add(state.run_id)
    shared = {run for run, those in ids.items() if len(those) > 1}
    if named or shared or len({state.step for state in found}) < len(found):
        columns = ("step", "node", *columns[1:])
    brief = brief_ids([state.node for state in found])
    shown = Table(*columns, right=_NUMBERS, spare=[name for name in _SPARE if name in columns], one_line=True)
    for state in found:
        cells = _cells(state) | {"node": brief[state.node]}
        if state.run in shared:  # they began at the same time, and their ids tell them apart
            cells["run"] = f"{state.run} ({state.run_id})"
        shown.row(*(cells[name] for name in columns))
    yield shown


def _runs(found: list[Listed], every: list[Listed]) -> list[dict[str, Any]]:
    """Return what states tell of their runs, the first run first; `every` has those let go of too."""
    of: defaultdict[tuple[int, str], list[Listed]] = defaultdict(list)
    for state in found:
        of[state.run, state.run_id].append(state)
    known = {state.node: state for state in every}
    before = {one.node: one.base if one.base in known else one.came_from for one in every}
    line = {node: base for node, base in before.items() if base in known}
    skips = {node for node, base in line.items() if base != known[node].base}
    rows = []
    for (run, run_id), states in sorted(of.items()):
        steps = [state.step for state in states]
        first = min(states, key=lambda state: state.seq)
        way = [*backwards(line, first.node)]
        place = next((at for at, node in enumerate(way) if known[node].run_id != run_id), len(way))
        own, began = [first.node, *way[:place]], known[way[place]] if place < len(way) else None
        rows.append(
            {
                "run": run,
                "id": run_id,
                "states": len(steps),
                "first_step": min(steps),
                "last_step": max(steps),
                "from_run": None if began is None else began.run,
                "from_step": None if began is None else began.step,
                "from_is": _origin(began, gone=not skips.isdisjoint(own)),
            }
        )
    return rows


def _origin(began: Listed | None, *, gone: bool) -> str | None:
    """Return what the state is that a run began from: the nearest one before, where that is gone."""
    if began is None:
        return None
    return "before" if gone else "retired" if began.retired else "kept"


def _run_table(rows: list[dict[str, Any]]) -> Table:
    names = [name for name in rows[0] if name != "from_is" and (len(rows) > 1 or not name.startswith("from"))]
    columns = [name.replace("_", " ") for name in names]
    shown = Table(*columns, right=[name for name in columns if name != "id"])
    for row in rows:
        cells = dict(row)
        if row["from_is"] in _ORIGINS:
            cells["from_step"] = _ORIGINS[row["from_is"]].format(row["from_step"])
        shown.row(*(cells[name] for name in names))
    return shown


def _cells(state: Listed) -> dict[str, object]:
    info = state.info
    cells: dict[str, object] = dict.fromkeys(_COLUMNS, "") | {
        "step": state.step,
        "": marked(state),
        "run": state.run,
        "kind": state.kind,
        "weights": "" if state.bytes_weights is None else size(state.bytes_weights),
        "tags": ", ".join(state.tags),
    }
    if info is None:
        return cells | {"metrics": "record cannot be read" if state.problem is not None else ""}
    return cells | {
        "stored": size(info.bytes_stored),
        "parity": size(info.bytes_parity) if info.bytes_parity else "",
        "ratio": f"{ratio_of(info):.1f}x",
        "error": "" if info.error is None else f"{info.error:.2f}",
        "exact": "yes" if info.exact else "",
        "metrics": metrics_text(info.metrics),
        "created (UTC)": info.created[:19].replace("T", " "),
    }
