"""Copying a whole store to another place: what was committed when it began, every byte checked on the way."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, NoReturn

from lcstore.copying.earlier import Earlier, past, stood_on
from lcstore.copying.receiving import Receiver, check_apart, check_new
from lcstore.copying.wanted import Wanted, condemned_of, parts_of, present, still_going
from lcstore.errors import ConflictError, CorruptionError, LcstoreError, NotFoundError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef, split_layouts
from lcstore.format.marks import RetiredRecord
from lcstore.format.records import EdgeRecord, NodeRecord, StoreRecord
from lcstore.index.gone import unrecorded
from lcstore.index.listing import CHECKING, STATES, Listing
from lcstore.jobs.survey import OnProgress, spread
from lcstore.records.kinds import EDGE, KINDS, LAYOUT, NODE, RETIRED, Kind, read_store_record, store_record_at
from lcstore.records.reading import read_all
from lcstore.storage.backend import Backend, exists, read_capped, read_twice

#: How often everything is listed anew, where a collector took something away meanwhile.
_ROUNDS: Final = 8
#: Stored before what they are about, so that nothing is seen without them.
_MARKS: Final = (keys.RETIRED, keys.NAMES, keys.CONDEMNED)
#: Objects under way, each held in memory: of small ones, and of records, many. So many bytes are small.
_MANY: Final = 32
_FEW: Final = 8
_SMALL: Final = 1 << 20


@dataclass(frozen=True)
class CopyReport:
    """What was copied.

    Attributes
    ----------
    source, target
        From where to where.
    states, retired
        How many states of the source the copy has, and how many more that the source had let go of and are
        still there.
    objects, nbytes
        Objects and records that were copied, and their bytes.
    passed_over
        How many were there already, as long as they should be.
    older
        States that stay in the copy, until it is maintained itself, and that the source does not keep. An
        earlier copy brought them, and a rule of the source has let go of them since, or it has collected
        them. Or a run of the source saved them there: its store was moved away while it saved.
    checked
        Whether what was passed over was read, too, and is what it should be.
    replaced
        How many of `objects` took the place of what was damaged there, which lies in ``quarantine/`` now.
    let_go, let_go_in_part
        States that the source has and the copy has let go of by itself, as a repair does: as a whole, so that
        they are none of `states`; and of how many of those only exact values or moments. A copy takes no mark
        away. One to an empty place has them.
    kept
        States of which a repair of the source let go, as a whole or in part, and that an earlier copy has
        brought: they stay as they were. Those of which it let go as a whole are none of `states`.
    """

    source: str
    target: str
    states: int
    retired: int
    objects: int
    nbytes: int
    passed_over: int
    older: int = 0
    checked: bool = False
    replaced: int = 0
    let_go: int = 0
    let_go_in_part: int = 0
    kept: int = 0

    @property
    def ok(self) -> bool:
        """Whether the copy has a state, if the source has one."""
        return self.states > 0 or self.kept > 0 or self.let_go == 0

    @property
    def wrong(self) -> str:
        """What is not as it should be, in words; "" where all is."""
        return "" if self.ok else f"all states are let go of in {self.target}, by marks of its own"


def copy_store(
    source: Backend, target: Backend, on_progress: OnProgress | None = None, *, check: bool = False
) -> CopyReport:
    """Copy a store.

    Objects are copied as they are, once their lengths and hashes were checked; records after them; and last
    of all what makes the place a store. So nobody takes an interrupted copy for a store, and called again
    this goes on: what is there already, of the same length, is passed over. With `check` it is read, and what
    is damaged there is set aside and stored anew.

    Raises
    ------
    NotFoundError
        There is no store to copy.
    ConflictError
        The target holds another store, or states that this one has not. Or its own collection may be deleting
        what was passed over.
    CorruptionError
        The source is damaged: it is to be repaired first. Or what makes the target a store is, without
        `check`.
    """
    return _Copy(source, target, on_progress, check).run()


class _Copy:
    """One copy under way."""

    def __init__(self, source: Backend, target: Backend, on_progress: OnProgress | None, check: bool) -> None:
        self.source = source
        self.target = target
        self.on_progress = on_progress
        self.into = Receiver(target, check=check)
        self.earlier: Earlier | None = None
        self.older = set[str]()
        self.made: set[str] = set()

    def run(self) -> CopyReport:
        check_apart(self.source, self.target)
        check_new(self.source, self.target)
        record = read_store_record(self.source).to_bytes()
        for number in range(_ROUNDS):
            try:
                wanted = self._wanted()
                self._check_target(wanted, record)
                self._copy(wanted)
                self._look_again(wanted)
                break
            except NotFoundError as error:
                # What a collector took away: then it took away, or is about to, the record that names it.
                if number == _ROUNDS - 1:
                    what = "what a record names is missing"
                    self._refuse("", CorruptionError(what, key=error.key, step=error.step))
        there = {key for found in wanted.records.values() for key in found}
        self.target.delete_many(sorted(self.made - there - wanted.copies))
        self._check_target(wanted, record)
        self._make(wanted, record)
        return self._report(wanted)

    def _make(self, wanted: Wanted, record: bytes) -> None:
        """Have the place be a store."""
        copy = keys.copy_key(keys.STORE_KEY)
        for key in (keys.STORE_KEY, *({copy} & wanted.copies)):
            if not self.into.has(key, len(record), StoreRecord.from_bytes):
                self.into.put(key, record)

    def _report(self, wanted: Wanted) -> CopyReport:
        """Count what came of it, by the marks that there are in the target."""
        nodes, into = wanted.nodes, self.into
        marks = Listing.take(self.target, STATES).marks(nodes | self.older)
        shown = nodes - wanted.marks.hidden
        let_go = shown & marks.hidden
        outlived = self.earlier.outlived if self.earlier else set()
        in_part = {node for node, _ in parts_of(marks) - parts_of(wanted.marks)} & (shown - let_go)
        return CopyReport(
            source=self.source.url,
            target=self.target.url,
            states=len(shown - marks.hidden),
            retired=len(nodes & wanted.marks.hidden & marks.hidden),
            objects=into.objects,
            nbytes=into.nbytes,
            passed_over=into.passed_over,
            older=len((self.older | outlived) - marks.hidden),
            checked=into.check,
            replaced=into.replaced,
            let_go=len(let_go),
            let_go_in_part=len(in_part),
            kept=len(self.earlier.kept & (nodes - marks.hidden)) if self.earlier else 0,
        )

    # What is to be copied -------------------------------------------------------------------------------

    def _wanted(self) -> Wanted:
        """List the source, and read all records that name objects."""
        listing = Listing.take(self.source, CHECKING)
        listing.check_names()
        listing.check_lost()
        if not listing.nodes and (unknown := unrecorded(listing)):
            self._refuse("", CorruptionError(unknown, key=keys.NODES))
        refs, exact, layouts, spare = dict[str, ObjectRef](), set[str](), set[str](), set[str]()
        named_by = defaultdict[str, set[str]](set)
        marks = listing.marks({name.node for name in listing.nodes})
        needed = stood_on(listing.nodes, marks.hidden)

        def node(key: str, record: NodeRecord) -> None:
            digests = [digest for _, digest in split_layouts(record.layout)]
            for name in (record.edge.id, *map(keys.layout_half, digests)):
                named_by[name].add(key)
            refs.update({ref.key: ref for ref in record.objects})
            exact.update(ref.key for ref in (record.exact.objects if record.exact is not None else ()))
            these = layouts if keys.parse_node_key(key).node in needed else spare
            these.update(map(keys.layout_key, digests))

        def edge(key: str, record: EdgeRecord) -> None:
            named_by[record.edge.id].add(key)
            refs.update({ref.key: ref for ref in record.edge.objects})

        self._read(NODE, listing.below(keys.NODES), node)
        self._read(EDGE, listing.below(keys.EDGES), edge)
        aside, there = {*listing.below(keys.COPIES)}, {*listing.below(keys.LAYOUTS)}
        layouts |= {key for key in spare if key in there or LAYOUT.copy_key(key) in aside}
        records = {folder: listing.below(folder) for folder in (*_MARKS, keys.EDGES, keys.NODES)}
        records = {keys.LAYOUTS: sorted(layouts)} | records
        lost = [key for key in records[keys.LAYOUTS] if key not in there and LAYOUT.copy_key(key) in aside]
        condemned = condemned_of(listing, refs, exact)
        return Wanted(
            sorted(present(listing, refs, condemned), key=lambda ref: ref.key),
            condemned,
            records,
            frozenset([*listing.lost, *lost]),
            frozenset(aside),
            marks,
            named_by,
        )

    def _read(self, kind: Kind[Any, Any], found: list[str], take: Callable[[str, Any], None]) -> None:
        gone = {*found} - read_all(self.source, kind, found, take, self._refuse, self.on_progress)
        if gone:
            raise NotFoundError("it was collected meanwhile", key=min(gone))

    def _check_target(self, wanted: Wanted, record: bytes) -> None:
        """Refuse a target that holds anything of another store."""
        there = {*chain.from_iterable(self.target.list(folder) for folder in (keys.NODES, keys.EDGES))}
        others = there - {*wanted.records[keys.NODES], *wanted.records[keys.EDGES]} - self.made
        brought = past(wanted.records[keys.NODES], there, others)
        if others - brought:
            raise ConflictError(
                f"{self.target.url} holds another store, or one that went on by itself, or an old copy that "
                "shares no state with what there is now; and nothing is mixed: copy to an empty place. "
                "`lcstore export` and `lcstore import` add single states",
                key=min(others - brought),
            )
        self.older = {keys.parse_node_key(key).node for key in brought if key.startswith(f"{keys.NODES}/")}
        try:
            grace = store_record_at(self.target, keys.STORE_KEY).grace_seconds
            same = grace == StoreRecord.from_bytes(record).grace_seconds
        except NotFoundError:
            return
        except CorruptionError as error:
            if self.into.check:
                return  # its records are those of the source, and it is replaced
            command = shlex.join(["lcstore", "cp", self.source.url, self.target.url, "--check"])
            what = f"{self.target.url} has it damaged, and `{command}` replaces it"
            raise CorruptionError(f"{error.message}; {what}", key=keys.STORE_KEY) from error
        if not same:
            copy = keys.copy_key(keys.STORE_KEY)
            raise ConflictError(
                f"{self.target.url} holds a store with another grace: copy to an empty place; or, where a "
                f"repair made its {keys.STORE_KEY} anew, delete that and {copy}, and copy again",
                key=keys.STORE_KEY,
            )

    # Copying --------------------------------------------------------------------------------------------

    def _copy(self, wanted: Wanted) -> None:
        self.into.look()
        earlier = self.earlier = self.earlier or Earlier.of(self.into.there)
        for phase, large in (("copying objects", False), ("copying large objects", True)):
            some = [ref for ref in wanted.objects if (ref.nbytes > _SMALL) is large]
            self._each(phase, some, partial(self._object, wanted.condemned), _FEW if large else _MANY)
        lacking = {keys.parse_data_key(key).edge for key in wanted.condemned - self.into.there}
        for folder, found in wanted.records.items():
            if folder == keys.RETIRED:  # what was collected stays in an earlier copy, though a mark is left
                found = [key for key in found if markkeys.parse_retired_key(key).node not in self.older]
                earlier.keep(self.target, self._new_retirements(found, earlier.nodes))
            if folder in _MARKS:
                found = [key for key in found if not earlier.leaves_out(key, lacking)]
            copy = partial(self._record, KINDS[folder], wanted)
            if folder == keys.NODES and self.into.was_store:
                # Each is seen from now on, and what it stands on is to be there by then.
                new = sorted({*found} - self.into.there, key=lambda key: keys.parse_node_key(key).order)
                found = [key for key in found if key in self.into.there]
                for at in range(0, len(new), _MANY):
                    self._in_order(new[at : at + _MANY], wanted)
                    if self.on_progress is not None:
                        self.on_progress("copying new nodes", min(at + _MANY, len(new)), len(new))
            self._each(f"copying {folder}", found, copy)

    def _look_again(self, wanted: Wanted) -> None:
        """Raise an error where a collector of the copy itself took away what was passed over."""
        if not (self.into.was_store and self.into.objects):
            return  # where nothing was put, nothing new lacks anything
        there = frozenset(self.target.list(""))
        # It sweeps retirements of what is not there, too: they are stored before what they are about.
        gone = wanted.lasting.union(self.made.intersection(wanted.records[keys.RETIRED])) - there
        if gone:
            raise NotFoundError("the copy was collected meanwhile", key=min(gone))
        going = still_going(self.into.there, there, wanted.named_by)
        if going is not None:
            raise ConflictError(
                f"all is in {self.target.url}, but a collection of it may be at work that deletes what a "
                "copy which was cut off had left there: once it has ended, copy again, which finds out",
                key=going,
            )

    def _new_retirements(self, retired: list[str], nodes: Set[str]) -> dict[str, RetiredRecord]:
        """Read the retirements that the target has not, of states that it has."""
        known = (key for key in retired if markkeys.parse_retired_key(key).node in nodes)
        new, found = [key for key in known if key not in self.into.there], dict[str, RetiredRecord]()
        read_all(self.source, RETIRED, new, found.__setitem__, self._refuse, None)
        return found

    def _each(
        self, phase: str, items: Iterable[Any], copy: Callable[[Any], None], workers: int = _MANY
    ) -> None:
        for _ in spread(copy, items, workers=workers, phase=phase, on_progress=self.on_progress):
            pass

    def _object(self, condemned: frozenset[str], ref: ObjectRef) -> None:
        if self.into.has(ref.key, ref.nbytes, ref.check):
            return
        try:
            data = self._checked(lambda: ref.check(self.source.get(ref.key, 0, ref.nbytes + 1)))
        except CorruptionError:
            if ref.key not in condemned:
                raise
            return  # it was found damaged before, and nothing that is kept needs it
        self.into.put(ref.key, data)

    def _in_order(self, some: list[str], wanted: Wanted) -> None:
        """Copy records of nodes one after another, and then their second copies side by side."""
        read = spread(partial(self._data, NODE, wanted), some, workers=_MANY)
        found = dict(zip(some, read, strict=True))
        for key, data in found.items():
            self._put(NODE, key, data, key)
        copies = {key: keys.copy_key(keys.parse_node_key(key).node) for key in some}
        twice = [key for key in some if copies[key] in wanted.copies]
        for _ in spread(lambda key: self._put(NODE, key, found[key], copies[key]), twice, workers=_MANY):
            pass

    def _record(self, kind: Kind[Any, Any], wanted: Wanted, key: str) -> None:
        """Copy a record, and its second copy after it, where there is one."""
        try:
            data = self._data(kind, wanted, key)
        except NotFoundError:
            if kind.folder not in _MARKS:
                raise
            # Swept since it was listed, and so is what it was about, which is read after it: that tells.
            return
        copy = kind.copy_key(key)
        for at in (key,) if copy is None or copy not in wanted.copies else (key, copy):
            self._put(kind, key, data, at)

    def _data(self, kind: Kind[Any, Any], wanted: Wanted, key: str) -> bytes:
        return self._checked(
            partial(self._bytes, kind, key, kind.copy_key(key) if key in wanted.lost else key)
        )

    def _put(self, kind: Kind[Any, Any], key: str, data: bytes, at: str) -> None:
        """Store a record, or its second copy, at a key, unless it is there."""
        if not self.into.has(at, len(data), partial(self._same, kind, key, data)):
            if at not in self.into.there:
                self.made.add(at)
            self.into.put(at, data)

    def _same(self, kind: Kind[Any, Any], key: str, data: bytes, found: bytes) -> None:
        """Raise an error if what the target has as a record is none."""
        if found != data:
            kind.reader(self.target)(key, found)

    def _bytes(self, kind: Kind[Any, Any], key: str, at: str | None) -> bytes:
        data = read_capped(self.source, at or key, kind.limit)
        kind.reader(self.source)(key, data)
        return data

    def _checked(self, read: Callable[[], bytes]) -> bytes:
        """Return what is read; damage is told with what to do about it."""
        try:
            return read_twice(read)
        except CorruptionError as error:
            self._refuse("", error)

    def _refuse(self, key: str, error: LcstoreError) -> NoReturn:
        if isinstance(error, CorruptionError):
            source, target = shlex.quote(self.source.url), shlex.quote(self.target.url)
            whole = target if exists(self.target, keys.STORE_KEY) else "COPY"
            what = (
                f"{error.message}; a damaged store is not copied. What a copy has whole comes back by "
                f"`lcstore cp {whole} {source} --check`, before any repair, where the copy knows the latest "
                f"run; `lcstore repair {source}` says what is lost. What no state needs, as `lcstore verify "
                f"{source} --level checksum` says, is passed over after `lcstore collect {source} --apply`"
            )
            raise type(error)(what, key=error.key or key or None, step=error.step) from error
        raise error
