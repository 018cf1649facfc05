"""What a store holds, in numbers, from its records: one listing, and every record read once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from lcstore.errors import CorruptionError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.graph.refs import ROOT
from lcstore.index.leftovers import bytes_left, left_over
from lcstore.index.lengths import lengths_of
from lcstore.index.listing import CHECKING, Listing
from lcstore.index.marked import Marks
from lcstore.jobs.survey import OnProgress
from lcstore.layout.layout import Layout
from lcstore.records.kinds import EDGE, KINDS, NODE
from lcstore.records.reading import ReadRecord, Records, read_each
from lcstore.storage.backend import Backend
from lcstore.storage.targets import bytes_on_disk

#: What is stored of records, besides those that are read and second copies.
_UNREAD: Final = KINDS.keys() - {keys.NODES, keys.EDGES, keys.COPIES} | {keys.STORE_KEY}


@dataclass(frozen=True)
class Stats:
    """A store in numbers.

    Attributes
    ----------
    states, steps, runs, anchors, deltas
        Counts of what is kept; a step that was saved twice is one step and two states.
    shortcuts
        Edges that maintenance added.
    retired
        States that were let go of, and are still there: `collect` has not come to them, or others stand on
        them.
    bytes_raw
        Of the tensors of the states that are kept, by kind (``anchor``, ``delta``) and in ``total``; without
        those that were stripped.
    bytes_stored
        Of everything that is there of what records name, by kind (``anchor``, ``delta``, ``exact`` values,
        ``shortcut``, and ``retired`` for what such states were saved with and exact values that were let go
        of), of the ``records`` themselves (with layouts and tags), and in ``total``.
    condemned, condemned_bytes
        How many of these objects, and bytes, a collector is going to delete.
    pools
        Stored bytes by pool and what is stored of it: ``weights-float32.add``.
    protection_bytes
        Of what is stored, what is there only for the case of damage: parity, and second copies.
    orphans, orphan_bytes
        Objects of no record, and files that no write ended: what interrupted saves left, or saves under way.
        Not in the total.
    quarantined, quarantined_bytes
        What a repair set aside in ``quarantine/``, which is no part of the store. Not in the total.
    bytes_on_disk
        What a local store takes of its disk, in whole blocks; None of other stores.
    unreadable
        The records that could not be read, each with why: the numbers lack them.
    """

    url: str
    states: int
    steps: int
    runs: int
    anchors: int
    deltas: int
    shortcuts: int
    retired: int
    bytes_raw: dict[str, int]
    bytes_stored: dict[str, int]
    condemned: int
    condemned_bytes: int
    pools: dict[str, int]
    orphans: int
    orphan_bytes: int
    protection_bytes: int = 0
    quarantined: int = 0
    quarantined_bytes: int = 0
    bytes_on_disk: int | None = None
    unreadable: dict[str, str] = field(default_factory=dict)

    @property
    def may_be_stuck(self) -> bool:
        """Whether states were let go of and nothing is condemned: kept ones may be read over all of them."""
        return self.retired > 0 and not self.condemned

    @property
    def ratio(self) -> float:
        """Raw bytes per stored byte, everything that is stored counted."""
        return self.bytes_raw["total"] / max(self.bytes_stored["total"], 1)


class _Count:
    """Numbers while they are added up."""

    def __init__(self, there: set[str], marks: Marks, layout: Callable[[str], Layout]) -> None:
        self.there = there
        self.layout = layout
        self.stripped = marks.stripped
        #: The bytes of tensors that were let go of, by layout and pools.
        self.gone: dict[tuple[str, frozenset[str]], int] = {}
        self.hidden = marks.hidden
        self.inexact = marks.inexact
        self.scopes = {(name.edge, name.scope) for name in marks.condemned}
        self.raw: Counter[str] = Counter(anchor=0, delta=0)
        self.stored: Counter[str] = Counter(anchor=0, delta=0, exact=0, shortcut=0, retired=0, records=0)
        self.pools: Counter[str] = Counter()
        self.known: set[str] = set()
        self.protection = 0
        self.condemned: dict[str, int] = {}
        self.unreadable: dict[str, str] = {}

    def objects(self, kind: str, refs: tuple[ObjectRef, ...], *, exact: bool = False) -> None:
        # What is named and not there was collected; `verify` is what looks for damage.
        for ref in refs:
            if ref.key in self.known or ref.key not in self.there:
                continue
            self.known.add(ref.key)
            self.stored[kind] += ref.nbytes
            name = keys.parse_data_key(ref.key)
            self.protection += ref.nbytes if name.parity is not None else 0
            array = None if name.pool is None or name.op is None else markkeys.array_scope(name.pool, name.op)
            self.pools[array or "other"] += ref.nbytes
            scope = markkeys.EXACT_VALUE if exact else array
            if {(name.edge, markkeys.WHOLE_EDGE), (name.edge, scope)} & self.scopes:
                self.condemned[ref.key] = ref.nbytes

    def node(self, node: str, record: NodeRecord) -> None:
        kind = "anchor" if record.edge.base == ROOT else "delta"
        if node in self.hidden:
            kind = "retired"
        else:
            self.raw[kind] += int(record.stats.get("bytes_raw", 0))
            if node in self.stripped:
                self.raw[kind] -= self.let_go(record.layout, self.stripped[node])
        self.objects(kind, record.edge.objects)
        stored = (part.stored for part in record.edge.parts if part.stored is not None)
        self.objects(kind, (*record.leaves_objects, *stored))
        if record.exact is not None:
            kind = "retired" if node in self.hidden or node in self.inexact else "exact"
            self.objects(kind, record.exact.objects, exact=True)

    def let_go(self, layout: str, pools: frozenset[str]) -> int:
        """Return the bytes of the tensors of a layout that lie in some pools; 0 where it cannot be read."""
        if (layout, pools) not in self.gone:
            self.gone[layout, pools] = 0
            try:
                found = self.layout(layout)
                gone = zip(found.tensors, found.within(pools), strict=True)
                self.gone[layout, pools] = sum(spec.nbytes for spec, is_gone in gone if is_gone)
            except CorruptionError as error:
                self.unreadable[error.key or layout] = error.message
        return self.gone[layout, pools]

    def tally(self, read: ReadRecord[NodeRecord] | ReadRecord[EdgeRecord]) -> None:
        self.stored["records"] += read.nbytes
        if isinstance(read.record, NodeRecord):
            self.node(keys.parse_node_key(read.key).node, read.record)
        elif read.record is not None:
            self.objects("shortcut", read.record.edge.objects)
        elif read.error is not None:
            self.unreadable[read.key] = read.error.message


def stats(
    backend: Backend,
    layout: Callable[[str], Layout],
    on_progress: OnProgress | None = None,
    seen: Callable[[ReadRecord[NodeRecord]], None] | None = None,
    known: Records | None = None,
) -> Stats:
    """Count what a store holds.

    Parameters
    ----------
    backend
        Where the store is.
    layout
        Gives a layout by what it is known by: of states that were stripped, to know what is left.
    on_progress
        Told how many records have been read.
    seen, known
        Given, or offered, each record of a node as it was read, for whoever wants more of them.

    Raises
    ------
    CorruptionError
        A name in the store is not one of lcstore's. (A record that cannot be read is counted as that.)
    """
    listing = Listing.take(backend, CHECKING)
    names, data = listing.nodes, listing.below(keys.DATA)
    marks = listing.marks({name.node for name in names})
    count = _Count(set(data), marks, layout)
    for node in read_each(backend, NODE, listing.below(keys.NODES), on_progress):
        count.tally(node)
        if seen is not None:
            seen(node)
        if known is not None and node.error is None:
            known.offer(node.key, node.record, node.nbytes)
    for edge in read_each(backend, EDGE, listing.below(keys.EDGES)):
        count.tally(edge)
    other = [listing.below(folder) for folder in _UNREAD]
    kept = [name for name in names if name.node not in marks.hidden]
    beside = [key for key in data if keys.copied_from(key) in count.known]
    copies = _bytes(backend, [*listing.below(keys.COPIES), *beside])
    count.stored["records"] += _bytes(backend, chain.from_iterable(other)) + copies
    orphans = sorted(set(data) - count.known - set(beside))
    left = left_over(backend)
    quarantine = listing.below(keys.QUARANTINE)
    return Stats(
        url=backend.url,
        states=len(kept),
        steps=len({name.step for name in kept}),
        runs=len({(name.run, name.run_id) for name in kept}),
        anchors=sum(name.base == ROOT for name in kept),
        deltas=sum(name.base != ROOT for name in kept),
        shortcuts=len(listing.edges),
        retired=len(names) - len(kept),
        bytes_raw=dict(count.raw) | {"total": count.raw.total()},
        bytes_stored=dict(count.stored) | {"total": count.stored.total()},
        condemned=len(count.condemned),
        condemned_bytes=sum(count.condemned.values()),
        pools=dict(sorted(count.pools.items())),
        orphans=len(orphans) + len(left),
        orphan_bytes=_bytes(backend, orphans) + bytes_left(left),
        protection_bytes=count.protection + copies,
        quarantined=len(quarantine),
        quarantined_bytes=_bytes(backend, quarantine),
        bytes_on_disk=bytes_on_disk(backend),
        unreadable=count.unreadable,
    )


def _bytes(backend: Backend, found: Iterable[str]) -> int:
    return sum(lengths_of(backend, found).values())
