"""Nodes whose record is missing, and is known by its second copy alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lcstore.errors import LcstoreError
from lcstore.format import keyforms, keys
from lcstore.format.fields import record_id
from lcstore.format.records import NodeRecord
from lcstore.index.stored import fetch_parts
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.storage.backend import Backend, exists, read_capped


def lost_nodes(backend: Backend, copies: Iterable[str], nodes: Iterable[str]) -> Iterator[str]:
    """Yield the keys of the nodes that are there although their records are not.

    A writer stores the copy of a record after the record, and a collector deletes it before anything else of
    the node. So where the record is not found, and after that the copy still is, nobody has let go of it.

    Parameters
    ----------
    backend
        Where the store is.
    copies, nodes
        The keys that were listed of second copies and of nodes, in whatever order.
    """
    names = {key.rpartition("/")[2].removesuffix(".json"): key for key in copies}
    # By the form of the key alone: what is amiss with a name is told by whoever parses it.
    known = {key.split("-", 4)[3] for key in nodes if key.count("-") == 5}
    for node in sorted(names.keys() - known):
        if keyforms.is_id(node):
            key = _missing(backend, names[node], node)
            if key is not None:
                yield key


def _missing(backend: Backend, copy: str, node: str) -> str | None:
    """Return the key of a node's record, by its copy, if it is lost; None where nothing is."""
    try:
        data = read_capped(backend, copy, MAX_RECORD_BYTES)
        if record_id(data) != node:
            return None
        record = NodeRecord.from_bytes(data, key=copy, fetch=lambda refs: fetch_parts(backend, refs))
        key = keys.node_key(record.name(node))
        if exists(backend, key) or not exists(backend, copy):
            return None
        # A copy that a target stored long after it said that it could not: what the node needs is gone.
        there = set(backend.list(keys.edge_folder(record.edge.id)))
    except LcstoreError:
        return None
    needed = {ref.key for part in record.edge.parts for ref in part.needed}
    return key if not needed or needed & there else None
