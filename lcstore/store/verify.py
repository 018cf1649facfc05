"""Look at everything in a store and say what is wrong with it. Reads only, and goes on past what it finds."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, get_args

from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    NotFoundError,
    StorageError,
    TruncatedError,
    UnsupportedFormatError,
)
from lcstore.graph.graph import Graph
from lcstore.graph.names import NodeName
from lcstore.limits import MAX_LEAVES_BYTES, MAX_PLAN_BYTES
from lcstore.state.leaves import decode_leaf
from lcstore.state.plan import Plan
from lcstore.state.tree import structure_paths
from lcstore.store import keys
from lcstore.store.backend import Backend, read_capped
from lcstore.store.damage import Damage
from lcstore.store.findings import Finding, Level, Report, Severity
from lcstore.store.marks import CondemnedRecord, RetiredRecord, TagRecord, read_condemned, read_retired, read_tag
from lcstore.store.records import EdgeBody, EdgeRecord, NodeRecord, ObjectRef, StoreRecord, read_edge, read_node
from lcstore.store.strictjson import loads
from lcstore.store.survey import OnProgress, ReadRecord, read_records, spread
from lcstore.track.columns import Columns

_MAX_STORE_RECORD: Final = 1 << 16
#: Objects are read in pieces of this many bytes, by so many threads: memory stays small whatever their size.
_PIECE: Final = 32 << 20
_READERS: Final = 8
_PARSERS: Final = {
    keys.NODES: keys.parse_node_key,
    keys.EDGES: keys.parse_edge_key,
    keys.PLANS: keys.parse_plan_key,
    keys.NAMES: keys.parse_tag_key,
    keys.RETIRED: keys.parse_retired_key,
    keys.CONDEMNED: keys.parse_condemned_key,
}
#: What `storage_clock` and `conformance` leave when they are cut off.
_SCRATCH: Final = ("clock/", "conformance/")


def verify(backend: Backend, level: Level = "structure", on_progress: OnProgress | None = None) -> Report:
    """Verify a store. Nothing in it is changed, and it may be in use meanwhile.

    Parameters
    ----------
    backend
        Where the store is.
    level
        ``"structure"``: every record is read and checked against its name, and every object that a record
        lists is there with the right length. ``"checksum"``: every object is read too, and is what was
        committed.
    on_progress
        Called with what is being done, how much of it is done, and how much there is.

    Raises
    ------
    NotFoundError
        There is no store.
    StorageError
        The store could not be listed. (An object that cannot be read is a finding.)
    """
    if level not in get_args(Level):
        raise InvalidInputError(f"level is {level!r}; it is one of {', '.join(get_args(Level))}")
    return _Verifier(backend, level, on_progress).run()


@dataclass(frozen=True, slots=True)
class _Need:
    """An object that a record needs. Without it `node` is hurt, and with `spreads` all that stands on it."""

    ref: ObjectRef
    node: str
    step: int | None
    spreads: bool
    leaves: bool = False


class _Verifier:
    """One look at a store."""

    def __init__(self, backend: Backend, level: Level, on_progress: OnProgress | None) -> None:
        self.backend = backend
        self.level = level
        self.on_progress = on_progress
        self.findings: list[Finding] = []
        self.graph = Graph()
        self.damage = Damage(self.graph)
        self.records: dict[str, NodeRecord] = {}
        self.edges: dict[str, EdgeRecord] = {}
        self.retired: set[str] = set()
        self.condemned: set[tuple[str, str]] = set()
        self.unread = 0
        self.bytes_read = 0

    def run(self) -> Report:
        began = time.perf_counter()
        # Records are listed before the rest: what a listed record needs was stored before it.
        early = [key for folder in (keys.NODES, keys.EDGES) for key in self.backend.list(folder)]
        foreign: list[str] = []
        self.listed = set(self.backend.list("", foreign))
        if not self.listed:
            raise NotFoundError(f"there is no store at {self.backend.url}")
        self._store_record()
        self._names(foreign)
        self._nodes([key for key in early if key.startswith(f"{keys.NODES}/")])
        self._edges([key for key in early if key.startswith(f"{keys.EDGES}/")])
        self._marks()
        plans = self._plans()
        for node, record in self.records.items():
            self._links(node, record, plans)
        needs = self._needs()
        self._objects(needs)
        self._orphans({need.ref.key for need in needs}, set(plans))
        self._paths()
        return self._report(time.perf_counter() - began, len(needs))

    def _add(
        self, severity: Severity, check: str, key: str | None, message: str, *, step: int | None = None
    ) -> None:
        self.findings.append(Finding(severity, check, key, step, message))

    def _below(self, folder: str) -> list[str]:
        return sorted(key for key in self.listed if key.startswith(f"{folder}/"))

    # Records --------------------------------------------------------------------------------------------

    def _store_record(self) -> None:
        try:
            record = StoreRecord.from_bytes(read_capped(self.backend, keys.STORE_KEY, _MAX_STORE_RECORD))
        except NotFoundError:
            self._add("error", "store", keys.STORE_KEY, "it is missing: the store cannot be opened for reading")
        except LcstoreError as error:
            self._unreadable("store", keys.STORE_KEY, error)
        else:
            if record != StoreRecord():
                self._add(
                    "info", "store", keys.STORE_KEY,
                    f"grace is {record.grace_seconds} s; stores are made with {StoreRecord().grace_seconds} s",
                )  # fmt: skip

    def _names(self, foreign: Iterable[str]) -> None:
        """Every name parses; those that do not are left out of all that follows."""
        for name in foreign:
            self._add("warning", "name", name, "no lcstore wrote this: it is no name of a store")
        for key in sorted(self.listed):
            folder = key.partition("/")[0]
            if key == keys.STORE_KEY or key.startswith(_SCRATCH):
                continue
            if folder in _PARSERS:
                try:
                    _PARSERS[folder](key)
                except LcstoreError as error:
                    self.listed.discard(key)
                    self._add("error", "name", key, f"{error.message}: it keeps the store from being listed")
            elif folder != keys.DATA or not keys.is_data_key(key):
                self.listed.discard(key)
                self._add("warning", "name", key, "no lcstore wrote this: it is no name of a store")

    def _nodes(self, early: list[str]) -> None:
        found = [key for key in early if key in self.listed]
        for key in found:
            self._to_graph(key, lambda k: self.graph.add(keys.parse_node_key(k)))
        for read in self._read(found, read_node, "records"):
            name = keys.parse_node_key(read.key)
            if read.record is not None:
                self.records[name.node] = read.record
            elif self._gone(read):
                self._add("info", "record", read.key, "deleted while verify ran", step=name.step)
            else:
                self.unread += 1
                self.damage.hurt(name.node, spreads=True)
                assert read.error is not None
                self._unreadable("record", read.key, read.error, step=name.step)
        for run in self.graph.ambiguous_runs():
            self._add(
                "warning", "run", None,
                f"run {run} was taken by two writers at the same time; the latest of both is the later commit",
            )  # fmt: skip

    def _edges(self, early: list[str]) -> None:
        found = [key for key in early if key in self.listed]
        for key in found:
            self._to_graph(key, lambda k: self.graph.add_edge(keys.parse_edge_key(k)))
        for read in self._read(found, read_edge, "edges"):
            name = keys.parse_edge_key(read.key)
            if read.record is not None:
                self.edges[name.edge] = read.record
            elif not self._gone(read):
                self.unread += 1
                self.damage.break_edge(name.edge)
                assert read.error is not None
                self._unreadable("record", read.key, read.error)

    def _to_graph(self, key: str, add: object) -> None:
        try:
            add(key)  # type: ignore[operator]
        except LcstoreError as error:
            self._add("error", "name", key, error.message)

    def _gone(self, read: ReadRecord[NodeRecord] | ReadRecord[EdgeRecord]) -> bool:
        """Say whether a listed record has been deleted since, as collecting does."""
        folder = read.key.partition("/")[0]
        return isinstance(read.error, NotFoundError) and read.key not in self.backend.list(folder)

    def _marks(self) -> None:
        tagged: set[tuple[str, str]] = set()
        for tag in self._marked(keys.NAMES, read_tag):
            if isinstance(tag, TagRecord) and tag.node is not None:
                tagged.add((tag.node, tag.name))
                if tag.node not in self.graph.nodes:
                    self._add("info", "tag", tag.key(), f"tag {tag.name!r} is of a state that is not there")
        for retired in self._marked(keys.RETIRED, read_retired):
            if isinstance(retired, RetiredRecord):
                self.retired.add(retired.node)
        for condemned in self._marked(keys.CONDEMNED, read_condemned):
            if isinstance(condemned, CondemnedRecord):
                self.condemned.add((condemned.edge, condemned.scope))
        for node, record in self.records.items():
            for tag_name in record.tags:
                if (node, tag_name) not in tagged:
                    key = TagRecord(tag_name, node, record.seq, record.created).key()
                    message = f"the record of tag {tag_name!r} is missing or damaged: the tag does not find its state"
                    self._add("warning", "tag", key, message, step=record.step)

    def _marked(self, folder: str, parse: object) -> Iterable[object]:
        for read in self._read(self._below(folder), parse, folder):
            if read.error is not None and not isinstance(read.error, NotFoundError):
                self._unreadable(folder, read.key, read.error)
            elif read.record is not None:
                yield read.record

    def _read(self, found: list[str], parse: object, phase: str) -> list[ReadRecord[object]]: ...
