"""Nodes and edges whose record is missing, and is known by its second copy alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from lcstore.errors import CorruptionError, LcstoreError, StorageError
from lcstore.format import keyforms, keys
from lcstore.format.fields import record_id
from lcstore.format.records import NodeRecord
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.records.partrecords import edge_reader
from lcstore.records.stored import fetch_parts, is_stored
from lcstore.storage.backend import Backend, exists, read_capped, read_twice


def lost_nodes(
    backend: Backend, copies: Iterable[str], nodes: Iterable[str], failed: list[StorageError]
) -> Iterator[str]:
    """Yield the keys of the nodes that are there although their records are not.

    A writer stores the copy of a record after the record, and a collector deletes it before anything else of
    the node. So where the record is not found, and after that the copy still is, nobody has let go of it.

    Parameters
    ----------
    backend
        Where the store is.
    copies, nodes
        The keys that were listed of second copies and of nodes, in whatever order.
    failed
        Takes the errors of copies that the target did not give: what these are of is not known.
    """
    names = _by_name(copies)
    # By the form of the key alone: what is amiss with a name is told by whoever parses it.
    known = {key.split("-", 4)[3] for key in nodes if key.count("-") == 5}
    for node in sorted(names.keys() - known):
        if keyforms.is_id(node):
            with _noted(failed, names[node]):
                key = lost_key(backend, names[node], node)
                if key is not None:
                    yield key


def lost_edges(
    backend: Backend, copies: Iterable[str], edges: Iterable[str], failed: list[StorageError]
) -> Iterator[str]:
    """Yield the keys of the edges of maintenance that are there although their records are not.

    Parameters as for `lost_nodes`, and why this can be told.
    """
    known = {key.rpartition("/")[2].removesuffix(".json") for key in edges}
    names = _by_name(copies)
    for stem in sorted(name for name in names.keys() - known if "-" in name):
        with suppress(LcstoreError), _noted(failed, names[stem]):
            key = keys.stem_key(stem)
            if not exists(backend, key) and _is_there(backend, names[stem], key):
                yield key


@contextmanager
def _noted(failed: list[StorageError], copy: str) -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        error.key = error.key or copy
        failed.append(error)


def _by_name(copies: Iterable[str]) -> dict[str, str]:
    return {key.rpartition("/")[2].removesuffix(".json"): key for key in copies}


def _is_there(backend: Backend, copy: str, key: str) -> bool:
    """Return whether the copy of an edge's record is one of that key, and something of the edge is there."""
    record = edge_reader(backend)(key, read_capped(backend, copy, MAX_RECORD_BYTES))
    return is_stored(backend, record.edge)


def lost_key(backend: Backend, copy: str, node: str) -> str | None:
    """Return the key of a node's record, by a copy of it, if it is lost; None where nothing is.

    Raises
    ------
    StorageError
        The target failed: that is not known.
    """

    def read() -> bytes:
        data = read_capped(backend, copy, MAX_RECORD_BYTES)
        if record_id(data) != node:
            raise CorruptionError("it is no copy of what its name says", key=copy)
        return data

    try:
        data = read_twice(read)
        record = NodeRecord.from_bytes(data, key=copy, fetch=lambda refs: fetch_parts(backend, refs))
        key = keys.node_key(record.name(node))
        if exists(backend, key) or not exists(backend, copy):
            return None
        return key if is_stored(backend, record.edge) else None
    except StorageError:
        raise
    except LcstoreError:
        return None
