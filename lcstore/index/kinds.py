"""The kinds of records: the folder of each, what its names say, and how one is read and checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from lcstore.errors import NotFoundError
from lcstore.format import keys
from lcstore.format.layoutfile import read_layout
from lcstore.format.marks import (
    CondemnedRecord,
    RetiredRecord,
    TagRecord,
    read_condemned,
    read_retired,
    read_tag,
)
from lcstore.format.records import EdgeRecord, NodeRecord, StoreRecord
from lcstore.graph.refs import EdgeName, NodeName
from lcstore.index.partrecords import edge_reader, node_reader
from lcstore.limits import MAX_LAYOUT_BYTES, MAX_RECORD_BYTES
from lcstore.state.layout import Layout
from lcstore.storage.backend import Backend, read_capped

N = TypeVar("N")
R = TypeVar("R")

_MAX_STORE_RECORD: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Kind(Generic[N, R]):
    """A kind of record.

    Attributes
    ----------
    folder
        Where all of its kind lie.
    parse
        Returns what a key says.
    reader
        Returns, for a store, what returns the record of a key and bytes, checked against each other. It gets
        from there what the record is made of besides.
    limit
        Bytes of one, at the most.
    """

    folder: str
    parse: Callable[[str], N]
    reader: Callable[[Backend], Callable[[str, bytes], R]]
    limit: int = MAX_RECORD_BYTES


def _alone(read: Callable[[str, bytes], R]) -> Callable[[Backend], Callable[[str, bytes], R]]:
    """Return the reader of records that are whole by themselves."""
    return lambda backend: read


NODE: Final[Kind[NodeName, NodeRecord]] = Kind(keys.NODES, keys.parse_node_key, node_reader)
EDGE: Final[Kind[EdgeName, EdgeRecord]] = Kind(keys.EDGES, keys.parse_edge_key, edge_reader)
LAYOUT: Final[Kind[str, Layout]] = Kind(
    keys.LAYOUTS, keys.parse_layout_key, _alone(read_layout), MAX_LAYOUT_BYTES
)
#: Nothing reads second copies yet, but they are known by name: what a copy is of says how to read it.
COPY: Final[Kind[str, bytes]] = Kind(
    keys.COPIES, keys.parse_copy_key, _alone(lambda key, data: data), max(MAX_LAYOUT_BYTES, MAX_RECORD_BYTES)
)
TAG: Final[Kind[keys.TagName, TagRecord]] = Kind(keys.NAMES, keys.parse_tag_key, _alone(read_tag))
RETIRED: Final[Kind[keys.RetiredName, RetiredRecord]] = Kind(
    keys.RETIRED, keys.parse_retired_key, _alone(read_retired)
)
CONDEMNED: Final[Kind[keys.CondemnedName, CondemnedRecord]] = Kind(
    keys.CONDEMNED, keys.parse_condemned_key, _alone(read_condemned)
)
#: By folder.
KINDS: Final[dict[str, Kind[Any, Any]]] = {
    kind.folder: kind for kind in (NODE, EDGE, LAYOUT, COPY, TAG, RETIRED, CONDEMNED)
}


def read_store_record(backend: Backend) -> StoreRecord:
    """Return ``lcstore.json``; `NotFoundError` where there is no store."""
    try:
        return StoreRecord.from_bytes(read_capped(backend, keys.STORE_KEY, _MAX_STORE_RECORD))
    except NotFoundError as error:
        raise NotFoundError(f"there is no store at {backend.url}", key=keys.STORE_KEY) from error
