"""Letting go of a whole run, its latest state too: of two that were begun in one store, the wrong one."""

from __future__ import annotations

from collections.abc import Iterable

from lcstore.durability import Durability
from lcstore.errors import ConflictError, InvalidInputError, NotFoundError
from lcstore.format import keys
from lcstore.format.markkeys import SUPERSEDED, WHOLE_STATE, retired_key
from lcstore.format.marks import RetiredRecord, read_retired
from lcstore.graph.lines import up_to
from lcstore.graph.refs import NodeName
from lcstore.index.index import Index
from lcstore.index.listing import Listing
from lcstore.index.resolve import check_run
from lcstore.maintain.dead import not_yet, silence_of
from lcstore.maintain.retire import Retired, RetireReport, known_broken, put_retired, tags_that_go
from lcstore.read.reader import Reader
from lcstore.records.kinds import read_store_record
from lcstore.storage.backend import Backend


def retire_run(
    reader: Reader,
    durability: Durability,
    run: int | str,
    reason: str,
    *,
    after: int | None,
    run_is_dead: bool,
    dry_run: bool,
) -> RetireReport:
    """Let go of all states of a run that are not pinned; with `after`, of those after that step.

    Where no state of it is left, what it took the place of by a rewind is kept as the latest of its run
    again. Its own latest state is marked as superseded first. A writer of the run that is alive all the same
    sees that in the listing after its next commit, and saves the state again, as an anchor.

    Raises
    ------
    NotFoundError
        There is no such run, or it has no such state.
    InvalidInputError
        Two runs have that number, or no other state of the store is whole.
    ConflictError
        The run saved lately, and nobody says that it is dead.
    CorruptionError
        A record cannot be read: nothing is decided about states of which not all is known.
    """
    backend, index = reader.backend, reader.index
    index.refresh(full=True)
    ours = _nodes_of(index, reader.url, run)
    latest = ours[-1]
    shown = sorted((n for n in ours if n.node not in index.marks.hidden), key=lambda n: (n.step, n.order))
    stays: dict[str, tuple[str, ...]] = {
        n.node: (f"not after step {after}",) for n in shown if after is not None and n.step <= after
    }
    if len(stays) == len(shown):
        said = f"run {latest.run} of {reader.url} has no state after step {after}"
        raise NotFoundError(said, missing="state")
    stays |= {n.node: ("pinned",) for n in shown if n.node in index.marks.held}
    why = reason or f"run {latest.run} was let go of"
    going = [Retired(n.step, n.node, WHOLE_STATE, why, dry_run) for n in shown if n.node not in stays]
    _check_others(index, latest, {one.node for one in going})
    notes = [*tags_that_go(index, going)]
    if not run_is_dead:
        notes += _signs_of_life(backend, ours, dry_run=dry_run)
    left = {n.node for n in ours} - index.marks.hidden - {one.node for one in going}
    marks = [] if left else _supersessions(reader)
    own = [mark for mark in marks if mark.run == latest.run_id]
    notes += _protected_again(index, own, {mark.node for mark in marks if mark.run != latest.run_id})
    if not dry_run:
        # Before the run goes: an interruption leaves too much kept, not too little.
        backend.delete_many([mark.key() for mark in own])
        superseded = Retired(latest.step, latest.node, SUPERSEDED, why)
        marked = [superseded] * (latest in shown and latest.node not in stays)
        # The newest first: no state is a delta to them. So on a full disk even a few make room for the rest.
        put_retired(reader, durability, [*marked, *going[::-1]])
        index.refresh(full=True)
    kept = [name for name in shown if name.node in stays]
    steps, kept_by = tuple(name.step for name in kept), {name.node: stays[name.node] for name in kept}
    return RetireReport(reader.url, dry_run, steps, kept_by, tuple(going), tuple(notes))


def _nodes_of(index: Index, url: str, run: int | str) -> list[NodeName]:
    """Return all nodes of a run, in order of commit; of one that has a state that is not let go of."""
    if run is None:
        raise InvalidInputError("name the run, by its number or id: retire_run(2)")
    check_run(index.graph, url, run)
    latest = index.graph.latest(run)
    assert latest is not None
    names = (n for n in [*index.graph.nodes.values()] if (n.run, n.run_id) == (latest.run, latest.run_id))
    return sorted(names, key=lambda name: name.order)


def _supersessions(reader: Reader) -> list[RetiredRecord]:
    """Return the marks by which runs took the place of what had been saved upon the state they began from."""
    names, nodes = Listing.take(reader.backend, ((keys.RETIRED,),)).retired, reader.index.graph.nodes
    found = [retired_key(n) for n in names if n.what == SUPERSEDED and n.node in nodes]
    return [*map(read_retired, found, reader.executor.map(reader.backend.get, found))]


def _protected_again(index: Index, marks: Iterable[RetiredRecord], others: set[str]) -> Iterable[str]:
    """Yield which states are kept as the latest of their run again, once these marks are gone."""
    nodes = up_to(index.graph, [mark.node for mark in marks]) - index.marks.hidden
    nodes -= up_to(index.graph, others)
    runs = {(name.run, name.run_id) for name in map(index.graph.nodes.__getitem__, nodes)}
    for run, run_id in sorted(runs):
        latest = index.graph.latest(run_id)
        if latest is not None and latest.node in nodes:
            yield f"step {latest.step} stays as the latest of run {run} again, whose place this run took"


def _check_others(index: Index, latest: NodeName, going: set[str]) -> None:
    """Refuse to let go of all that can be restored."""
    records = index.shown()
    if going and not records.keys() - going - known_broken(index, records).keys():
        raise InvalidInputError(
            f"run {latest.run} ({latest.run_id}) has the only states of {index.backend.url} that can be "
            "restored: they stay. A whole store is deleted by `lcstore rm`"
        )


def _signs_of_life(backend: Backend, ours: Iterable[NodeName], *, dry_run: bool) -> list[str]:
    """Refuse to let go of a run that saved lately; in a dry run, return a note that this would be refused."""
    silence = silence_of(backend, ours, read_store_record(backend).grace_seconds, dry_run=dry_run)
    if silence.is_enough:
        return []
    force = "If it is dead, say so: --run-is-dead, or run_is_dead=True"
    if not dry_run:
        raise ConflictError(f"{not_yet(silence)}; nothing was let go of. {force}")
    return [f"now this would be refused: {not_yet(silence)}. {force}"]
