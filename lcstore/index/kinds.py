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
from lcstore.format.records import EdgeRecord, NodeRecord, StoreRecord, read_edge, read_node
from lcstore.graph.names import EdgeName, NodeName
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
    read
        Returns the record of a key and bytes, checked against each other.
    limit
        Bytes of one, at the most.
    """

    folder: str
    parse: Callable[[str], N]
    read: Callable[[str, bytes], R]
    limit: int = MAX_RECORD_BYTES


NODE: Final[Kind[NodeName, NodeRecord]] = Kind(keys.NODES, keys.parse_node_key, read_node)
EDGE: Final[Kind[EdgeName, EdgeRecord]] = Kind(keys.EDGES, keys.parse_edge_key, read_edge)
LAYOUT: Final[Kind[str, Layout]] = Kind(keys.LAYOUTS, keys.parse_layout_key, read_layout, MAX_LAYOUT_BYTES)
TAG: Final[Kind[keys.TagName, TagRecord]] = Kind(keys.NAMES, keys.parse_tag_key, read_tag)
RETIRED: Final[Kind[keys.RetiredName, RetiredRecord]] = Kind(
    keys.RETIRED, keys.parse_retired_key, read_retired
)
CONDEMNED: Final[Kind[keys.CondemnedName, CondemnedRecord]] = Kind(
    keys.CONDEMNED, keys.parse_condemned_key, read_condemned
)
#: By folder.
KINDS: Final[dict[str, Kind[Any, Any]]] = {
    kind.folder: kind for kind in (NODE, EDGE, LAYOUT, TAG, RETIRED, CONDEMNED)
}


def read_store_record(backend: Backend) -> StoreRecord:
    """Return ``lcstore.json``; `NotFoundError` where there is no store."""
    try:
        return StoreRecord.from_bytes(read_capped(backend, keys.STORE_KEY, _MAX_STORE_RECORD))
    except NotFoundError as error:
        raise NotFoundError(f"there is no store at {backend.url}", key=keys.STORE_KEY) from error
