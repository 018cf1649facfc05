"""Deleting what no kept state needs: condemn, look again, delete. Safe beside writers, readers, collectors.

Nothing is deleted for its age alone. What no kept state needs is condemned first; then everything is listed
once more, so a state that was committed meanwhile is seen (or its writer sees the condemnation). Only what is
still needed by none is deleted, when it was condemned at least a grace ago by the storage's own clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Final

from lcstore.compaction.diskfull import nothing_goes
from lcstore.durability import Durability
from lcstore.errors import InvalidInputError, NotFoundError, StorageError
from lcstore.format import keys, markkeys
from lcstore.format.marks import CondemnedRecord, RetiredRecord, TagRecord
from lcstore.format.records import utc_now
from lcstore.graph.lines import cut
from lcstore.index.contents import Contents, judged_contents
from lcstore.index.index import Index
from lcstore.index.leftovers import Leavings, bytes_left, left_over, take_away, untouched
from lcstore.index.marked import next_seq
from lcstore.jobs.jobs import run_all
from lcstore.jobs.survey import OnProgress, spread
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.maintain.afterwards import collected_from
from lcstore.maintain.collected import CollectReport, together
from lcstore.maintain.dead import Silence, check_dead, check_still, when_stored
from lcstore.maintain.redundant import delete_few, redundant_in
from lcstore.maintain.secondcopies import copies_of, put_late_copies
from lcstore.maintain.sizing import bytes_of
from lcstore.maintain.sweeping import loose_marks, passed_on, strays
from lcstore.maintain.verdict import Scope, Verdict, condemnable, judge_sparing, objects_of
from lcstore.records.kinds import read_store_record
from lcstore.storage.backend import Backend, check_writable, read_capped, storage_clock
from lcstore.storage.patient import no_room
from lcstore.storage.put import put_record

#: The part of a grace for which what was let go of is spared, so that it can be brought back.
_TO_UNDO: Final = 1 / 8
#: Objects deleted in one go.
_BATCH: Final = 500
#: What condemnations are about of which a record goes as well, or a layout.
_ENTIRE: Final = (markkeys.WHOLE_EDGE, markkeys.LAYOUT)


class Collector:
    """One collection.

    Parameters
    ----------
    backend, index, executor
        The store; its layouts; threads to delete with.
    durability
        Says which anchors stay.
    grace
        Seconds between condemning and deleting; the store's own grace if None.
    run_is_dead
        Whether it may be shorter than that. What speaks against it is looked for.
    spare_recent
        Whether to leave what was let go of within an eighth of the grace.
    """

    def __init__(
        self,
        backend: Backend,
        index: Index,
        executor: Executor,
        durability: Durability,
        grace: float | None = None,
        on_progress: OnProgress | None = None,
        *,
        run_is_dead: bool = False,
        spare_recent: bool = False,
    ) -> None:
        self.backend = backend
        self.index = index
        self.executor = executor
        self.durability = durability
        self.on_progress = on_progress
        self.least = read_store_record(backend).grace_seconds
        self.grace = float(self.least if grace is None else grace)
        self.undo = _TO_UNDO * self.least if spare_recent else 0.0
        self.untouched = untouched(self.grace, run_is_dead=run_is_dead)
        self.silence: Silence | None = None
        self.dry_run = False
        self.leaves: Contents | None = None  # of a dry run: what there would be afterwards
        self.redundant: list[str] = []  # of what there was no room to condemn
        if self.is_cut_short and not run_is_dead:
            raise InvalidInputError(
                f"the grace of this store is {self.least} s: collecting after {self.grace:g} s might take "
                "away what a reader or writer is about to use. Give no grace, or a longer one; where nothing "
                "writes to this store any more, say so: run_is_dead=True, or --run-is-dead"
            )

    @property
    def is_cut_short(self) -> bool:
        """Whether less is waited than the store asks for."""
        return self.grace < self.least

    def run(self, *, dry_run: bool) -> CollectReport:
        """Collect, or say what would be collected.

        Raises
        ------
        StorageError
            There is no room for all records that say what goes, and nothing makes any: neither what was
            condemned a grace ago nor parity and second copies of what goes.
        """
        self.dry_run = dry_run
        report, lack = self._once()
        more = report
        while lack is not None and (more.makes_room or delete_few(self.backend, self.redundant)):
            more, lack = self._once()  # there is room for more of the records that say what goes
            report = together(report, more)
        if lack is not None and not report.makes_room:
            raise nothing_goes(self.backend.url, lack.key, at_once=not self.grace) from lack.__cause__
        return report

    def _once(self) -> tuple[CollectReport, StorageError | None]:
        """Collect as far as there is room for records that condemn; return the error of a full disk, too."""
        contents, verdict = self._judged(None)
        if self.is_cut_short:
            writing = [one.stored for one in left_over(self.backend)]
            self.silence = check_dead(self.backend, contents, self.least, writing, dry_run=self.dry_run)
            first = contents
            contents, verdict = self._judged(first)
            check_still(first, contents)
        scopes = list(condemnable(contents, verdict, self._orphans(contents)))
        scopes += _of_layouts(self._old_layouts(contents))
        before = _condemned(contents)
        new = [scope for scope in scopes if scope not in before]
        if self.dry_run:
            ripe, waiting = self._by_age(self._marked(contents, verdict), new)
            condemned, going = _condemnations(new), {*_objects(contents, ripe), *_records(contents, ripe)}
            self.leaves = collected_from(contents, condemned, ripe, going)
            marked = replace(contents, condemned=[*contents.condemned, *condemned])
            marks, left = loose_marks(marked, ripe), self._leftovers()
            return self._report(contents, ripe, waiting, new=new, marks=len(marks), left=left), None
        lack = None
        try:
            self._make_durable(contents, new)
            self._condemn(new)
        except StorageError as error:
            if not no_room(error):
                raise
            lack = error  # what was condemned a grace ago makes room for the rest
        after, verdict = self._judged(contents)
        if self.is_cut_short:
            check_still(contents, after)
        known = _condemned(after)
        made = [scope for scope in new if scope in known]
        if lack is not None:
            free = {*condemnable(after, verdict, set(after.data))}
            self.redundant = redundant_in(after, (one for one in new if one in free and one not in known))
        report = self._after(after, verdict, made)
        return replace(report, uncondemned=len(new) - len(made) if lack else 0), lack

    def _after(self, contents: Contents, verdict: Verdict, new: Sequence[Scope]) -> CollectReport:
        """Delete what is condemned and still, after everything was listed again, needed by no kept state."""
        ripe, waiting = self._by_age(self._marked(contents, verdict))
        marks, left = loose_marks(contents, ripe), self._leftovers()
        report = self._report(contents, ripe, waiting, new=new, marks=len(marks), left=left)
        self._keep_lines(contents, ripe)
        self._delete(contents, ripe)
        self._delete_all("marks", marks)
        # What is of no record, and of no save or measurement under way.
        self._delete_all("strays", sorted(self._old(strays(self.backend, contents), self.untouched)))
        if self.durability.copies:
            put_late_copies(self.backend, contents)
        return report

    def _leftovers(self) -> Leavings:
        return take_away(self.backend, self.untouched, dry_run=self.dry_run)

    @staticmethod
    def _marked(contents: Contents, verdict: Verdict) -> list[tuple[Scope, str]]:
        """Return what is condemned, and needed by no kept state, with the key of each condemnation.

        A part of an edge goes by its own condemnation also where by now nothing of the edge is needed.
        """
        free = {*condemnable(contents, verdict, set(contents.data)), *_of_layouts(contents.idle_layouts)}
        condemned = [markkeys.parse_condemned_key(key) for key in contents.condemned]
        marked = [(Scope.of(name), markkeys.condemned_key(name)) for name in condemned]
        return [(one, key) for one, key in marked if free & {one, one._replace(scope=markkeys.WHOLE_EDGE)}]

    def _by_age(
        self, marked: Sequence[tuple[Scope, str]], new: Iterable[Scope] = ()
    ) -> tuple[list[Scope], dict[Scope, float]]:
        """Return what was condemned a grace ago or more, and in how many seconds that is so of the rest.

        `new` is what would be condemned now, of a dry run.
        """
        ages, oldest = self._ages([key for _, key in marked], self.grace), dict.fromkeys(new, 0.0)
        for scope, key in marked:
            age = ages.get(key, 0.0)  # less than nothing where a clock was wrong
            oldest[scope] = max(oldest.get(scope, age), age)
        ripe = [scope for scope, age in oldest.items() if age >= self.grace]
        return ripe, {scope: self.grace - age for scope, age in oldest.items() if age < self.grace}

    def _judged(self, before: Contents | None) -> tuple[Contents, Verdict]:
        def verdict(contents: Contents) -> Verdict:
            spared = contents.let_go_within(self.undo)
            return judge_sparing(spared, contents, self.index.layout, self.durability)

        return judged_contents(self.backend, verdict, before, self.on_progress)

    def _orphans(self, contents: Contents) -> set[str]:
        """Return the edges of no record whose objects are older than the grace: not of a save under way."""
        found = sorted(set(contents.data) - set(contents.stored))
        old = self._old([min(contents.data[edge]) for edge in found], self.grace)
        return {edge for edge in found if min(contents.data[edge]) in old}

    def _old_layouts(self, contents: Contents) -> list[str]:
        """Return the layouts of no record that are older than the grace: of no save under way."""
        old = self._old([*map(keys.layout_key, contents.idle_layouts)], self.grace)
        return [digest for digest in contents.idle_layouts if keys.layout_key(digest) in old]

    def _old(self, found: Sequence[str], seconds: float) -> set[str]:
        """Return which of some objects were stored so many seconds ago or more."""
        return {key for key, age in self._ages(found, seconds).items() if age >= seconds}

    def _ages(self, found: Sequence[str], seconds: float) -> dict[str, float]:
        """Return how many seconds ago those of some objects that are there were stored; 0 if none matter.

        That is by the storage's clock. A dry run, which stores nothing, goes by this machine's.
        """
        if not seconds or not found:
            return dict.fromkeys(found, 0.0)
        now = time.time() if self.dry_run else storage_clock(self.backend)
        asked = partial(when_stored, self.backend)
        created = list(spread(asked, found, phase="ages", on_progress=self.on_progress))
        if now is None or (self.dry_run and all(at is None for at in created)):
            if not self.grace:
                return {}
            check_writable(self.backend)  # of what can only be read there is another reason to tell
            raise StorageError(
                "this target does not tell when an object was stored, so no grace can be kept: "
                "it can be collected only in a store made with grace=0"
            )
        return {key: now - at for key, at in zip(found, created, strict=True) if at is not None}

    def _make_durable(self, contents: Contents, scopes: Sequence[Scope]) -> None:
        """Write the records again that let go of states: they have to outlive a power cut, as deletions do.

        Whoever wrote a retirement, or took a pin away, may have died before that was durable.
        """
        if not self.backend.durable:
            return
        nodes = {scope.node for scope in scopes}
        relied_on = [key for key in contents.retired if markkeys.parse_retired_key(key).node in nodes]
        pins = [one for one in contents.named if one.kind == "pin" and one.about in nodes]
        relied_on += map(markkeys.tag_key, pins)
        run_all(self.executor, [partial(self._write_again, key) for key in relied_on])

    def _write_again(self, key: str) -> None:
        with suppress(NotFoundError):  # another collector is done with it
            put_record(self.backend, key, read_capped(self.backend, key, MAX_RECORD_BYTES))

    def _condemn(self, scopes: Sequence[Scope]) -> None:
        created = utc_now()

        def put(scope: Scope) -> None:
            record = CondemnedRecord(scope.edge, scope.node, scope.scope, created)
            put_record(self.backend, record.key(), record.to_bytes())

        run_all(self.executor, [partial(put, scope) for scope in scopes])

    def _keep_lines(self, contents: Contents, scopes: Sequence[Scope]) -> None:
        """Store which kept state training came from, and which runs others took the place of.

        As far as what told it goes.
        """
        whole = (scope for scope in scopes if scope.is_whole)
        gone = {scope.node for scope in whole if scope.node is not None}
        created = utc_now()

        def line(node: str, came_from: str) -> TagRecord:
            return TagRecord(node, came_from, next_seq(contents.named, "line", node), created, "line")

        try:
            told = [line(*of) for of in cut(contents.graph, gone).items()]
            records: list[TagRecord | RetiredRecord] = [*told, *passed_on(self.backend, contents, gone)]
            jobs = [partial(put_record, self.backend, one.key(), one.to_bytes()) for one in records]
            run_all(self.executor, jobs)
        except StorageError as error:
            if not no_room(error):  # without them no state is lost, and room is what a collection makes
                raise

    def _delete(self, contents: Contents, scopes: Sequence[Scope]) -> None:
        """Delete objects, and only when all are gone the records that list them.

        Copies and parity go before what could be rebuilt from them, so that nothing that was let go of is
        taken for damage; and parts that are objects after the records: a record that is there can be read.
        """
        found = _objects(contents, scopes)
        objects = [key for key in found if not keys.is_parity(key)]
        records = _records(contents, scopes)
        parts = [key for key in objects if keys.is_part(key)]
        self._delete_all("copies", copies_of(self.backend, [*objects, *records]))
        self._delete_all("parity", [key for key in found if keys.is_parity(key)])
        self._delete_all("objects", [key for key in objects if not keys.is_part(key)])
        self._delete_all("records", sorted(records))
        self._delete_all("parts", parts)

    def _delete_all(self, phase: str, found: Sequence[str]) -> None:
        batches = [found[at : at + _BATCH] for at in range(0, len(found), _BATCH)]
        delete = self.backend.delete_many
        for _ in spread(delete, batches, workers=4, phase=f"deleting {phase}", on_progress=self.on_progress):
            pass

    def _report(
        self,
        contents: Contents,
        ripe: Sequence[Scope],
        waiting: Mapping[Scope, float],
        *,
        new: Sequence[Scope],
        marks: int,
        left: Leavings,
    ) -> CollectReport:
        """Say what goes and what waits, before any object is deleted."""
        whole = [scope for scope in ripe if scope.is_whole]
        going = {scope.node for scope in (*ripe, *waiting) if scope.is_whole}
        spared = contents.let_go_within(self.undo)
        lost = {scope.node for scope in new} - spared
        objects = set(_objects(contents, ripe))
        # A condemnation stays with the record of its edge, when what it is about is gone or never was any.
        still = [scope for scope in waiting if scope.scope in _ENTIRE or objects_of(contents, scope)]
        later = set(_objects(contents, still)) - objects
        records, later_records = (_records(contents, scopes) for scopes in (ripe, still))
        return CollectReport(
            url=self.backend.url,
            dry_run=self.dry_run,
            condemned=len(new),
            condemned_states=len(lost & contents.graph.hidden),
            waiting=len(still),
            deleted_objects=len(objects),
            deleted_bytes=bytes_of(self.backend, contents, objects | records) + bytes_left(left.going),
            deleted_states=sum(scope.node is not None for scope in whole),
            deleted_shortcuts=sum(scope.edge in contents.graph.edges for scope in whole),
            deleted_marks=marks,
            kept_states=len(contents.kept),
            grace_seconds=self.grace,
            silence=self.silence,
            retired_states=len((contents.graph.nodes.keys() & contents.graph.hidden) - going),
            spared_states=len((contents.graph.nodes.keys() & spared) - going),
            waiting_objects=len(later),
            waiting_bytes=bytes_of(self.backend, contents, later | later_records),
            waiting_seconds=max(map(waiting.__getitem__, still), default=0.0),
            deleted_leftovers=len(left.going),
            deleted_leftover_bytes=bytes_left(left.going),
            waiting_leftovers=len(left.waiting),
            waiting_leftover_bytes=bytes_left(left.waiting),
            leftover_seconds=self.untouched,
        )


def _condemned(contents: Contents) -> set[Scope]:
    return {Scope.of(name) for name in contents.marks.condemned}


def _condemnations(scopes: Iterable[Scope]) -> list[str]:
    """Return the keys of condemnations of some things, as they would be stored now."""
    return [CondemnedRecord(scope.edge, scope.node, scope.scope, utc_now()).key() for scope in scopes]


def _records(contents: Contents, scopes: Iterable[Scope]) -> set[str]:
    """Return the keys of the records that go with what condemnations are about."""
    whole = (scope.edge for scope in scopes if scope.is_whole)
    return {key for edge in whole if (key := contents.key_of(edge)) is not None}


def _of_layouts(digests: Iterable[str]) -> list[Scope]:
    """Return what condemnations of layouts are about."""
    return [Scope(keys.layout_half(digest), None, markkeys.LAYOUT) for digest in digests]


def _objects(contents: Contents, scopes: Iterable[Scope]) -> list[str]:
    """Return the keys of the objects that condemnations are about and that are there, layouts among them."""
    layouts = {keys.layout_half(digest): keys.layout_key(digest) for digest in contents.layouts}
    found = []
    for scope in scopes:
        if scope.scope == markkeys.LAYOUT:
            found += [layouts[scope.edge]] if scope.edge in layouts else []
        else:
            found += objects_of(contents, scope)
    return found
