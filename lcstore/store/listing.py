"""What `ls` shows: every state of a store, from names alone or with what the records say."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from lcstore.errors import LcstoreError
from lcstore.graph.names import ROOT, NodeName
from lcstore.store import keys
from lcstore.store.backend import Backend
from lcstore.store.info import StepInfo, step_info
from lcstore.store.records import read_node
from lcstore.store.survey import OnProgress, ReadRecord, read_records


@dataclass(frozen=True)
class Listed:
    """One state in a listing.

    Attributes
    ----------
    step, node, base, kind
        As in `StepInfo`.
    bytes_stored
        Of its edge, as its name says.
    run, seq
        Number of the writing handle, and the place of this commit in it.
    tags
        Names to find it by.
    latest
        Whether it is the latest commit: what is restored where no step is given.
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
    info: StepInfo | None = None
    problem: LcstoreError | None = None


def list_states(
    backend: Backend,
    *,
    records: bool = True,
    limit: int | None = None,
    on_progress: OnProgress | None = None,
) -> list[Listed]:
    """Return the states of a store by step; revisions of a step in the order of their commits.

    Parameters
    ----------
    backend
        Where the store is.
    records
        Read the records, many at a time. Names alone are one listing, however many states there are.
    limit
        Only so many, the last ones.
    on_progress
        Told how many records have been read.
    """
    names = sorted(map(keys.parse_node_key, backend.list(keys.NODES)), key=lambda n: (n.step, n.order))
    latest = max(names, key=lambda n: n.order, default=None)
    shown = names if limit is None else names[max(len(names) - limit, 0) :]
    tags = _tags(backend)
    read: list[ReadRecord[StepInfo]] = []
    if records:
        read = read_records(backend, map(keys.node_key, shown), _info, on_progress=on_progress)
    by_key = {found.key: found for found in read}
    return [_listed(n, tags[n.node], n is latest, by_key.get(keys.node_key(n))) for n in shown]


def _listed(name: NodeName, tags: set[str], latest: bool, read: ReadRecord[StepInfo] | None) -> Listed:
    anchor = name.base == ROOT
    return Listed(
        step=name.step,
        node=name.node,
        base=None if anchor else name.base,
        kind="anchor" if anchor else "delta",
        bytes_stored=name.nbytes,
        run=name.run,
        seq=name.seq,
        tags=tuple(sorted(tags)),
        latest=latest,
        info=None if read is None else read.record,
        problem=None if read is None else read.error,
    )


def _info(key: str, data: bytes) -> StepInfo:
    return step_info(keys.parse_node_key(key).node, read_node(key, data))


def _tags(backend: Backend) -> defaultdict[str, set[str]]:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name in map(keys.parse_tag_key, backend.list(keys.NAMES)):
        if name.kind == "tag" and name.node is not None:
            found[name.node].add(name.name)
    return found
