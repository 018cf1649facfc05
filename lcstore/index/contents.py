"""All that a store holds, read strictly: what a collector has to know before it lets anything go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from shlex import quote
from typing import Any, Final, NoReturn, TypeAlias, TypeVar

from lcstore.errors import CorruptionError, LcstoreError, StorageError, UnsupportedFormatError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody, ObjectRef, split_layouts
from lcstore.format.marks import RetiredRecord
from lcstore.format.parity import beyond_repair
from lcstore.format.records import EdgeRecord, NodeRecord, utc_now
from lcstore.graph.graph import Graph
from lcstore.index.gone import unrecorded
from lcstore.index.listing import COLLECTING, Listing
from lcstore.index.marked import Marks
from lcstore.jobs.survey import OnProgress
from lcstore.layout.qualified import stem_of
from lcstore.records.kinds import EDGE, NODE, RETIRED, TAG, Kind
from lcstore.records.reading import Records, read_all
from lcstore.storage.backend import Backend

R = TypeVar("R")
T = TypeVar("T")

#: How often a store is listed anew while collectors take away what was listed.
_TRIES: Final = 4

#: An array of an edge, of all its parts: pool and op.
ArrayKey: TypeAlias = tuple[str, keys.Op]

#: In the place of an array: the exact value of a node.
EXACT: Final = ("", "")


@dataclass(frozen=True, slots=True)
class Stored:
    """An edge, as far as a collector cares.

    Attributes
    ----------
    edge, base, target
        Its id, and from where to where it leads.
    own
        Whether it is the edge that the target was saved with.
    layout
        What the layout of the target is known by; "" for a shortcut.
    ops
        What it says of each tensor.
    arrays
        Its objects by array.
    exact
        The objects of the target's exact value, for an own edge.
    besides
        Objects of neither: metadata, plain values, parts that are objects of their own.
    """

    edge: str
    base: str
    target: str
    own: bool
    layout: str
    ops: bytes
    arrays: dict[ArrayKey, tuple[ObjectRef, ...]]
    exact: tuple[ObjectRef, ...] = ()
    besides: tuple[ObjectRef, ...] = ()

    @property
    def objects(self) -> Iterator[ObjectRef]:
        """All objects that its record names."""
        return chain(*self.arrays.values(), self.exact, self.besides)


@dataclass
class Contents:
    """What a store holds at one time, all of it.

    Attributes
    ----------
    graph, marks, named
        Nodes and edges, with what is marked.
    stored
        All edges by id.
    own
        Id of each node's own edge.
    parents
        Parent of each node.
    data
        Keys of the objects that are there, by edge.
    layouts
        Digests of the layouts that are there.
    copies
        Keys of second copies.
    retired, condemned
        Keys of the retirements and condemnations that were there before the nodes and edges were listed.
    lengths
        Bytes of the records of nodes and edges, by key.
    let_go
        When each node that is let go of was so last, by the clock of who did it.
    """

    graph: Graph
    marks: Marks
    named: tuple[markkeys.TagName, ...]
    stored: dict[str, Stored] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    data: dict[str, list[str]] = field(default_factory=dict)
    layouts: list[str] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    retired: list[str] = field(default_factory=list)
    condemned: list[str] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)
    let_go: dict[str, datetime] = field(default_factory=dict)

    @property
    def kept(self) -> set[str]:
        """Nodes that are not let go of."""
        return set(self.graph.nodes) - self.graph.hidden

    def let_go_within(self, seconds: float) -> set[str]:
        """Return the nodes that were let go of in so many last seconds, by a clock that may be ahead."""
        now, span = datetime.fromisoformat(utc_now()), timedelta(seconds=seconds)
        # By one that is ahead by much more, it would not be so long ago for years.
        return {node for node, at in self.let_go.items() if now - span < at < now + 8 * span}

    @property
    def named_layouts(self) -> set[str]:
        """Layouts that records name."""
        layouts = {stored.layout for stored in self.stored.values() if stored.own}
        return {digest for layout in layouts for _, digest in split_layouts(layout)}

    @property
    def idle_layouts(self) -> list[str]:
        """Layouts that no record names."""
        used = self.named_layouts
        return [digest for digest in self.layouts if digest not in used]

    @property
    def impassable(self) -> set[str]:
        """Nodes that were let go of and whose layout is lost: nothing can be read over them."""
        there, copies = {*self.layouts}, {*self.copies}

        def is_lost(layout: str) -> bool:
            digests = {digest for _, digest in split_layouts(layout)} - there
            return not copies.issuperset(map(keys.copy_key, digests))

        let_go = self.own.keys() & self.graph.hidden
        of = {node: self.stored[self.own[node]].layout for node in let_go}
        lost = set(filter(is_lost, {*of.values()}))
        return {node for node, layout in of.items() if layout in lost}

    def missing(self) -> dict[tuple[str, str, str], str]:
        """Return what is missing though no condemnation speaks of it: the key of an object of each.

        What can be rebuilt of what is there counts as there.

        Returns
        -------
        dict
            By edge, pool and operation; by edge and `EXACT` for the exact value of a node.
        """
        marked = {(name.edge, name.scope) for name in self.marks.condemned}
        found: dict[tuple[str, str, str], str] = {}
        for edge, stored in self.stored.items():
            there = set(self.data.get(edge, ()))
            exact = () if stored.target in self.marks.inexact else stored.exact
            for array, scope, refs in (
                (EXACT, markkeys.EXACT_VALUE, exact),
                *((array, markkeys.array_scope(*array), refs) for array, refs in stored.arrays.items()),
            ):
                lost = beyond_repair(refs, there)
                if lost is not None and marked.isdisjoint({(edge, scope), (edge, markkeys.WHOLE_EDGE)}):
                    found[edge, *array] = lost
        return found

    def key_of(self, edge: str) -> str | None:
        """Return the key of the record that an edge is in; None for objects of no record."""
        stored = self.stored.get(edge)
        if stored is None:
            return None
        if stored.own:
            return keys.node_key(self.graph.nodes[stored.target])
        return keys.edge_key(self.graph.edges[edge])


def read_contents(
    backend: Backend,
    before: Contents | None = None,
    on_progress: OnProgress | None = None,
    known: Records | None = None,
) -> Contents:
    """List a store and read its records; parameters and errors as for `judged_contents`."""
    return judged_contents(backend, lambda contents: None, before, on_progress, known)[0]


def judged_contents(
    backend: Backend,
    judge: Callable[[Contents], T],
    before: Contents | None = None,
    on_progress: OnProgress | None = None,
    known: Records | None = None,
) -> tuple[Contents, T]:
    """List a store and read all its records, and return that with what `judge` makes of it.

    Where something seems to be wrong, and a collector took records away since they were listed, all is
    listed anew.

    Parameters
    ----------
    backend, judge
        Where the store is; what raises `CorruptionError` where something is wrong.
    before
        What was read earlier: those records are not read again.
    on_progress
        Told how many records have been read.
    known
        Those that this process has read already: they are not read again either. What decides on what is
        deleted does without, and reads all of them.

    Raises
    ------
    CorruptionError
        A record cannot be read, contradicts its name, or has a parent of which nothing is known; a name among
        the records is none of theirs; or no state is recorded that several saves left objects of. Nothing may
        be collected then: run ``lcstore verify``.
    StorageError
        The target did not give what says which records are lost.
    """
    for left in reversed(range(_TRIES)):
        listing = Listing.take(backend, COLLECTING)
        listing.check_names()
        listing.check_lost()
        try:
            contents = _Reading(backend, listing, before, on_progress, known).run()
            if not contents.graph.nodes and (lost := unrecorded(listing)):
                way = f"`lcstore verify {quote(backend.url)}` says how they come back"
                raise CorruptionError(f"{lost}. {way}", key=keys.NODES)
            return contents, judge(contents)
        except CorruptionError:
            if not left or not listing.is_overtaken(backend):
                raise
    raise AssertionError("the last try returns or raises")


class _Reading:
    """Contents while they are read: whatever cannot be read ends it."""

    def __init__(
        self,
        backend: Backend,
        listing: Listing,
        before: Contents | None,
        on_progress: OnProgress | None,
        known: Records | None,
    ) -> None:
        self.backend = backend
        self.listing = listing
        self.before = before or Contents(Graph(), Marks(), ())
        self.on_progress = on_progress
        self.known = known
        early = listing.before[keys.RETIRED]
        self.made = Contents(
            Graph(),
            Marks(),
            listing.named,
            data=listing.data,
            layouts=listing.layouts,
            copies=listing.below(keys.COPIES),
            retired=[key for key in listing.below(keys.RETIRED) if key in early],
            condemned=listing.below(keys.CONDEMNED),
            lengths=dict(self.before.lengths),
            let_go=dict(self.before.let_go),
        )

    def run(self) -> Contents:
        made = self.made
        self._nodes()
        self._edges()
        early = {*self.before.retired, *map(markkeys.tag_key, self.before.named)}
        retired, tags = (
            [key for key in self.listing.below(kind.folder) if key not in early] for kind in (RETIRED, TAG)
        )
        self._read(RETIRED, retired, self._let_go)
        self._read(TAG, tags, lambda key, record: None)
        made.marks = self.listing.marks(made.graph.nodes)
        made.marks.mark(made.graph)
        _check_parents(made)
        self._look_again()
        return made

    def _let_go(self, key: str, record: RetiredRecord) -> None:
        name, at = markkeys.parse_retired_key(key), datetime.fromisoformat(record.created)
        if name.what == markkeys.WHOLE_STATE:
            self.made.let_go[name.node] = max(at, self.made.let_go.get(name.node, at))

    def _look_again(self) -> None:
        """List the objects of edges once more that seem to lack some: they were listed before the records."""
        for edge in dict.fromkeys(edge for edge, _, _ in self.made.missing()):
            self.made.data[edge] = self.backend.list(keys.edge_folder(edge))

    def _read(self, kind: Kind[Any, R], found: list[str], take: Callable[[str, R], None]) -> set[str]:
        lengths = self.made.lengths if kind in (NODE, EDGE) else None
        how = self.on_progress, None, lengths, self.known
        return read_all(self.backend, kind, found, take, _refuse, *how)

    def _nodes(self) -> None:
        made, before, new = self.made, self.before, []
        for name in self.listing.nodes:
            if name.node not in before.own:
                new.append(keys.node_key(name))
                continue
            made.graph.add(name)
            made.parents[name.node] = before.parents[name.node]
            self._take(before.stored[before.own[name.node]])

        def take(key: str, record: NodeRecord) -> None:
            name = keys.parse_node_key(key)
            made.graph.add(name)
            made.parents[name.node] = record.parent
            self._take(own_edge(name.node, record))

        self._read(NODE, new, take)

    def _edges(self) -> None:
        made, before, new = self.made, self.before, []
        for name in self.listing.edges:
            if name.edge not in before.stored:
                new.append(keys.edge_key(name))
                continue
            made.graph.add_edge(name)
            self._take(before.stored[name.edge])

        def take(key: str, record: EdgeRecord) -> None:
            made.graph.add_edge(keys.parse_edge_key(key))
            self._take(shortcut_edge(record))

        self._read(EDGE, new, take)

    def _take(self, stored: Stored) -> None:
        if stored.edge in self.made.stored:
            raise CorruptionError(f"two records claim edge {stored.edge}: run `lcstore verify`")
        self.made.stored[stored.edge] = stored
        if stored.own:
            self.made.own[stored.target] = stored.edge


def _refuse(key: str, error: LcstoreError) -> NoReturn:
    command = "doctor" if isinstance(error, StorageError) else "repair"
    mends = "" if isinstance(error, UnsupportedFormatError) else f": run `lcstore {command}`"
    message = f"{error.message}; nothing is collected while a record cannot be read{mends}"
    raise type(error)(message, key=error.key, step=error.step) from error


def _check_parents(taken: Contents) -> None:
    for node, parent in taken.parents.items():
        if node in taken.graph.hidden or parent is None or parent in taken.graph.nodes:
            continue
        if parent not in taken.marks.retired:
            name = taken.graph.nodes[node]
            raise CorruptionError(
                f"its parent, node {parent}, is missing, and no record says that it was retired; nothing is "
                "collected while that is so: run `lcstore repair`",
                key=keys.node_key(name),
                step=name.step,
            )


def own_edge(node: str, record: NodeRecord) -> Stored:
    """Return the edge that a node was saved with."""
    exact = record.exact.objects if record.exact is not None else ()
    ops = record.edge.columns.get("op", b"")
    edge, single = record.edge, (part.stored for part in record.edge.parts if part.stored is not None)
    besides = (*_besides(edge), *record.leaves_objects, *single)
    return Stored(edge.id, edge.base, node, True, record.layout, ops, _arrays(edge), exact, besides)


def shortcut_edge(record: EdgeRecord) -> Stored:
    """Return an edge that maintenance added."""
    edge, ops = record.edge, record.edge.columns.get("op", b"")
    return Stored(edge.id, edge.base, record.target, False, "", ops, _arrays(edge), (), _besides(edge))


def _besides(edge: EdgeBody) -> tuple[ObjectRef, ...]:
    return tuple(ref for ref in edge.objects if keys.parse_data_key(ref.key).pool is None)


def _arrays(edge: EdgeBody) -> dict[ArrayKey, tuple[ObjectRef, ...]]:
    found: defaultdict[ArrayKey, list[ObjectRef]] = defaultdict(list)
    for ref in edge.objects:
        name = keys.parse_data_key(ref.key)
        if name.pool is not None and name.op is not None:
            found[stem_of(name.pool), name.op].append(ref)
    return {array: tuple(refs) for array, refs in found.items()}
