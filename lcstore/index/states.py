"""What `ls` shows: every state of a store, from names alone or with what the records say."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from lcstore.errors import LcstoreError
from lcstore.format import keys, markkeys
from lcstore.format.records import NodeRecord
from lcstore.graph.refs import ROOT, NodeName
from lcstore.index.info import StepInfo, step_info
from lcstore.index.listing import STATES, Listing
from lcstore.index.marked import pins_by_node, tags_by_node
from lcstore.jobs.survey import OnProgress
from lcstore.records.kinds import NODE
from lcstore.records.reading import ReadRecord, read_each
from lcstore.storage.backend import Backend


@dataclass(frozen=True)
class Listed:
    """One state in a listing.

    Attributes
    ----------
    step, node, base, kind
        As in `StepInfo`.
    bytes_weights
        Bytes of the weights of its edge, as its name says; None where it counts none, as of weights that are
        kept bit for bit. `info` counts everything.
    run, run_id, seq
        Number and id of the writing handle, and the number of this commit, which rises with each.
    tags
        Names to find it by.
    latest
        Whether it is the latest commit: what is restored where no step is given.
    pinned_by
        Who pins it; "" stands for whoever did not say.
    brought_back
        Whether `unretire` brought it back, and nothing has let go of it since.
    retired
        Whether it was let go of, and is not pinned.
    condemned
        Whether something that it needs is being collected, or was set aside as damaged: it cannot be brought
        back. Names alone tell this of what was stored with it, and not of what it stands on.
    came_from
        The node that training came to it from, where that is not its base: the base is gone.
    without
        Pools that it lacks: they were let go of, or lost to damage.
    info
        What its record says; None where records were not read, or this one could not be.
    problem
        Why its record could not be read.
    """

    step: int
    node: str
    base: str | None
    kind: Literal["anchor", "delta"]
    bytes_weights: int | None
    run: int
    run_id: str
    seq: int
    tags: tuple[str, ...]
    latest: bool
    pinned_by: tuple[str, ...] = ()
    brought_back: bool = False
    retired: bool = False
    condemned: bool = False
    without: tuple[str, ...] = ()
    came_from: str | None = None
    info: StepInfo | None = None
    problem: LcstoreError | None = None

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics that were given with the save; none where its record was not read."""
        return {} if self.info is None else self.info.metrics

    @property
    def error(self) -> float | None:
        """What `StepInfo` says of it; None where that says nothing, or its record was not read."""
        return None if self.info is None else self.info.error

    @property
    def bytes_stored(self) -> int | None:
        """All bytes that were stored with it; None where its record was not read."""
        return None if self.info is None else self.info.bytes_stored


class _Labels:
    """What the names of tags, pins, retirements and condemnations say of nodes."""

    def __init__(self, listing: Listing) -> None:
        ids = {name.node for name in listing.nodes}
        self.tags = tags_by_node(listing.named, ids)
        self.pins = pins_by_node(listing.named, ids)
        self.marks = listing.marks(ids)
        scopes = (name for name in self.marks.condemned if name.scope != markkeys.EXACT_VALUE)
        self.condemned = {name.node for name in scopes}
        shown = (name for name in listing.nodes if name.node not in self.marks.hidden)
        self.latest = max(shown, key=lambda name: name.order, default=None)

    def listed(self, name: NodeName) -> Listed:
        """Return a node with what is said of it."""
        anchor, pins = name.base == ROOT, self.pins.get(name.node, set[str]())
        return Listed(
            step=name.step,
            node=name.node,
            base=None if anchor else name.base,
            kind="anchor" if anchor else "delta",
            bytes_weights=name.nbytes or None,
            run=name.run,
            run_id=name.run_id,
            seq=name.seq,
            tags=tuple(sorted(self.tags.get(name.node, ()))),
            latest=name is self.latest,
            pinned_by=tuple(sorted(pins - {markkeys.UNRETIRED})),
            brought_back=markkeys.UNRETIRED in pins,
            retired=name.node in self.marks.hidden,
            condemned=name.node in self.marks.hidden and name.node in self.condemned,
            without=tuple(sorted(self.marks.stripped.get(name.node, ()))),
            came_from=self.marks.came_from.get(name.node),
        )

    def with_record(self, state: Listed, read: ReadRecord[NodeRecord]) -> Listed:
        """Return a listed state with what its record says."""
        if read.record is None:
            return replace(state, problem=read.error)
        gone = state.node in self.marks.inexact
        return replace(state, info=step_info(state.node, read.record, read.nbytes, state.tags, inexact=gone))


def list_states(
    backend: Backend,
    run: int | str | None = None,
    records: bool = True,
    limit: int | None = None,
    retired: bool = False,
    on_progress: OnProgress | None = None,
) -> list[Listed]:
    """Return the states of a store by step; revisions of a step in the order of their commits.

    Parameters
    ----------
    backend
        Where the store is.
    run
        Only the states of this run, by number or id.
    records
        Read the records, many at a time. Names alone are a few listings, however many states there are.
    limit
        Only so many, the last ones.
    retired
        Also those that were let go of, as far as they are not collected yet.
    on_progress
        Told how many records have been read.
    """
    listing = Listing.take(backend, STATES)
    names = sorted(listing.nodes, key=lambda name: (name.step, name.order))
    labels = _Labels(listing)
    shown = [name for name in names if retired or name.node not in labels.marks.hidden]
    shown = [name for name in shown if run is None or run in (name.run, name.run_id)]
    shown = shown if limit is None else shown[max(len(shown) - limit, 0) :]
    listed = [labels.listed(name) for name in shown]
    if not records:
        return listed
    read = read_each(backend, NODE, map(keys.node_key, shown), on_progress)
    return [labels.with_record(state, found) for state, found in zip(listed, read, strict=True)]
