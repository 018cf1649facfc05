"""What a report shows, gathered from the names and records of a store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from lcstore.edges.columns import Columns
from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.graph.graph import Graph
from lcstore.graph.lines import backwards, lines_of_runs, predecessors
from lcstore.graph.refs import ROOT
from lcstore.index.index import Index
from lcstore.index.recorded import policy_of_numbers
from lcstore.index.resolve import check_run
from lcstore.layout.layout import Layout
from lcstore.layout.specs import role_of
from lcstore.records.kinds import NODE
from lcstore.records.reading import read_each
from lcstore.report.facts import SavedState, StoreReport
from lcstore.report.layers import Look, tensors_seen
from lcstore.report.thin import evenly
from lcstore.storage.masking import without_secrets
from lcstore.track.policy import Policy
from lcstore.version import __version__

if TYPE_CHECKING:
    from lcstore.format.records import NodeRecord
    from lcstore.jobs.survey import OnProgress
    from lcstore.read.statistics import Stats
    from lcstore.records.reading import ReadRecord
    from lcstore.store.store import Store

#: Tensors times states that are looked at, as what they did lies in memory; and so many states at least.
_MOST_CELLS: Final = 1_000_000
_LEAST_LOOKS: Final = 200


def gather(store: Store, on_progress: OnProgress | None = None, run: int | str | None = None) -> StoreReport:
    """Return everything that a report shows of a store. No tensor is restored.

    Where a compaction would add something, some chunks of deltas are merged to see how large that gets.

    Parameters
    ----------
    store
        An open store; it may be in use meanwhile.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.
    run
        The number or id of the run whose layers are looked at; None for that of the latest state.

    Raises
    ------
    NotFoundError
        There is no such run.
    CorruptionError
        A name in the store is not one of lcstore's. (A record that cannot be read is a finding.)
    """
    index, forecast = Index(store.backend), None
    if run is not None:
        check_run(index.refresh(full=True), store.url, run)
    states, stats = saved_states(store, on_progress, index)
    line = line_of(states, index.graph, run)
    seen = tensors_seen(list(_looks(index, line)), len(line))
    if line:
        seen = replace(seen, run=line[-1].run, run_id=line[-1].run_id, beside=_beside(states, line))
    costs = store.restore_costs()
    if stats.may_be_stuck or costs.planned:
        with suppress(LcstoreError):  # verifying says so
            forecast = store.forecast()
    return StoreReport(
        url=without_secrets(store.url.removeprefix("file://")),
        created=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        software=f"lcstore {__version__}",
        stats=stats,
        states=tuple(states),
        tensors=seen,
        costs=costs,
        verified=store.verify(on_progress=on_progress),
        forecast=forecast,
    )


def saved_states(
    store: Store, on_progress: OnProgress | None = None, index: Index | None = None
) -> tuple[list[SavedState], Stats]:
    """Return the states whose records can be read, in the order of their commits, and the store in numbers.

    Parameters and errors as for `gather`; `index` is listed anew, and offered the records.
    """
    index = index or Index(store.backend)
    known, states = index.known, list[SavedState]()

    def seen(read: ReadRecord[NodeRecord]) -> None:
        if read.record is not None:
            node = keys.parse_node_key(read.key).node
            states.append(_saved(node, read.record, read.nbytes))
            known.offer(read.key, read.record, read.nbytes)

    stats = store.stats(on_progress, seen)
    graph = index.refresh(full=True)
    lines = lines_of_runs(graph, index.marks.superseded)
    found = (
        replace(state, retired=state.node in graph.hidden, line=lines.get(state.run_id, state.run_id))
        for state in states
    )
    return sorted(found, key=lambda state: (state.seq, state.run, state.node)), stats


def _saved(node: str, record: NodeRecord, nbytes: int) -> SavedState:
    error = None if record.stats.get("exact") else record.stats.get("error")
    return SavedState(
        step=record.step,
        node=node,
        run=record.run,
        run_id=record.run_id,
        seq=record.seq,
        kind="anchor" if record.edge.base == ROOT else "delta",
        created=record.created,
        bytes_raw=int(record.stats.get("bytes_raw", 0)),
        bytes_stored=_by_role(record, nbytes),
        error=None if error is None else float(error),
        metrics=dict(record.metrics),
        not_finite=int(record.stats.get("not_finite", 0)),
        moments_not_finite=int(record.stats.get("moments_not_finite", 0)),
        began_anew=_began_anew(record),
    )


def _began_anew(record: NodeRecord) -> tuple[float, float] | None:
    counted = [record.stats.get(name) for name in ("optimizer_steps", "optimizer_steps_before")]
    return None if None in counted else (float(counted[0] or 0), float(counted[1] or 0))


def _by_role(record: NodeRecord, nbytes: int) -> dict[str, int]:
    """Return the bytes of a save by what they are for, those of its record being given."""
    found: Counter[str] = Counter()
    for ref in record.edge.objects:
        name = keys.parse_data_key(ref.key)
        role = "records" if name.pool is None else "parity" if name.parity is not None else role_of(name.pool)
        found[role] += ref.nbytes
    if record.exact is not None:
        found["exact"] += record.exact.nbytes
    found["plain"] += sum(ref.nbytes for ref in record.leaves_objects)
    found["records"] += sum(part.stored.nbytes for part in record.edge.parts if part.stored is not None)
    found["records"] += nbytes * (1 + int(record.stats.get("record_copies", 0)))
    found["records"] += int(record.stats.get("bytes_besides", 0))
    return {role: count for role, count in found.items() if count}


def line_of(states: Sequence[SavedState], graph: Graph, run: int | str | None = None) -> list[SavedState]:
    """Return the states that led to the latest one that is kept, and those let go of that are still there.

    Of a run, if one is named: the states that led to its latest one.
    """
    by_node = {state.node: state for state in states}
    kept = (state for state in reversed(states) if not state.retired)
    latest = next((state for state in kept if run in (None, state.run, state.run_id)), None)
    if latest is None:
        return []
    line = [latest.node, *backwards(predecessors(graph), latest.node)]
    return [by_node[node] for node in reversed(line) if node in by_node]


def _beside(states: Sequence[SavedState], line: Sequence[SavedState]) -> int:
    """Return how many runs end, by the states that are kept, elsewhere than on a line."""
    ends = {state.run_id: state.node for state in states if not state.retired}
    return len({*ends.values()}.difference(state.node for state in line))


def _looks(index: Index, line: Sequence[SavedState]) -> Iterator[Look]:
    """Yield what is recorded of the tensors of the states of a line, as far as that can be read.

    Of many states of many tensors they are some, spread evenly.
    """
    latest = [len(look.layout.tensors) for look in _looks_at(index, line[-1:])]
    most = max(_LEAST_LOOKS, _MOST_CELLS // max([1, *latest]))
    return _looks_at(index, evenly(line, most))


def _looks_at(index: Index, line: Sequence[SavedState]) -> Iterator[Look]:
    shown = [state for state in line if state.node in index.graph]
    listed = [keys.node_key(index.name(state.node)) for state in shown]
    for read in read_each(index.backend, NODE, listed, known=index.known):
        look = None if read.record is None else _look(read.record, index.layout, read.key)
        if look is not None:
            yield look


def _look(record: NodeRecord, layout_of: Callable[[str], Layout], key: str) -> Look | None:
    """Return what is recorded of the tensors of a state; None where its layout or columns cannot be read."""
    try:
        layout = layout_of(record.edge.layout)
        columns = Columns.from_bytes(record.edge.columns, len(layout.tensors), key=key)
    except LcstoreError:
        return None  # verifying says so
    policy, rules = policy_of_numbers(record.stats) or (Policy(), False)
    exact = policy.error is None
    return Look(record.step, record.edge.base == ROOT, layout, columns, record.edge.objects, exact, rules)
