"""Every record of a store, read and checked for `verify`: what is there, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from lcstore.errors import CorruptionError, LcstoreError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import split_layouts
from lcstore.format.hashing import hash_of
from lcstore.format.marks import TagRecord, read_condemned, read_retired, read_tag
from lcstore.format.records import EdgeRecord, NodeRecord, StoreRecord
from lcstore.format.strictjson import loads
from lcstore.graph.graph import Graph
from lcstore.graph.names import EdgeRef
from lcstore.index.catalog import read_store_record
from lcstore.index.findings import Findings
from lcstore.index.links import Link
from lcstore.index.marked import Marks, bearers, marks_of
from lcstore.index.parts import edge_reader, node_reader
from lcstore.limits import MAX_LAYOUT_BYTES, MAX_RECORD_BYTES
from lcstore.state.join import join
from lcstore.state.layout import Layout
from lcstore.storage.backend import Backend
from lcstore.storage.survey import OnProgress, read_records

T = TypeVar("T")

_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    keys.NODES: keys.parse_node_key,
    keys.EDGES: keys.parse_edge_key,
    keys.LAYOUTS: keys.parse_layout_key,
    keys.COPIES: keys.parse_copy_key,
    keys.NAMES: keys.parse_tag_key,
    keys.RETIRED: keys.parse_retired_key,
    keys.CONDEMNED: keys.parse_condemned_key,
}
#: What the storage's clock and `doctor` leave behind when they are cut off.
_SCRATCH: Final = ("clock/", "conformance/", "lcstore-doctor-")
_FOREIGN: Final = "no lcstore wrote this: it is no name of a store"


class Inventory:
    """What is in a store, as far as it can be read.

    Attributes
    ----------
    listed
        Keys of everything that lcstore may have written.
    graph
        Of all names, also those whose records could not be read: what a reader goes by. It is marked.
    records, edges
        What could be read.
    layouts, stored_layouts
        Those of records, joined of their parts', and those that are stored, by hash.
    own, shortcuts
        Edges that can be used as far as records go, by node and by edge: with layout and columns.
    marks, named
        What names say is retired, pinned, condemned and tagged: readers go by them alone.
    unreadable
        The records that could not be read, each with why.
    """

    def __init__(self, backend: Backend, findings: Findings, on_progress: OnProgress | None = None) -> None:
        self.backend = backend
        self.findings = findings
        self.on_progress = on_progress
        self.graph = Graph()
        self.listed: set[str] = set()
        self.records: dict[str, NodeRecord] = {}
        self.edges: dict[str, EdgeRecord] = {}
        self.layouts: dict[str, Layout] = {}
        self.stored_layouts: dict[str, Layout] = {}
        self.own: dict[str, Link] = {}
        self.shortcuts: dict[str, Link] = {}
        self.marks = Marks()
        self.named: tuple[keys.TagName, ...] = ()
        self.unreadable: dict[str, LcstoreError] = {}
        self._condemned: set[tuple[str, str]] = set()

    @property
    def kept(self) -> list[str]:
        """Nodes that are not let go of: the states that there are to judge."""
        return [node for node in self.graph.nodes if node not in self.graph.hidden]

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
        self._layouts()
        self._marks()

    def below(self, folder: str) -> list[str]:
        """Return the keys below a folder, in order."""
        return sorted(key for key in self.listed if key.startswith(f"{folder}/"))

    @property
    def links(self) -> dict[str, Link]:
        """The edges that can be used, by id."""
        return {link.id: link for link in self.own.values()} | self.shortcuts

    def link(self, ref: EdgeRef) -> Link | None:
        """Return an edge of the graph; None where its records cannot be used."""
        if ref.edge is None:
            return self.own.get(ref.target)
        return self.shortcuts.get(ref.edge) if ref.target in self.own else None

    def refs(self) -> list[EdgeRef]:
        """Return all edges of the graph that lead to nodes that are there."""
        graph = self.graph
        own = [EdgeRef(name.base, node, None, name.nbytes) for node, name in graph.nodes.items()]
        added = [EdgeRef(e.base, e.target, e.edge, e.nbytes) for e in graph.edges.values()]
        return own + [ref for ref in added if ref.target in graph.nodes]

    def key_of(self, ref: EdgeRef) -> str:
        """Return the key of the record that an edge is in."""
        if ref.edge is None:
            return keys.node_key(self.graph.nodes[ref.target])
        return keys.edge_key(self.graph.edges[ref.edge])

    def is_condemned(self, edge: str, scope: str) -> bool:
        """Say whether a record accounts for objects that are gone."""
        return any((edge, s) in self._condemned for s in (scope, keys.WHOLE_EDGE))

    def see(self, marks: Marks) -> None:
        """Take marks for those of the store."""
        self.marks = marks
        self._condemned = {(name.edge, name.scope) for name in marks.condemned}
        if marks.outdated(self.graph):
            self.graph = Graph(self.graph.nodes.values(), self.graph.edges.values())
        marks.mark(self.graph)

    def _store_record(self) -> None:
        try:
            record = read_store_record(self.backend)
        except LcstoreError as error:
            self._lost_record("store", keys.STORE_KEY, error)
            return
        usual = StoreRecord().grace_seconds
        if record.grace_seconds != usual:
            message = f"the grace of this store is {record.grace_seconds} s; stores are made with {usual} s"
            self.findings.add("info", "store", keys.STORE_KEY, message)

    def _names(self, foreign: Iterable[str]) -> None:
        """Every name parses; those that do not are left out of all that follows."""
        for name in foreign:
            self.findings.add("warning", "name", name, _FOREIGN)
        aside = self.below(keys.QUARANTINE)
        self.listed.difference_update(aside)
        if aside:
            message = f"{len(aside)} of the store's records could not be read: a repair set them aside"
            self.findings.add("info", "quarantine", keys.QUARANTINE, message)
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
        for read in read_records(
            self.backend, found, node_reader(self.backend), on_progress=self.on_progress
        ):
            name = keys.parse_node_key(read.key)
            if read.record is not None:
                self.records[name.node] = read.record
            elif self._deleted(read.key, read.error):
                continue
            else:
                self._lost_record("record", read.key, read.error, step=name.step)
            self._to_graph(read.key, lambda key: self.graph.add(keys.parse_node_key(key)))
        for run in self.graph.ambiguous_runs():
            message = f"run {run} was taken by two writers at the same time; each made a branch"
            self.findings.add("warning", "run", None, message)

    def _edges(self, found: list[str]) -> None:
        parse = edge_reader(self.backend)
        for read in read_records(self.backend, found, parse, phase="edges", on_progress=self.on_progress):
            if read.record is not None:
                self.edges[keys.parse_edge_key(read.key).edge] = read.record
            elif self._deleted(read.key, read.error):
                continue
            else:
                self._lost_record("record", read.key, read.error)
            self._to_graph(read.key, lambda key: self.graph.add_edge(keys.parse_edge_key(key)))

    def _to_graph(self, key: str, add: Callable[[str], None]) -> None:
        try:
            add(key)
        except LcstoreError as error:
            self.findings.add("error", "name", key, error.message)

    def _deleted(self, key: str, error: LcstoreError | None) -> bool:
        """Say whether a listed record has been deleted since, as collecting does."""
        return isinstance(error, NotFoundError) and key not in self.backend.list(key.partition("/")[0])

    def _lost_record(
        self, check: str, key: str, error: LcstoreError | None, *, step: int | None = None
    ) -> None:
        assert error is not None
        self.unreadable[key] = error
        self.findings.unreadable(check, key, error, step=step)

    def _layouts(self) -> None:
        """Read the layouts that are there; whether one is missing is a question for whoever needs it."""
        found = self.below(keys.LAYOUTS)
        for read in read_records(self.backend, found, _read_layout, limit=MAX_LAYOUT_BYTES, phase="layouts"):
            if read.record is not None:
                self.stored_layouts[keys.parse_layout_key(read.key)] = read.record
            elif not self._deleted(read.key, read.error):
                self._lost_record("layout", read.key, read.error)
        for layout in {record.layout for record in self.records.values()}:
            parts = split_layouts(layout)
            if all(digest in self.stored_layouts for _, digest in parts):
                self._join(layout, parts)

    def _join(self, layout: str, parts: list[tuple[str, str]]) -> None:
        try:
            self.layouts[layout] = join([(part, self.stored_layouts[digest]) for part, digest in parts])
        except LcstoreError as error:
            self.findings.unreadable("layout", keys.layout_key(parts[0][1]), error)

    def missing_layout(self, layout: str) -> str:
        """Return the key of what makes the layout of a record useless: one that is missing, or the first."""
        digests = [digest for _, digest in split_layouts(layout)]
        return keys.layout_key(next((d for d in digests if d not in self.stored_layouts), digests[0]))

    def _marks(self) -> None:
        self._marked(keys.NAMES, read_tag)
        self._marked(keys.RETIRED, read_retired)
        self._marked(keys.CONDEMNED, read_condemned)
        self.named = tuple(map(keys.parse_tag_key, self.below(keys.NAMES)))
        pins = bearers(self.named, "pin", self.graph.nodes)
        self.see(
            marks_of(
                map(keys.parse_retired_key, self.below(keys.RETIRED)),
                {name.node for names in pins.values() for name in names if name.node is not None},
                map(keys.parse_condemned_key, self.below(keys.CONDEMNED)),
            )
        )
        for name in self.named:
            if name.node is not None and name.node not in self.graph.nodes:
                what = f"{name.kind} {name.name!r} is of no state that is there"
                message = f"{what}; an interrupted save leaves that"
                self.findings.add("info", "tag", keys.tag_key(name), message)
        known = {name.name for name in self.named if name.kind == "tag"}
        for node in self.kept:
            record = self.records.get(node)
            for tag in record.tags if record is not None else ():
                if record is not None and tag not in known:
                    key = TagRecord(tag, node, 0, record.created).key()
                    message = f"tag {tag!r} has no record: it does not find its state"
                    self.findings.add("warning", "tag", key, message, step=record.step)

    def _marked(self, folder: str, parse: Callable[[str, bytes], object]) -> None:
        found = self.below(folder)
        for mark in read_records(self.backend, found, parse, limit=MAX_RECORD_BYTES, phase=folder):
            if mark.error is None:
                continue
            if self._deleted(mark.key, mark.error):
                self.listed.discard(mark.key)
            else:
                self._lost_record(folder, mark.key, mark.error)


def _read_layout(key: str, data: bytes) -> Layout:
    if hash_of(data) != keys.parse_layout_key(key):
        raise CorruptionError("the layout is not the one that its name promises (its hash differs)", key=key)
    return Layout.from_json(loads(data, key=key, max_bytes=MAX_LAYOUT_BYTES))
