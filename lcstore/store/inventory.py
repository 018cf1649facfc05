"""Every record of a store, read and checked for `verify`: what is there, and what is wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from lcstore.errors import CorruptionError, LcstoreError, NotFoundError
from lcstore.graph.graph import Graph
from lcstore.graph.names import ROOT
from lcstore.limits import MAX_PLAN_BYTES, MAX_RECORD_BYTES
from lcstore.state.plan import Plan
from lcstore.store import keys
from lcstore.store.backend import Backend, read_capped
from lcstore.store.damage import ALL, Damage
from lcstore.store.findings import Findings
from lcstore.store.marks import TagRecord, read_condemned, read_retired, read_tag
from lcstore.store.records import EdgeRecord, NodeRecord, StoreRecord, read_edge, read_node
from lcstore.store.strictjson import loads
from lcstore.store.survey import OnProgress, read_records
from lcstore.track.columns import ADD, KEEP

T = TypeVar("T")

_MAX_STORE_RECORD: Final = 1 << 16
_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    keys.NODES: keys.parse_node_key,
    keys.EDGES: keys.parse_edge_key,
    keys.PLANS: keys.parse_plan_key,
    keys.NAMES: keys.parse_tag_key,
    keys.RETIRED: keys.parse_retired_key,
    keys.CONDEMNED: keys.parse_condemned_key,
}
#: What the storage's clock and `doctor` leave behind when they are cut off.
_SCRATCH: Final = ("clock/", "conformance/", "lcstore-doctor-")
_GOES_ON: Final = (KEEP, ADD)
_FOREIGN: Final = "no lcstore wrote this: it is no name of a store"


class Inventory:
    """What is in a store, as far as it can be read.

    Attributes
    ----------
    listed
        Keys of everything that lcstore may have written.
    graph
        Of all names, also those whose records could not be read: what a reader goes by.
    records, edges, plans
        What could be read.
    unread
        Number of records that could not be.
    """

    def __init__(self, backend: Backend, findings: Findings, on_progress: OnProgress | None) -> None:
        self.backend = backend
        self.findings = findings
        self.on_progress = on_progress
        self.damage = Damage()
        self.graph = Graph()
        self.listed: set[str] = set()
        self.records: dict[str, NodeRecord] = {}
        self.edges: dict[str, EdgeRecord] = {}
        self.plans: dict[str, Plan] = {}
        self.retired: set[str] = set()
        self.condemned: set[tuple[str, str]] = set()
        self.unread = 0

    def take(self) -> None:
        """List and read everything.

        Raises
        ------
        NotFoundError
            There is nothing at all.
        """
        # Records are listed before the rest: what a listed record needs was stored before it.
        early = [key for folder in (keys.NODES, keys.EDGES) for key in self.backend.list(folder)]
        foreign: list[str] = []
        self.listed = set(self.backend.list("", foreign))
        if not self.listed and not foreign:
            raise NotFoundError(f"there is no store at {self.backend.url}")
        self._store_record()
        self._names(foreign)
        early = sorted(key for key in early if key in self.listed)
        self._nodes([key for key in early if key.startswith(f"{keys.NODES}/")])
        self._edges([key for key in early if key.startswith(f"{keys.EDGES}/")])
        self._plans()
        self._marks()

    def below(self, folder: str) -> list[str]:
        """Return the keys below a folder, in order."""
        return sorted(key for key in self.listed if key.startswith(f"{folder}/"))

    def inherits(self, node: str, pool: str) -> bool:
        """Say whether the value of any tensor of a pool goes on from that of the node's base."""
        record = self.records.get(node)
        plan = self.plans.get(record.plan) if record is not None else None
        if record is None or plan is None or pool == ALL:
            return record is None or record.edge.base != ROOT
        ops = record.edge.columns.get("op", b"")
        if len(ops) != len(plan.tensors):
            return True
        return any(s.pool == pool and op in _GOES_ON for s, op in zip(plan.tensors, ops, strict=True))

    def shields(self, node: str, pool: str) -> bool:
        """Say whether a node can be restored without the track of a pool: it keeps the exact value."""
        record = self.records.get(node)
        plan = self.plans.get(record.plan) if record is not None else None
        if record is None or plan is None or record.exact is None or pool not in plan.pools:
            return False
        return plan.pools[pool].role != "exact"

    def _store_record(self) -> None:
        try:
            record = StoreRecord.from_bytes(read_capped(self.backend, keys.STORE_KEY, _MAX_STORE_RECORD))
        except LcstoreError as error:
            self.findings.unreadable("store", keys.STORE_KEY, error)
            return
        usual = StoreRecord().grace_seconds
        if record.grace_seconds != usual:
            message = f"the grace of this store is {record.grace_seconds} s; stores are made with {usual} s"
            self.findings.add("info", "store", keys.STORE_KEY, message)

    def _names(self, foreign: Iterable[str]) -> None:
        """Every name parses; those that do not are left out of all that follows."""
        for name in foreign:
            self.findings.add("warning", "name", name, _FOREIGN)
        for key in sorted(self.listed):
            folder = key.partition("/")[0]
            if folder in _PARSERS:
                self._parse(key, _PARSERS[folder])
            elif key.startswith(_SCRATCH):
                self.findings.add("info", "name", key, "left by a measurement that was cut off")
            elif key != keys.STORE_KEY and not keys.is_data_key(key):
                self.listed.discard(key)
                self.findings.add("warning", "name", key, _FOREIGN)

    def _parse(self, key: str, parse: Callable[[str], object]) -> None:
        try:
            parse(key)
        except LcstoreError as error:
            self.listed.discard(key)
            message = f"{error.message}: the store cannot be listed while it is there"
            self.findings.add("error", "name", key, message)

    def _nodes(self, found: list[str]) -> None:
        for key in found:
            self._to_graph(key, lambda key: self.graph.add(keys.parse_node_key(key)))
        for read in read_records(self.backend, found, read_node, on_progress=self.on_progress):
            name = keys.parse_node_key(read.key)
            if read.record is not None:
                self.records[name.node] = read.record
            elif not self._deleted(read.key, read.error):
                self.damage.break_node(name.node)
                self._lost_record(read.key, read.error, step=name.step)
        for run in self.graph.ambiguous_runs():
            message = f"run {run} was taken by two writers at the same time; each made a branch"
            self.findings.add("warning", "run", None, message)

    def _edges(self, found: list[str]) -> None:
        for key in found:
            self._to_graph(key, lambda key: self.graph.add_edge(keys.parse_edge_key(key)))
        for read in read_records(self.backend, found, read_edge, phase="edges", on_progress=self.on_progress):
            name = keys.parse_edge_key(read.key)
            if read.record is not None:
                self.edges[name.edge] = read.record
            elif not self._deleted(read.key, read.error):
                self.damage.break_edge(name.edge)
                self._lost_record(read.key, read.error)

    def _to_graph(self, key: str, add: Callable[[str], None]) -> None:
        try:
            add(key)
        except LcstoreError as error:
            self.findings.add("error", "name", key, error.message)

    def _deleted(self, key: str, error: LcstoreError | None) -> bool:
        """Say whether a listed record has been deleted since, as collecting does."""
        return isinstance(error, NotFoundError) and key not in self.backend.list(key.partition("/")[0])

    def _lost_record(self, key: str, error: LcstoreError | None, *, step: int | None = None) -> None:
        assert error is not None
        self.unread += 1
        self.findings.unreadable("record", key, error, step=step)

    def _plans(self) -> None:
        """Read the plans that are there; whether one is missing is a question for whoever needs it."""
        found = self.below(keys.PLANS)
        for read in read_records(self.backend, found, _read_plan, limit=MAX_PLAN_BYTES, phase="plans"):
            if read.record is not None:
                self.plans[keys.parse_plan_key(read.key)] = read.record
            elif read.error is not None:
                self.findings.unreadable("plan", read.key, read.error)

    def _marks(self) -> None:
        tagged = set()
        for tag in self._marked(keys.NAMES, read_tag):
            tagged.add((tag.node, tag.name))
            if tag.node is not None and tag.node not in self.graph.nodes:
                what = f"{tag.kind} {tag.name!r} is of no state that is there"
                message = f"{what}; an interrupted save leaves that"
                self.findings.add("info", "tag", tag.key(), message)
        self.retired = {retired.node for retired in self._marked(keys.RETIRED, read_retired)}
        self.condemned = {(mark.edge, mark.scope) for mark in self._marked(keys.CONDEMNED, read_condemned)}
        for node, record in self.records.items():
            for name in record.tags:
                if (node, name) not in tagged:
                    key = TagRecord(name, node, record.seq, record.created).key()
                    message = f"tag {name!r} has no record that can be read: it does not find its state"
                    self.findings.add("warning", "tag", key, message, step=record.step)

    def _marked(self, folder: str, parse: Callable[[str, bytes], T]) -> list[T]:
        read = read_records(self.backend, self.below(folder), parse, limit=MAX_RECORD_BYTES, phase=folder)
        for mark in read:
            if mark.error is not None and not self._deleted(mark.key, mark.error):
                self.findings.unreadable(folder, mark.key, mark.error)
        return [mark.record for mark in read if mark.record is not None]


def _read_plan(key: str, data: bytes) -> Plan:
    if hashlib.sha256(data).hexdigest() != keys.parse_plan_key(key):
        raise CorruptionError("the plan is not the one that its name promises (its hash differs)", key=key)
    return Plan.from_json(loads(data, key=key, max_bytes=MAX_PLAN_BYTES))
