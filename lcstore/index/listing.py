"""What `ls` shows: every state of a store, from names alone or with what the records say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from lcstore.errors import LcstoreError
from lcstore.format import keys
from lcstore.graph.names import ROOT, NodeName
from lcstore.index.info import StepInfo, step_info
from lcstore.index.marked import marks_of, pins_by_node, tags_by_node
from lcstore.index.parts import node_reader
from lcstore.storage.backend import Backend
from lcstore.storage.survey import OnProgress, ReadRecord, read_records


@dataclass(frozen=True)
class Listed:
    """One state in a listing.

    Attributes
    ----------
    step, node, base, kind
        As in `StepInfo`.
    bytes_stored
        Of the weights of its edge, as its name says; `info` counts everything.
    run, seq
        Number of the writing handle, and the place of this commit in it.
    tags
        Names to find it by.
    latest
        Whether it is the latest commit: what is restored where no step is given.
    pinned_by
        Who pins it; "" stands for whoever did not say.
    retired
        Whether it was let go of, and is not pinned.
    condemned
        Whether a collector is deleting it: it cannot be brought back.
    info
        What its record says; None where records were not read, or this one could not be.
    problem
        Why its record could not be read.
    """

    step: int
    node: str
    base: str | None
    kind: Literal["anchor", "delta"]
    bytes_stored: int
    run: int
    seq: int
    tags: tuple[str, ...]
    latest: bool
    pinned_by: tuple[str, ...] = ()
    retired: bool = False
    condemned: bool = False
    info: StepInfo | None = None
    problem: LcstoreError | None = None


class _Labels:
    """What the names of tags, pins, retirements and condemnations say of nodes."""

    def __init__(self, backend: Backend, nodes: Sequence[NodeName]) -> None:
        ids = {name.node for name in nodes}
        named = [keys.parse_tag_key(key) for key in backend.list(keys.NAMES)]
        self.tags = tags_by_node(named, ids)
        self.pins = pins_by_node(named, ids)
        self.marks = marks_of(
            map(keys.parse_retired_key, backend.list(keys.RETIRED)),
            self.pins,
            map(keys.parse_condemned_key, backend.list(keys.CONDEMNED)),
        )
        scopes = (name for name in self.marks.condemned if name.scope != keys.EXACT_VALUE)
        self.condemned = {name.node for name in scopes}
        shown = (name for name in nodes if name.node not in self.marks.hidden)
        self.latest = max(shown, key=lambda name: name.order, default=None)

    def listed(self, name: NodeName, read: ReadRecord[StepInfo] | None) -> Listed:
        """Return a node with what is said of it."""
        anchor = name.base == ROOT
        return Listed(
            step=name.step,
            node=name.node,
            base=None if anchor else name.base,
            kind="anchor" if anchor else "delta",
            bytes_stored=name.nbytes,
            run=name.run,
            seq=name.seq,
            tags=tuple(sorted(self.tags.get(name.node, ()))),
            latest=name is self.latest,
            pinned_by=tuple(sorted(self.pins.get(name.node, ()))),
            retired=name.node in self.marks.hidden,
            condemned=name.node in self.marks.hidden and name.node in self.condemned,
            info=None if read is None else read.record,
            problem=None if read is None else read.error,
        )


def list_states(
    backend: Backend,
    *,
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
    records
        Read the records, many at a time. Names alone are a few listings, however many states there are.
    limit
        Only so many, the last ones.
    retired
        Also those that were let go of, as far as they are not collected yet.
    on_progress
        Told how many records have been read.
    """
    names = sorted(map(keys.parse_node_key, backend.list(keys.NODES)), key=lambda n: (n.step, n.order))
    labels = _Labels(backend, names)
    shown = [name for name in names if retired or name.node not in labels.marks.hidden]
    shown = shown if limit is None else shown[max(len(shown) - limit, 0) :]
    read: list[ReadRecord[StepInfo]] = []
    if records:
        parse = node_reader(backend)

        def info(key: str, data: bytes) -> StepInfo:
            return step_info(keys.parse_node_key(key).node, parse(key, data))

        read = read_records(backend, map(keys.node_key, shown), info, on_progress=on_progress)
    by_key = {found.key: found for found in read}
    return [labels.listed(name, by_key.get(keys.node_key(name))) for name in shown]
