"""How many bytes a store takes: now, once it is compacted, and once it is collected after that.

Lengths of objects are in the records that name them. Only what no record names is asked for, or listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from lcstore.arrays import Array
from lcstore.compaction.compact import ROUNDS, Compactor
from lcstore.compaction.trials import measured_sizes
from lcstore.edges.algebra import sets, whole
from lcstore.edges.columns import KEEP, OWN
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef, PartBody, split_layouts
from lcstore.format.parity import COVERED
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.graph.plan import Shortcut
from lcstore.graph.refs import ROOT, EdgeName
from lcstore.graph.sizes import Sizes
from lcstore.index.contents import Contents, Stored, read_contents
from lcstore.index.leftovers import bytes_left, left_over
from lcstore.index.lengths import lengths_of
from lcstore.index.rights import closed_folder
from lcstore.jobs.survey import OnProgress
from lcstore.layout.layout import Layout
from lcstore.maintain.afterwards import let_go
from lcstore.maintain.collected import CollectReport
from lcstore.maintain.retire import Retired
from lcstore.maintain.verdict import Verdict, condemnable, judge, objects_of
from lcstore.records.kinds import second_copy_of
from lcstore.storage.backend import Backend
from lcstore.storage.targets import bytes_lacking


@dataclass(frozen=True)
class Forecast:
    """Bytes of a store, marks and its own record (some hundred bytes each) not counted.

    Attributes
    ----------
    bytes_now
        Of all objects and records, those of interrupted saves too, and of files that killed processes left.
    bytes_compacted
        Once it is compacted (an estimate): merged edges are there besides what they are merged of.
    bytes_collected
        Once it is collected after that, all graces being over.
    bytes_without
        Once it is collected, and not compacted before.
    bytes_deleted
        Of those now: what a collection deletes at once that comes before all that, as in `Store.maintain`.
    room
        Bytes that a compaction may add on the store's disk; None of targets that do not tell.
    lacking
        Bytes that the store's disk lacks for the records that let go of states: a block for each.
    closed
        A folder of the store in which this user may change nothing, so that none of it would be done; ""
        where there is none, and of targets that do not tell.
    """

    bytes_now: int
    bytes_compacted: int
    bytes_collected: int
    bytes_without: int
    bytes_deleted: int = 0
    room: int | None = field(default=None, compare=False)
    closed: str = field(default="", compare=False)
    lacking: int = field(default=0, compare=False)

    @property
    def has_room(self) -> bool:
        """Whether the disk has room for what the compaction adds, as far as that is known."""
        return self.room is None or self.compaction_writes <= self.room + self.bytes_deleted

    @property
    def compaction_writes(self) -> int:
        """Bytes that the compaction adds."""
        return self.bytes_compacted - (self.bytes_now - self.bytes_deleted)

    @property
    def compaction_frees(self) -> int:
        """Bytes that go for a compaction; less than 0 where it leaves more than a collection alone."""
        return self.bytes_without - self.bytes_collected

    @property
    def can_be_freed(self) -> int:
        """The most bytes that go, compacted or not."""
        return self.bytes_now - min(self.bytes_collected, self.bytes_without)


def forecast(
    compactor: Compactor,
    going: Iterable[Retired] = (),
    on_progress: OnProgress | None = None,
    collected: CollectReport | None = None,
) -> Forecast:
    """Say how many bytes maintenance will leave: by listings, records, and merges of a chunk.

    Parameters
    ----------
    compactor
        Plans what is to be added, and knows the store. What bounds its bytes bounds those of the forecast.
        Its contents, where it has some, are changed.
    going
        What would be let go of before.
    collected
        What the collection would do that leaves the compactor's contents, where it has some.

    Raises
    ------
    CorruptionError
        A record cannot be read, or a kept state not be restored: nothing can be said then.
    """
    backend, left = compactor.backend, compactor.contents
    contents = left or read_contents(backend, None, on_progress, compactor.index.known)
    sizes = _all_sizes(backend, contents)
    now, deleted = sum(sizes.values()) + bytes_left(left_over(backend)), 0
    if collected is not None and left is not None:
        deleted = collected.deleted_bytes
        now += deleted - collected.deleted_leftover_bytes  # these were counted
    let_go(contents, marked := [(one.node, one.what) for one in going])
    # Those that a collection stores first are left room, too.
    lacking = bytes_lacking(backend, (len(marked) + 2) * bool(marked), deleted)
    without, _ = _kept(contents, compactor, sizes)
    made = _plan(contents, compactor)
    closed = closed_folder(backend)
    if not made:
        return Forecast(now, now - deleted, without, without, deleted, closed=closed, lacking=lacking)
    kept, verdict = _kept(contents, compactor, sizes)
    kept += sum(nbytes for edge, nbytes in made.items() if edge in verdict.edges)
    room = compactor.room_on_disk(len(made))
    return Forecast(now, now - deleted + sum(made.values()), kept, without, deleted, room, closed, lacking)


def would_write(compactor: Compactor) -> int:
    """Return about how many bytes a compaction would write, parity, records and second copies too.

    What bounds the compactor's bytes bounds these.

    Raises
    ------
    CorruptionError
        A record cannot be read.
    """
    contents = read_contents(compactor.backend, known=compactor.index.known)
    return sum(_plan(contents, compactor).values())


def _kept(contents: Contents, compactor: Compactor, sizes: Mapping[str, int]) -> tuple[int, Verdict]:
    """Return the bytes of what is there that a collection leaves, and what it judges."""
    verdict = judge(contents, compactor.index.layout, compactor.durability)
    return sum(map(sizes.__getitem__, _staying(contents, verdict, sizes))), verdict


def _plan(contents: Contents, compactor: Compactor) -> dict[str, int]:
    """Put the edges that a compaction would add into contents; return how many bytes each takes."""
    compactor.index.refresh(full=True)
    usual = _Usual(contents, compactor)
    nbytes: Callable[[Shortcut], int] | None = None
    made: dict[str, int] = {}
    wanted = 0
    for _ in range(ROUNDS):
        planned = compactor.plan(graph=contents.graph).shortcuts
        if not planned:
            break
        wanted += len(planned)
        if nbytes is None:
            sizes = Sizes(compactor.elements())
            nbytes = measured_sizes(
                planned, contents.graph, sizes, compactor.maker.merger, compactor.reader.executor
            )
        for shortcut in planned:
            ends, edge = (shortcut.base, shortcut.target), f"{len(made):032x}"
            read = nbytes(shortcut)
            takes = usual.nbytes(read, anchor=shortcut.base == ROOT)
            if not compactor.has_room(takes):
                continue
            made[edge] = takes
            compactor.written += takes
            contents.stored[edge] = Stored(
                edge, *ends, False, "", _ops(contents, compactor.index.layout, shortcut), {}
            )
            contents.graph.add_edge(EdgeName(shortcut.target, shortcut.base, edge, read))
        if len(made) < wanted:  # as a compaction then ends
            break
    return made


def _ops(contents: Contents, layout: Callable[[str], Layout], shortcut: Shortcut) -> bytes:
    """Return what an edge to be made will say of each tensor.

    Where it would copy what an edge in between sets, it is said to keep what its base has: which edges are
    needed does not depend on that, and of their arrays little.
    """
    own = contents.stored[contents.own[shortcut.target]]
    found = np.frombuffer(own.ops, np.uint8)
    new: Array | int = KEEP
    if shortcut.base == ROOT:
        new = whole(layout(own.layout))
    return np.where(sets(found), OWN, new).astype(np.uint8).tobytes()


class _Usual:
    """What edges to be made take besides what a path over them reads: parity, metadata, their records.

    Parity and copies are those of the compactor: what is there may have been stored with others, as before
    it was copied.
    """

    def __init__(self, contents: Contents, compactor: Compactor) -> None:
        self.durability = compactor.durability
        # By whether it is an anchor: of bytes that a path reads, and of parity that these have or would have.
        read, parity = Counter[bool](), Counter[bool]()
        for stored in contents.stored.values():
            for (_, op), refs in stored.arrays.items():
                chunks = [ref for ref in refs if op in keys.COMPOSED and not keys.is_parity(ref.key)]
                for _, part in groupby(chunks, lambda ref: ref.key.rpartition("/")[0]):
                    lengths = [ref.nbytes for ref in part]
                    covered = (lengths[at : at + COVERED] for at in range(0, len(lengths), COVERED))
                    read[stored.base == ROOT] += sum(lengths)
                    parity[stored.base == ROOT] += sum(map(max, covered)) * self._has_parity
        self.factor = {anchor: 1 + parity[anchor] / max(1, read[anchor]) for anchor in (False, True)}
        latest = contents.graph.latest()
        self.each = 0
        if latest is not None:
            self.each = self._each(contents, compactor.index.record(latest.node))

    @property
    def _has_parity(self) -> bool:
        return self.durability.parity != "none"

    def _each(self, contents: Contents, record: NodeRecord) -> int:
        """Return the bytes of metadata and record: those of an own edge, without what it sets."""
        stored = contents.stored[record.edge.id]
        metadata = sum(ref.nbytes for ref in stored.besides if keys.is_metadata(ref.key))
        composed = sum(op in keys.COMPOSED for _, op in stored.arrays)
        parts = tuple(
            PartBody(part.name, tuple(filter(self._is_named, part.objects)), part.columns)
            for part in record.edge.parts
        )
        edge = EdgeBody(stored.edge, stored.base, parts)
        stats: dict[str, int | float] = {"span": 1, "record_copies": int(self.durability.copies)}
        made = EdgeRecord(stored.target, edge, record.created, stats, record.software)
        copies = 1 + self.durability.copies
        return metadata * composed // max(1, len(stored.arrays)) + copies * len(made.to_bytes())

    def _is_named(self, ref: ObjectRef) -> bool:
        """Return whether the record of a merged edge would name such an object."""
        composed = keys.parse_data_key(ref.key).op in keys.COMPOSED
        return keys.is_metadata(ref.key) or (composed and (self._has_parity or not keys.is_parity(ref.key)))

    def nbytes(self, read: int, *, anchor: bool) -> int:
        """Return about how many bytes an edge takes of which a path reads so many."""
        return round(self.factor[anchor] * read + self.each)


def _sizes_of(backend: Backend, contents: Contents, wanted: Collection[str]) -> dict[str, int]:
    """Return the bytes of some objects, by key, as records give them; what no record names is asked for."""
    sizes: dict[str, int] = {}
    for stored in contents.stored.values():
        sizes |= {ref.key: ref.nbytes for ref in stored.objects if ref.key in wanted}
    for key in wanted - sizes.keys():
        of = keys.copied_from(key)
        if of is not None and of in sizes:
            sizes[key] = sizes[of]
    return sizes | lengths_of(backend, sorted(wanted - sizes.keys()))


def bytes_of(backend: Backend, contents: Contents, going: Set[str]) -> int:
    """Return the bytes of some objects and records, with those of their second copies."""
    sizes = contents.lengths | _sizes_of(backend, contents, going - contents.lengths.keys())
    copies = {*contents.copies}
    return sum(sizes[key] * (1 + (second_copy_of(key) in copies)) for key in going)


def _all_sizes(backend: Backend, contents: Contents) -> dict[str, int]:
    """Return the bytes of all objects of data, layouts, records of nodes and edges, and second copies."""
    objects = {key for found in contents.data.values() for key in found}
    objects |= {keys.layout_key(digest) for digest in contents.layouts}
    sizes = _sizes_of(backend, contents, objects) | contents.lengths
    by_copy = {second_copy_of(key): size for key, size in sizes.items()}
    return sizes | {key: by_copy[key] for key in contents.copies if key in by_copy}


def _staying(contents: Contents, verdict: Verdict, sizes: Collection[str]) -> set[str]:
    """Return the keys of what a collection leaves, once all that it condemns is deleted."""
    staying, layouts = set(sizes), set()
    whole = set()
    for scope in condemnable(contents, verdict, set(contents.data)):
        staying -= {*objects_of(contents, scope)}
        if scope.is_whole:
            whole.add(scope.edge)
            record = contents.key_of(scope.edge)
            staying -= set() if record is None else {record, second_copy_of(record)}
    for stored in contents.stored.values():
        if stored.own and stored.edge not in whole:
            layouts |= {digest for _, digest in split_layouts(stored.layout)}
    for digest in set(contents.layouts) - layouts:
        key = keys.layout_key(digest)
        staying -= {key, second_copy_of(key)}
    return staying
