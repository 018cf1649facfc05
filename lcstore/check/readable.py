"""Every record of a store that can be read, for `verify` and `repair`, with what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeVar

from lcstore.check.copied import Copied, copied
from lcstore.check.findings import REPAIR, Findings
from lcstore.check.going import edges_of, kept_in, staying, staying_now
from lcstore.errors import LcstoreError, NotFoundError, StorageError, UnsupportedFormatError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import split_layouts
from lcstore.format.keyforms import OTHER, STRAY
from lcstore.format.marks import RetiredRecord, TagRecord
from lcstore.format.records import EdgeRecord, NodeRecord, StoreRecord
from lcstore.graph.graph import Graph
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.index.gone import DAMAGED
from lcstore.index.links import Link
from lcstore.index.listing import CHECKING, Listing, is_amiss
from lcstore.index.marked import Marks, bearers
from lcstore.index.uncopied import copied_late
from lcstore.jobs.survey import OnProgress, spread
from lcstore.layout.join import join
from lcstore.layout.layout import Layout
from lcstore.records.kinds import (
    CONDEMNED,
    EDGE,
    FOLDERS,
    KINDS,
    LAYOUT,
    NODE,
    RETIRED,
    TAG,
    Kind,
    is_own,
    store_record_at,
)
from lcstore.records.reading import read_all
from lcstore.storage.backend import CLOCK, Backend, read_capped

R = TypeVar("R")

#: What the storage's clock and `doctor` leave behind when they are cut off.
_SCRATCH: Final = (f"{CLOCK}/", "conformance/", "lcstore-doctor-")
#: What findings about records of each folder are called.
_CHECKS: Final = {keys.NODES: "record", keys.EDGES: "record"}
_MARKS: Final[tuple[Kind[Any, Any], ...]] = (TAG, RETIRED, CONDEMNED)


class Readable:
    """What is in a store, as far as it can be read. Whatever cannot be is a finding.

    Attributes
    ----------
    listed
        Keys of everything that lcstore may have written.
    graph
        The graph that readers go by, marked: of all names, also those whose records could not be read.
    records, edges
        What could be read.
    layouts, stored_layouts
        Those of records, joined of their parts', and those that are stored, by hash.
    own, shortcuts
        Edges that can be used as far as records go, by node and by edge: with layout and columns.
    marks, named
        What names say is retired, pinned, condemned and tagged: readers go by them alone.
    lost
        The nodes that a repair let go of, by what retirements say.
    unreadable, mended
        The records that could not be read, each with why; and those that could by their second copies alone.
    uncopied
        Second copies that are damaged or missing, with what they are copies of.
    """

    def __init__(self, backend: Backend, findings: Findings, on_progress: OnProgress | None = None) -> None:
        self.backend = backend
        self.findings = findings
        self.on_progress = on_progress
        self.graph = Graph()
        self.listing = Listing({})
        self.listed: set[str] = set()
        self.records: dict[str, NodeRecord] = {}
        self.edges: dict[str, EdgeRecord] = {}
        self.layouts: dict[str, Layout] = {}
        self.stored_layouts: dict[str, Layout] = {}
        self.own: dict[str, Link] = {}
        self.shortcuts: dict[str, Link] = {}
        self.marks = Marks()
        self.named: tuple[markkeys.TagName, ...] = ()
        self.lost: set[str] = set()
        self.unreadable: dict[str, LcstoreError] = {}
        self.mended: dict[str, LcstoreError] = {}
        self.uncopied: dict[str, str] = {}
        self._condemned: set[tuple[str, str]] = set()

    @property
    def kept(self) -> list[str]:
        """Nodes that are not let go of: the states that there are to judge."""
        return kept_in(self.graph)

    @property
    def unknown(self) -> set[str] | None:
        """Nodes of which others tell, and whose records are missing; None where it may be those of any."""
        if not self.graph.nodes:
            return None
        told = {record.parent for record in self.records.values()} - {None}
        bases = {name.base for name in self.graph.nodes.values()} - {ROOT}
        return {node for node in told | bases if node} - {*self.graph.nodes} - self.marks.retired

    def take(self) -> None:
        """List and read everything.

        Raises
        ------
        NotFoundError
            There is nothing of a store: what lies here may be other stores, each in a folder of its own.
        """
        self.listing = Listing.take(self.backend, CHECKING)
        if not any(map(is_own, chain.from_iterable(self.listing.by_folder.values()))):
            raise NotFoundError(f"there is no store at {self.backend.url}", missing="store")
        self._store_record()
        self._names()
        self._nodes()
        self._edges()
        self._layouts()
        self._marks()
        self._copies()
        if (doubt := self.listing.doubt) is not None:
            self._lost_record("copy", str(doubt.key), doubt)

    def is_overtaken(self) -> bool:
        """Return whether maintenance was at work since the store was listed: what seems damage may be none.

        What it condemned, or took away, may have been read over edges that it added.
        """
        folders = keys.CONDEMNED, keys.EDGES
        now = {key for folder in folders for key in self.backend.list(folder)}
        new = now - {key for folder in folders for key in self.below(folder)}
        return bool(new) or self.listing.is_overtaken(self.backend)

    def below(self, folder: str) -> list[str]:
        """Return the keys below a folder, in order."""
        return self.listing.below(folder)

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
        return edges_of(self.graph)

    def key_of(self, ref: EdgeRef) -> str:
        """Return the key of the record that an edge is in."""
        if ref.edge is None:
            return keys.node_key(self.graph.nodes[ref.target])
        return keys.edge_key(self.graph.edges[ref.edge])

    def is_condemned(self, edge: str, scope: str) -> bool:
        """Return whether a record accounts for objects that are gone."""
        return any((edge, s) in self._condemned for s in (scope, markkeys.WHOLE_EDGE))

    def see(self, marks: Marks) -> None:
        """Take marks for those of the store."""
        before, self.marks = self.marks, marks
        if before.condemned <= marks.condemned and before.hidden <= marks.hidden:
            # A repair adds thousands, one by one, which all of them are not gone over for.
            new = replace(marks, condemned=marks.condemned - before.condemned)
        else:
            new, self._condemned = marks, set()
            self.graph = Graph(self.graph.nodes.values(), self.graph.edges.values())
        self._condemned |= {(name.edge, name.scope) for name in new.condemned}
        new.mark(self.graph)

    def _store_record(self) -> None:
        try:
            record = store_record_at(self.backend, keys.STORE_KEY)
        except UnsupportedFormatError:  # whole, and nothing that an older version could look at
            raise
        except LcstoreError as error:
            try:
                record = store_record_at(self.backend, keys.copy_key(keys.STORE_KEY))
            except LcstoreError as other:
                why = other if isinstance(other, StorageError) else error  # it may well be whole
                self._lost_record("store", keys.STORE_KEY, why)
                return
            try:  # both may have come since: the record is stored before its copy
                store_record_at(self.backend, keys.STORE_KEY)
            except LcstoreError:
                self._mended(keys.STORE_KEY, error)
        if record.grace_seconds != (usual := StoreRecord().grace_seconds):
            message = f"the grace of this store is {record.grace_seconds} s; stores are made with {usual} s"
            self.findings.add("info", "store", keys.STORE_KEY, message)

    def _names(self) -> None:
        """Check that every name parses; those that do not are left out of all that follows."""
        self._others()
        for name in sorted(set(self.listing.foreign)):
            self.findings.add("error" if is_amiss(name) else "warning", "name", name, STRAY)
        aside = self.listing.by_folder.pop(keys.QUARANTINE, [])
        if aside:
            objects = "1 object" if len(aside) == 1 else f"{len(aside)} objects"
            message = f"{objects} that a repair set aside as damaged"
            self.findings.add("info", "quarantine", keys.QUARANTINE, message)
        self.listing.drop_unparsable(
            lambda key, error: self.findings.add("error", "name", key, error.message)
        )
        for folder, found in self.listing.by_folder.items():
            if folder not in KINDS:
                self.listing.by_folder[folder] = [key for key in found if self._is_known(key)]
        self.listed = {key for found in self.listing.by_folder.values() for key in found}

    def _others(self) -> None:
        """Leave out other stores that lie in the folder of this one, with a finding for each."""
        mark = f"/{keys.STORE_KEY}"
        outside = {top: found for top, found in self.listing.by_folder.items() if top not in FOLDERS}
        marked = {key.removesuffix(mark) for key in chain(*outside.values()) if key.endswith(mark)}
        others = {folder.removesuffix(f"/{keys.COPIES}") for folder in marked}
        for other in sorted(others):
            self.findings.add("warning", "name", other, OTHER)
        inside = tuple(f"{other}/" for other in others)
        for top, found in outside.items():
            self.listing.by_folder[top] = [key for key in found if not key.startswith(inside)]
        self.listing.foreign = [name for name in self.listing.foreign if not name.startswith(inside)]

    def _is_known(self, key: str) -> bool:
        if key.startswith(_SCRATCH):
            self.findings.add("info", "name", key, "left by a check that was cut off: it may be deleted")
        elif key != keys.STORE_KEY and not keys.is_data_key(key):
            self.findings.add("warning", "name", key, STRAY)
            return False
        return True

    def _read(self, kind: Kind[Any, R], take: Callable[[str, R], None]) -> list[str]:
        """Read the records of a kind; return the keys of those that are still there, in order."""
        check = _CHECKS.get(kind.folder, kind.folder)

        def problem(key: str, error: LcstoreError) -> None:
            # A mark is written again from its name.
            again = REPAIR if kind in _MARKS else None
            self._lost_record(check, key, error, step=keys.step_of(key), next=again)

        found = self.below(kind.folder)
        there = read_all(self.backend, kind, found, take, problem, self.on_progress, self._mended)
        return [key for key in self.below(kind.folder) if key in there]

    def _nodes(self) -> None:
        def take(key: str, record: NodeRecord) -> None:
            self.records[keys.parse_node_key(key).node] = record

        for key in self._read(NODE, take):
            self._to_graph(key, lambda key: self.graph.add(keys.parse_node_key(key)))
        for run in self.graph.ambiguous_runs():
            message = f"run {run} was taken by two writers at the same time; each made a branch"
            self.findings.add("warning", "run", None, message)

    def _edges(self) -> None:
        def take(key: str, record: EdgeRecord) -> None:
            self.edges[keys.parse_edge_key(key).edge] = record

        for key in self._read(EDGE, take):
            self._to_graph(key, lambda key: self.graph.add_edge(keys.parse_edge_key(key)))

    def _layouts(self) -> None:
        """Read the layouts that are there; whether one is missing is a question for whoever needs it."""
        needed = {record.layout: split_layouts(record.layout) for record in self.records.values()}
        used = {keys.layout_key(digest) for parts in needed.values() for _, digest in parts}

        def take(key: str, layout: Layout) -> None:
            self.stored_layouts[keys.parse_layout_key(key)] = layout

        def problem(key: str, error: LcstoreError) -> None:
            if key in used:
                self._lost_record("layout", key, error)
            else:  # an interrupted save leaves that; collecting deletes it
                why = "; no record that could be read names it"
                self.findings.unreadable("orphan", key, error, severity="info", why=why)

        found = {*self.below(keys.LAYOUTS), *used}  # a missing one may have a second copy
        read_all(self.backend, LAYOUT, sorted(found), take, problem, self.on_progress, self._mended)
        for layout, parts in needed.items():
            if all(digest in self.stored_layouts for _, digest in parts):
                self._join(layout, parts)

    def _copies(self) -> None:
        """Note the second copies that are damaged, or missing where there were any, of what is whole."""
        gone = not self.below(keys.COPIES)
        there = {*self.below(keys.COPIES), *self.below(keys.DATA)}
        wanted = self._to_be_copied(*staying(self.graph, self.marks), usual=not gone)
        whole = [
            (copy, one)
            for copy, one in wanted.items()
            if (one.due or copy in there) and one.key not in self.mended and one.key not in self.unreadable
        ]

        def lacks(pair: tuple[str, Copied]) -> bool:
            copy, one = pair
            try:
                data = read_capped(self.backend, one.key, one.most)
                if one.ref is not None:
                    one.ref.check(data)
            except LcstoreError:
                return False  # what is wrong with it is told elsewhere
            try:
                return copy not in there or read_capped(self.backend, copy, len(data)) != data
            except LcstoreError:
                return True

        looked = zip(whole, spread(lacks, whole), strict=True)  # twice, as a bit may flip on the way
        lacking = [pair for pair, wrong in looked if wrong and lacks(pair)]
        # A collector deletes copies before anything else: this may have met one at that.
        still = self._to_be_copied(*staying_now(self.backend), usual=not gone) if lacking else {}
        late = set[str]() if gone else copied_late(self.graph).keys() - there
        for copy, one in lacking:
            if copy not in still:
                continue
            key = self.uncopied[copy] = one.key
            # Said alike of each, so that many are told in one line; the key says what it is a copy of.
            message = f"the second copy is {'damaged' if copy in there else 'missing'}"
            step = keys.step_of(key)
            if copy in late:
                why = f"{message}, as a killed process leaves it, or a copy from a bucket: harmless, "
                why += "and a later collect stores it"
                self.findings.add("info", "copy", copy, why, step=step)
            else:
                self.findings.add("warning", "copy", copy, message, step=step, next=REPAIR)

    def _join(self, layout: str, parts: list[tuple[str, str]]) -> None:
        try:
            self.layouts[layout] = join([(part, self.stored_layouts[digest]) for part, digest in parts])
        except LcstoreError as error:
            self.findings.unreadable("layout", keys.layout_key(parts[0][1]), error)

    def _to_be_copied(self, nodes: set[str], edges: set[str], *, usual: bool) -> dict[str, Copied]:
        """Return what each second copy of some nodes and edges is of; see `copied`."""
        records = {node: record for node, record in self.records.items() if node in nodes}
        return copied(records, [self.edges[edge] for edge in edges & self.edges.keys()], usual=usual)

    def missing_layout(self, layout: str) -> str:
        """Return the key of what makes the layout of a record useless: one that is missing, or the first."""
        digests = [digest for _, digest in split_layouts(layout)]
        return keys.layout_key(next((d for d in digests if d not in self.stored_layouts), digests[0]))

    def _to_graph(self, key: str, add: Callable[[str], None]) -> None:
        try:
            add(key)
        except LcstoreError as error:
            self.findings.add("error", "record", key, error.message)

    def _mended(self, key: str, error: LcstoreError) -> None:
        """Note a record, or a layout, that could be read by its second copy alone."""
        self.mended[key] = error
        self.findings.mended(key, error, step=keys.step_of(key))

    def _lost_record(
        self, check: str, key: str, error: LcstoreError, *, step: int | None = None, next: str | None = None
    ) -> None:
        self.unreadable[key] = error
        self.findings.unreadable(check, key, error, step=step, next=next)

    def _marks(self) -> None:
        def seen(key: str, record: object) -> None:
            if isinstance(record, RetiredRecord) and record.reason.startswith(DAMAGED):
                self.lost |= {record.node} if record.what == markkeys.WHOLE_STATE else set()

        for kind in _MARKS:
            there = self._read(kind, seen)
            self.listed.difference_update(set(self.below(kind.folder)).difference(there))
            self.listing.by_folder[kind.folder] = there
        self.named = self.listing.named
        self.see(self.listing.marks(self.graph.nodes))
        for name in self.named:
            if name.node is not None and name.node not in self.graph.nodes:
                held = name in bearers(self.named, "pin", {name.node}).get(name.name, ())
                unread = any(key.startswith(keys.NODES) for key in self.unreadable)
                self.findings.of_no_state(name, held=held, unread=unread)
        known = {name.name for name in self.named if name.kind == "tag"}
        for node in self.kept:
            record = self.records.get(node)
            for tag in record.tags if record is not None else ():
                if record is not None and tag not in known:
                    key = TagRecord(tag, node, 0, record.created).key()
                    message = f"tag {tag!r} has no record: it does not find its state"
                    self.findings.add("warning", "tag", key, message, step=record.step)
