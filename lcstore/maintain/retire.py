"""Letting go of states, of exact values and of pools: decided by a rule, made so by records."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Final

from lcstore.compaction.diskfull import not_all_let_go
from lcstore.durability import Durability
from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.format import keys, markkeys
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import NodeRecord, utc_now
from lcstore.graph.graph import Graph
from lcstore.graph.lines import ends_of_runs, nearest, up_to
from lcstore.graph.refs import ROOT, NodeName
from lcstore.graph.sizes import Sizes
from lcstore.index.contents import read_contents
from lcstore.index.gone import none_left
from lcstore.index.index import Index
from lcstore.index.listing import OBJECTS, Listing
from lcstore.index.resolve import lost_records
from lcstore.index.standing import need_exact
from lcstore.jobs.jobs import run_all
from lcstore.jobs.survey import OnProgress
from lcstore.layout.layout import Layout
from lcstore.layout.qualified import stem_of
from lcstore.layout.specs import movable_in
from lcstore.maintain.broken import broken_states
from lcstore.maintain.redundant import redundant_of, with_room_of
from lcstore.read.reader import Reader
from lcstore.retention.base import Retention
from lcstore.retention.candidates import Candidate, tips
from lcstore.retention.choice import STRIPPED, Decision, decide
from lcstore.state.names import matcher
from lcstore.storage.backend import room_left
from lcstore.storage.put import put_record
from lcstore.storage.targets import keeps_twice
from lcstore.units import counted
from lcstore.write.naming import hide_again

#: Bytes that are kept free while states are let go of: a folder and a record, a block of a disk each.
_ROOM_TO_COLLECT: Final = 8192


@dataclass(frozen=True)
class Retired:
    """One thing that is let go of.

    Attributes
    ----------
    step, node
        The state concerned.
    what
        ``"state"``, ``"exact"`` or ``"pool.<pool>"``.
    reason
        Why.
    dry_run
        Whether it was not done, but only said.
    """

    step: int
    node: str
    what: str
    reason: str
    dry_run: bool = False

    def __str__(self) -> str:
        """Return one line for a log."""
        what = "" if self.what == markkeys.WHOLE_STATE else f", {self.what} of it"
        why = f" ({self.reason})" if self.reason else ""
        return f"{'would be ' * self.dry_run}retired: step {self.step}, node {self.node}{what}{why}"


@dataclass(frozen=True)
class RetireReport:
    """What is let go of, and what stays: by a retention rule, or of one run.

    Attributes
    ----------
    url, dry_run
        The URL of the store, and whether nothing was changed.
    kept
        Steps of the states that stay, each revision by itself: of the run, where one is let go of.
    kept_by
        By node, in the order of `kept`: what keeps it.
    retired
        What is let go of now. It is deleted by the next `collect`.
    notes
        What the user may want to know.
    none_left
        Of a store that had states and has none: that, in words; "" of any other.
    """

    url: str
    dry_run: bool
    kept: tuple[int, ...]
    kept_by: dict[str, tuple[str, ...]] = field(default_factory=dict)
    retired: tuple[Retired, ...] = ()
    notes: tuple[str, ...] = ()
    none_left: str = ""

    @property
    def states_let_go(self) -> int:
        """Of how many states all goes, and not a part alone."""
        return sum(one.what == markkeys.WHOLE_STATE for one in self.retired)

    def __str__(self) -> str:
        """Return one line for a log."""
        whole = self.states_let_go
        parts = len(self.retired) - whole
        told = f", and {counted(parts, 'part')} of states" * (parts > 0)
        would = "would be " * self.dry_run
        return f"{would}retained: {counted(len(self.kept), 'state')} kept, {whole} let go of{told}"


def retire_by(
    reader: Reader,
    durability: Durability,
    rule: Retention,
    *,
    dry_run: bool,
    on_progress: OnProgress | None = None,
) -> RetireReport:
    """Let go of what a retention rule does not keep.

    Raises
    ------
    InvalidInputError
        The rule names no state to keep.
    CorruptionError
        A record cannot be read, or none is there of what was saved: nothing is decided about states of
        which not all is known.
    """
    index = reader.index
    index.refresh(full=True)
    records, gone = index.shown(on_progress), none_left(index.graph)
    if not index.graph.nodes and (lost := lost_records(reader.backend)):
        raise CorruptionError(lost, key=keys.NODES)
    broken = known_broken(index, records)
    whole = {node: record for node, record in records.items() if node not in broken}
    decision = decide(rule, _candidates(index, whole))
    notes = [*decision.notes, *_notes(reader.url, records, broken)]
    found = (replace(one, dry_run=dry_run) for one in _going(index, records, decision, notes))
    going = sorted(found, key=lambda one: (one.step, one.node, one.what))
    notes += tags_that_go(index, going)
    if not dry_run:
        put_retired(reader, durability, going)
        index.refresh(full=True)
    # With a grace of 0 one that was to be kept may have been collected meanwhile.
    there = (name for name in map(index.graph.nodes.get, decision.kept) if name is not None)
    kept = sorted(there, key=lambda n: (n.step, n.order))
    steps = tuple(name.step for name in kept)
    kept_by = {name.node: decision.kept_by.get(name.node, ()) for name in kept}
    return RetireReport(reader.url, dry_run, steps, kept_by, tuple(going), tuple(notes), gone)


def retire_node(
    reader: Reader, durability: Durability, node: str, reason: str, *, dry_run: bool = False
) -> Retired:
    """Let go of one state.

    Raises
    ------
    NotFoundError
        It was collected meanwhile.
    InvalidInputError
        It is the latest of its run, or pinned.
    """
    index, url = reader.index, reader.url
    graph, name = index.refresh(full=True), index.name(node)
    if node in tips(_as_candidates(graph.shown())) - _superseded(index):
        raise InvalidInputError(_why_it_stays(graph, url, name))
    if node in index.marks.held:
        held = shlex.quote(f"{url}@{name.step if graph.at_step(name.step) == name else node}")
        raise InvalidInputError(f"step {name.step} is pinned: `lcstore unpin {held}` first")
    gone = Retired(name.step, node, markkeys.WHOLE_STATE, reason, dry_run)
    if node not in graph.hidden and not dry_run:
        put_retired(reader, durability, [gone])
        index.refresh(full=True)
    return gone


def _why_it_stays(graph: Graph, url: str, name: NodeName) -> str:
    """Return why the latest state of a run is not let go of, and the commands that do so all the same."""
    shown = [one for one in graph.shown() if one != name]
    steps = [one.step for one in shown if one.run_id == name.run_id]
    said = (
        f"step {name.step} is the latest state of run {name.run}, which stays: the run may go on from it. "
        "Where it went astray, go on from an earlier step with store.rewind(step), and save; "
        f"then `lcstore retire {shlex.quote(f'{url}@{name.node}')} --apply`"
    )
    if not shown or max(steps, default=-1) >= name.step:
        return said
    alone = f" --after {max(steps)}" if steps else ""
    whole = f"lcstore retire {shlex.quote(url)} --run {name.run_id}{alone} --run-is-dead --apply"
    more = " (without --after, of all states of the run)" if steps else ""
    return f"{said}. If no process goes on with that run, this lets go of the state{more} at once: `{whole}`"


def _superseded(index: Index) -> set[str]:
    """Return the nodes of runs that others took the place of; the latest of all is none.

    A repair may have let go of all that the other run had.
    """
    latest = index.graph.latest()
    return up_to(index.graph, index.marks.superseded) - ({latest.node} if latest is not None else set())


def put_retired(reader: Reader, durability: Durability, going: Sequence[Retired]) -> None:
    """Store retirements. On a disk that they fill, so much room is left that a collect can begin.

    Where there is no room, what is redundant of that which goes makes some. What `unretire`
    brought back, as of the last full listing, is hidden again once its retirement is stored.

    Raises
    ------
    StorageError
        There was no room for all of them; those that were stored hold.
    """
    backend, index = reader.backend, reader.index
    created, stored = utc_now(), set[Retired]()
    brought_back, named = index.marks.brought_back, index.named

    def put(one: Retired) -> None:
        record = RetiredRecord(one.node, one.reason, created, one.what)
        put_record(backend, record.key(), record.to_bytes())
        if one.what == markkeys.WHOLE_STATE and one.node in brought_back:
            hide_again(backend, named, one.node)
        stored.add(one)

    def put_rest() -> None:
        # A bucket has no blocks to run out of.
        with room_left(backend, 0 if keeps_twice(backend) else _ROOM_TO_COLLECT * bool(going)):
            # States last: a budget went by the exact values that stay, and means the same wherever this ends.
            for last in (False, True):
                some = [one for one in going if (one.what == markkeys.WHOLE_STATE) is last]
                run_all(reader.executor, [partial(put, one) for one in some if one not in stored])

    of = [(one.node, one.what) for one in going]
    lack = with_room_of(backend, put_rest, lambda: redundant_of(backend, index, durability, of))
    if lack is not None:
        done, wanted = (sum(one.what != markkeys.SUPERSEDED for one in some) for some in (stored, going))
        raise not_all_let_go(backend.url, done, wanted, lack.key) from lack.__cause__


def known_broken(index: Index, records: dict[str, NodeRecord]) -> dict[str, str]:
    """Return the states that are known not to restore, each with the key of an object that it lacks.

    Such a state is none of those that a rule keeps: it would take the place of a good one.
    """
    there = {*Listing.take(index.backend, OBJECTS).below(keys.DATA)}
    if all(ref.key in there for record in records.values() for ref in record.objects):
        return {}
    return broken_states(read_contents(index.backend, known=index.known), index.layout)


def _notes(url: str, records: dict[str, NodeRecord], broken: dict[str, str]) -> Iterable[str]:
    """Yield what the user is to know of states that do not restore."""
    if broken:
        steps = sorted(records[node].step for node in broken if node in records)
        said = ", ".join(map(str, steps[:5])) + (f" and {len(steps) - 5} others" if len(steps) > 5 else "")
        yield (
            f"not counted, as they are damaged: step {said} ({next(iter(broken.values()))} is missing); "
            f"run `lcstore repair {url}`"
        )


def tags_that_go(index: Index, going: Iterable[Retired]) -> Iterable[str]:
    """Yield which tags find nothing any more, or another state."""
    nodes = {one.node for one in going if one.what == markkeys.WHOLE_STATE}
    tags = [repr(tag) for tag, node in sorted(index.tagged().items()) if node in nodes]
    if tags:
        more = f" and {len(tags) - 5} others" if len(tags) > 5 else ""
        said = ", ".join(tags[:5]) + more
        yield f"tags of states that go: {said}. A pin keeps a state, a tag alone does not"


def _candidates(index: Index, records: dict[str, NodeRecord]) -> list[Candidate]:
    tags, marks = index.tags(), index.marks
    over, anchors, found = _superseded(index), dict[str, int](), []
    finite = {node for node, record in records.items() if not record.stats.get("not_finite")}
    ends = {name.node for name in ends_of_runs(index.graph, records)} - finite
    before = nearest(index.graph, ends, finite)
    for node, record in records.items():
        own, exact, layout = record.edge.nbytes, record.exact, index.layout(record.layout)
        let_go = node in marks.inexact
        if record.layout not in anchors:  # states share it, and it may be of very many tensors
            anchors[record.layout] = Sizes(movable_in(layout.tensors)).anchor
        found.append(
            Candidate(
                node=node,
                step=record.step,
                run=record.run,
                run_id=record.run_id,
                seq=record.seq,
                created=datetime.fromisoformat(record.created),
                metrics=record.metrics,
                tags=frozenset(tags.get(node, ())),
                pinned=node in marks.held,
                nbytes=own,
                anchor_bytes=own
                if record.edge.base == ROOT
                else _with_parity(record, anchors[record.layout]),
                exact=not let_go and _has_exact(layout, record),
                exact_bytes=0 if let_go or exact is None else exact.nbytes,
                superseded=node in over,
                finite_before=before.get(node),
            )
        )
    return found


def _with_parity(record: NodeRecord, anchor: int) -> int:
    """Return the bytes of an anchor of a state that has as much parity as the state's edge.

    By the state alone: a rule that is applied each night keeps what one that is applied once does.
    """
    own = record.edge.nbytes
    parity = sum(ref.nbytes for ref in record.edge.objects if keys.is_parity(ref.key))
    return anchor * own // max(1, own - parity)


def _has_exact(layout: Layout, record: NodeRecord) -> bool:
    """Return whether a state gives more than its track: an exact save, or an anchor with lossy tensors."""
    if record.exact is not None:
        return bool(record.exact.objects)
    lossy = any(spec.role == "weights" for spec in layout.tensors)
    return lossy and record.edge.base == ROOT


def _as_candidates(names: Iterable[NodeName]) -> list[Candidate]:
    ordered = sorted(names, key=lambda name: name.order)
    return [Candidate(n.node, n.step, n.run, n.run_id, n.seq) for n in ordered]


def _going(
    index: Index, records: dict[str, NodeRecord], decision: Decision, notes: list[str]
) -> Iterable[Retired]:
    for node, reason in decision.retired.items():
        yield Retired(records[node].step, node, markkeys.WHOLE_STATE, reason)
    alone = need_exact(index, decision.exact_let_go)
    for node, reason in decision.exact_let_go.items():
        step = records[node].step
        if node in alone:
            notes.append(f"step {step} keeps its exact value: what else there was of it is damaged")
        else:
            yield Retired(step, node, markkeys.EXACT_VALUE, reason)
    for node, globs in decision.stripped.items():
        record = records[node]
        gone = index.marks.stripped.get(node, frozenset())
        for pool in _pools(index.layout(record.layout), globs, notes):
            if pool not in gone:
                yield Retired(record.step, node, markkeys.pool_of(pool), f"{STRIPPED}{', '.join(globs)}")


def _pools(layout: Layout, globs: Sequence[str], notes: list[str]) -> list[str]:
    """Return the pools all of whose tensors match: less than a pool cannot be let go of."""
    matches: Callable[..., bool] = matcher(list(globs))
    found = []
    for pool in dict.fromkeys(map(stem_of, layout.pools)):
        inside = [
            # A tensor is let go of under all of its names, or not at all.
            all(map(matches, layout.names_of(spec)))
            for spec in layout.tensors
            if stem_of(spec.pool) == pool
        ]
        if inside and all(inside):
            found.append(pool)
        elif any(inside):
            note = f"{', '.join(globs)} names only some of the tensors that lie in pool {pool}: it is kept"
            if note not in notes:
                notes.append(note)
    return found
