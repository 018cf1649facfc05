"""The kinds of records: the folder of each, what its names say, and how one is read and checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from lcstore.errors import CorruptionError, LcstoreError, NotFoundError, StorageError
from lcstore.format import keys, markkeys
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
from lcstore.layout.layout import Layout
from lcstore.limits import MAX_LAYOUT_BYTES, MAX_RECORD_BYTES
from lcstore.records.partrecords import edge_reader, node_reader
from lcstore.records.stored import tell
from lcstore.storage.backend import CLOCK, Backend, read_capped, read_twice
from lcstore.storage.targets import keeps_twice

N = TypeVar("N")
R = TypeVar("R")

_MAX_STORE_RECORD: Final = 1 << 16
_CLOCK: Final = re.compile(CLOCK + r"/[0-9a-f]{32}")


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
    copied
        Returns of what a key says its second copy is known by; None where there are no copies.
    """

    folder: str
    parse: Callable[[str], N]
    reader: Callable[[Backend], Callable[[str, bytes], R]]
    limit: int = MAX_RECORD_BYTES
    copied: Callable[[str], str] | None = None

    def copy_key(self, key: str) -> str | None:
        """Return the key of the second copy of a record."""
        return None if self.copied is None else keys.copy_key(self.copied(key))


def _alone(read: Callable[[str, bytes], R]) -> Callable[[Backend], Callable[[str, bytes], R]]:
    """Return the reader of records that are whole by themselves."""
    return lambda backend: read


NODE: Final[Kind[NodeName, NodeRecord]] = Kind(
    keys.NODES, keys.parse_node_key, node_reader, copied=lambda key: keys.parse_node_key(key).node
)
EDGE: Final[Kind[EdgeName, EdgeRecord]] = Kind(
    keys.EDGES, keys.parse_edge_key, edge_reader, copied=keys.edge_stem
)
LAYOUT: Final[Kind[str, Layout]] = Kind(
    keys.LAYOUTS, keys.parse_layout_key, _alone(read_layout), MAX_LAYOUT_BYTES, keys.parse_layout_key
)
#: Second copies: what a copy is of says how to read it.
COPY: Final[Kind[str, bytes]] = Kind(
    keys.COPIES, keys.parse_copy_key, _alone(lambda key, data: data), max(MAX_LAYOUT_BYTES, MAX_RECORD_BYTES)
)
TAG: Final[Kind[markkeys.TagName, TagRecord]] = Kind(keys.NAMES, markkeys.parse_tag_key, _alone(read_tag))
RETIRED: Final[Kind[markkeys.RetiredName, RetiredRecord]] = Kind(
    keys.RETIRED, markkeys.parse_retired_key, _alone(read_retired)
)
CONDEMNED: Final[Kind[markkeys.CondemnedName, CondemnedRecord]] = Kind(
    keys.CONDEMNED, markkeys.parse_condemned_key, _alone(read_condemned)
)
#: By folder.
KINDS: Final[dict[str, Kind[Any, Any]]] = {
    kind.folder: kind for kind in (NODE, EDGE, LAYOUT, COPY, TAG, RETIRED, CONDEMNED)
}
#: The folders that a store has, or may have. In this order a whole store goes: copies before what could be
#: read by them, then what makes states be there, with what says that some are not after it; data last.
FOLDERS: Final = (
    keys.COPIES, keys.NODES, keys.EDGES, keys.NAMES, keys.RETIRED, keys.CONDEMNED, keys.LAYOUTS, keys.DATA,
    keys.QUARANTINE, CLOCK,
)  # fmt: skip


def read_store_record(backend: Backend) -> StoreRecord:
    """Return ``lcstore.json``, or its second copy (`FallbackWarning`).

    Raises
    ------
    NotFoundError
        There is no store.
    CorruptionError
        It is damaged, and there is no copy.
    StorageError
        The target failed.
    """
    try:
        return store_record_at(backend, keys.STORE_KEY)
    except (NotFoundError, CorruptionError) as damage:
        if keeps_twice(backend):
            raise
        try:
            record = store_record_at(backend, keys.copy_key(keys.STORE_KEY))
        except StorageError:
            raise
        except LcstoreError:
            raise damage from None
        # Who makes a store puts the record before the copy: both may have come since the record was missing.
        with suppress(NotFoundError, CorruptionError):
            return store_record_at(backend, keys.STORE_KEY)
        lost = CorruptionError("the store's own record is damaged or missing", key=keys.STORE_KEY)
        tell(backend, lost, "its second copy was read")
        return record


def is_store(backend: Backend) -> bool:
    """Return whether there is a store, damaged or not."""
    try:
        read_store_record(backend)
    except NotFoundError:
        return False
    except CorruptionError:
        pass
    return True


def store_record_at(backend: Backend, key: str) -> StoreRecord:
    """Return ``lcstore.json``, or the copy of it, under a key; errors as for `read_store_record`."""
    try:
        return read_twice(lambda: StoreRecord.from_bytes(read_capped(backend, key, _MAX_STORE_RECORD)))
    except NotFoundError as error:
        said = f"there is no store at {backend.url}"
        raise NotFoundError(said, key=keys.STORE_KEY, missing="store") from error


def kind_of(key: str) -> Kind[Any, Any] | None:
    """Return the kind of record that a key is of; None of objects of data, and of ``lcstore.json``."""
    return KINDS.get(key.partition("/")[0])


def second_copy_of(key: str) -> str | None:
    """Return the key of the second copy of a record or layout; None where there is none of its kind."""
    kind = kind_of(key)
    return None if kind is None else kind.copy_key(key)


def is_own(key: str) -> bool:
    """Return whether a key is that of something that lcstore stores."""
    if key == keys.STORE_KEY or keys.is_data_key(key) or _CLOCK.fullmatch(key):
        return True
    kind = kind_of(key)
    if kind is None:
        return key.partition("/")[0] == keys.QUARANTINE
    try:
        kind.parse(key)
    except LcstoreError:
        return False
    return True
