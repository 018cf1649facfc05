"""The commit: one record, made of an edge that is stored, and written last."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace

from lcstore.errors import ConflictError, LcstoreError, NotFoundError, StorageError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody
from lcstore.format.marks import TagRecord
from lcstore.format.records import NodeRecord, StoreRecord, node_id, utc_now
from lcstore.graph.graph import Graph
from lcstore.graph.refs import NodeName
from lcstore.index.listing import TAGS, Listing
from lcstore.index.marked import next_seq
from lcstore.records.kinds import read_store_record, store_record_at
from lcstore.storage.backend import Backend
from lcstore.storage.put import put_object, put_record
from lcstore.version import SOFTWARE
from lcstore.write.edgewrite import EdgeWrite


@dataclass(frozen=True)
class Commit:
    """A record that makes a state exist once it is stored. Writing its bytes again is always right."""

    key: str
    data: bytes
    record: NodeRecord
    name: NodeName
    write: EdgeWrite

    def put(self) -> None:
        """Store the record, then its copy; errors as `put_record` raises them.

        The state is there with the record, and so is no failure without the copy: `verify` tells of that.
        """
        written = self.write.written
        put_record(written.backend, self.key, self.data, "save again, which settles it first")
        written.copy_record(keys.copy_key(self.name.node), self.data)


def prepare(
    write: EdgeWrite, layout: str, *, run: int, run_id: str, seq: int, parent: NodeName | None
) -> Commit:
    """Return the commit of an edge; nothing is stored.

    Parameters
    ----------
    write
        The edge, all objects of which are stored.
    layout
        The stored layout's hash.
    run, run_id, seq
        Number and random name of the writing handle, and the number of this commit in it.
    parent
        The node that the handle stands on; None for the first of a store.

    Raises
    ------
    ConflictError
        The edge leads from another node than the one that the handle stands on.
    """
    if write.base is not None and write.base != parent:
        raise ConflictError(
            f"the edge leads from node {write.base.node}, and the handle stands on another: save again",
            step=write.staged.step,
        )
    part = replace(write.part, layout=layout)
    labels = write.staged.labels
    record = NodeRecord(
        step=write.staged.step,
        run=run,
        run_id=run_id,
        seq=seq,
        parent=None if parent is None else parent.node,
        created=utc_now(),
        edge=EdgeBody(write.edge, write.base_id, (part,)),
        metrics={str(k): float(v) for k, v in labels.metrics.items()},
        metadata=dict(labels.metadata),
        tags=tuple(labels.tags),
        stats=write.stats | write.written.besides(),
        software=SOFTWARE,
    )
    data = record.to_bytes()
    name = record.name(node_id(data))
    return Commit(keys.node_key(name), data, record, name, write)


def put_marks(backend: Backend, commit: Commit) -> None:
    """Set the tags of the node to come, and what its base does not tell: which node training came from.

    A mark of a node that does not come to exist says nothing.
    """
    node, created, tags = commit.name.node, commit.record.created, commit.write.staged.labels.tags
    parent = commit.record.parent
    marks = []
    if tags:
        named = Listing.take(backend, TAGS).named
        marks = [TagRecord(tag, node, next_seq(named, "tag", tag), created) for tag in tags]
    if commit.write.base is None and parent is not None:
        marks.append(TagRecord(node, parent, 0, created, "line"))
    for mark in marks:
        commit.write.written.put_mark(mark.key(), mark.to_bytes())


def put_copy_late(backend: Backend, name: NodeName, data: bytes) -> bool:
    """Store the copy of a record if the record is there; return whether nothing is left to do.

    Whoever was interrupted may have stored one without the other, and goes on. Collectors look for that at
    the last record of each run alone.
    """
    try:
        if backend.get(keys.node_key(name)) == data:
            put_object(backend, keys.copy_key(name.node), data)
    except NotFoundError:
        return True
    except StorageError:
        return False
    return True


def make_store(
    backend: Backend, made: StoreRecord, listed: Future[Graph] | None, *, copies: bool
) -> tuple[int, StoreRecord | None]:
    """Make a place a store, unless it is one already.

    Another process may do so in the same moment, with another grace: the record that is stored last stands.

    Parameters
    ----------
    backend, made
        The place, and the record that makes it a store.
    listed
        The nodes that are there: where there is none, no other process made it a store, as far as is known.
        None where the nodes were not listed.
    copies
        Whether records are stored twice.

    Returns
    -------
    tuple
        The store's grace in seconds; and the record that was stored, for `confirm_store` to look at with the
        next save, or None where it is known which one stands.
    """
    if listed is None or listed.result().nodes:
        with suppress(NotFoundError):
            return read_store_record(backend).grace_seconds, None
    put_object(backend, keys.STORE_KEY, made.to_bytes())
    if copies:
        made = store_record_at(backend, keys.STORE_KEY)
        put_object(backend, keys.copy_key(keys.STORE_KEY), made.to_bytes())
    return made.grace_seconds, made


def confirm_store(backend: Backend, made: StoreRecord, *, copies: bool) -> tuple[int, StoreRecord | None]:
    """Look which record made a place a store: there is a state by now, so nobody makes it one any more.

    Parameters and what is returned are those of `make_store`.
    """
    with suppress(LcstoreError):  # whoever opens it is told
        found = store_record_at(backend, keys.STORE_KEY)
        if copies and found != made:
            put_object(backend, keys.copy_key(keys.STORE_KEY), found.to_bytes())
        return found.grace_seconds, None
    return made.grace_seconds, made
