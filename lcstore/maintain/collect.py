"""Deleting what no kept state needs: condemn, look again, delete. Safe beside writers, readers, collectors.

Nothing is deleted for its age alone. What no kept state needs is condemned first; then everything is listed
once more, so a state that was committed meanwhile is seen (or its writer sees the condemnation). Only what is
still needed by none is deleted, when it was condemned at least a grace ago by the storage's own clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from lcstore.errors import InvalidInputError, NotFoundError, StorageError
from lcstore.format import keys
from lcstore.format.marks import CondemnedRecord
from lcstore.format.records import utc_now
from lcstore.index.catalog import Catalog, read_store_record
from lcstore.index.census import Census, take_census
from lcstore.index.commit import put_record
from lcstore.limits import MAX_RECORD_BYTES
from lcstore.maintain.verdict import Scope, condemnable, judge, objects_of
from lcstore.state.layout import Layout
from lcstore.storage.backend import Backend, read_capped, storage_clock
from lcstore.storage.jobs import run_all
from lcstore.storage.survey import OnProgress, spread

#: Objects deleted in one go.
_BATCH: Final = 500


@dataclass(frozen=True)
class CollectReport:
    """What a collection did; of a dry run, what it would do (all of it, however young).

    Attributes
    ----------
    url, dry_run
        Of the store, and whether nothing was changed.
    condemned
        Number of arrays, exact values and edges newly condemned.
    waiting
        Condemned before or now, and too young to be deleted.
    deleted_objects, deleted_bytes, deleted_states, deleted_shortcuts
        What went: objects of data and their bytes, nodes, edges that maintenance had added.
    deleted_marks
        Retirements, condemnations and tags that nothing refers to any more.
    kept_states
        States that stay.
    grace_seconds
        How long this collection waited between condemning and deleting.
    """

    url: str
    dry_run: bool
    condemned: int
    waiting: int
    deleted_objects: int
    deleted_bytes: int
    deleted_states: int
    deleted_shortcuts: int
    deleted_marks: int
    kept_states: int
    grace_seconds: float


class Collector:
    """One collection.

    Parameters
    ----------
    backend, catalog, executor
        The store; its layouts; threads to delete with.
    grace
        Seconds between condemning and deleting; the store's own grace if that is longer.
    """

    def __init__(
        self,
        backend: Backend,
        catalog: Catalog,
        executor: Executor,
        grace: float | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self.backend = backend
        self.catalog = catalog
        self.executor = executor
        self.on_progress = on_progress
        least = read_store_record(backend).grace_seconds
        self.grace = least if grace is None else grace
        if self.grace < least:
            raise InvalidInputError(
                f"the grace of this store is {least} s: collecting after {self.grace} s might take away what "
                "a reader or writer is about to use; give no grace, or a longer one"
            )

    @property
    def _layout(self) -> Callable[[str], Layout]:
        return self.catalog.layout

    def run(self, *, dry_run: bool) -> CollectReport:
        """Collect, or say what would be collected."""
        census = self._census(None)
        verdict = judge(census, self._layout)
        orphans = set(census.data) if dry_run else self._orphans(census)
        scopes = list(condemnable(census, verdict, orphans))
        new = self._new(census, scopes)
        if dry_run:
            freed = self._freed(census, scopes)
            return self._report(census, scopes, freed, new=new, waiting=0, marks=0, dry_run=True)
        self._settle(census, new)
        self._condemn(new)
        return self._after(self._census(census), new)

    def _after(self, census: Census, new: Sequence[Scope]) -> CollectReport:
        """Delete what is condemned and still, after everything was listed again, needed by no kept state."""
        verdict = judge(census, self._layout)
        free = set(condemnable(census, verdict, set(census.data)))
        condemned = [keys.parse_condemned_key(key) for key in census.condemned]
        marked = [(Scope(n.edge, n.node, n.scope), keys.condemned_key(n)) for n in condemned]
        going = [(scope, key) for scope, key in marked if scope in free]
        old = self._old([key for _, key in going])
        ripe = list(dict.fromkeys(scope for scope, key in going if key in old))
        waiting = {scope for scope, _ in going} - set(ripe)
        freed = self._freed(census, ripe)
        self._delete(census, ripe)
        marks = self._sweep(census, ripe)
        return self._report(census, ripe, freed, new=new, waiting=len(waiting), marks=marks, dry_run=False)

    # Condemning -----------------------------------------------------------------------------------------

    def _census(self, before: Census | None) -> Census:
        return take_census(self.backend, before, self.on_progress)

    def _orphans(self, census: Census) -> set[str]:
        """Return the edges of no record whose objects are older than the grace: not of a save under way."""
        found = sorted(set(census.data) - set(census.stored))
        old = self._old([min(census.data[edge]) for edge in found])
        return {edge for edge in found if min(census.data[edge]) in old}

    def _old(self, found: Sequence[str]) -> set[str]:
        """Return which of some objects were stored a grace ago or more, by the storage's clock."""
        if not self.grace or not found:
            return set(found)
        now = storage_clock(self.backend)
        if now is None:
            raise StorageError(
                "this target does not tell when an object was stored, so no grace can be kept: "
                "it can be collected only in a store made with grace=0"
            )
        ages = spread(self._created, found, phase="ages", on_progress=self.on_progress)
        created = zip(found, ages, strict=True)
        return {key for key, at in created if at is not None and now - at >= self.grace}

    def _created(self, key: str) -> float | None:
        try:
            return self.backend.created(key)
        except NotFoundError:
            return None

    @staticmethod
    def _new(census: Census, scopes: Iterable[Scope]) -> list[Scope]:
        known = {Scope(n.edge, n.node, n.scope) for n in census.marks.condemned}
        return [scope for scope in scopes if scope not in known]

    def _settle(self, census: Census, scopes: Sequence[Scope]) -> None:
        """Write again what says that states were retired, so that it outlives a power cut as deleting does.

        Whoever wrote it may have died before it was durable.
        """
        if not self.backend.durable:
            return
        nodes = {scope.node for scope in scopes if scope.scope == keys.WHOLE_EDGE}
        relied_on = [key for key in census.retired if keys.parse_retired_key(key).node in nodes]
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

    # Deleting -------------------------------------------------------------------------------------------

    def _delete(self, census: Census, scopes: Sequence[Scope]) -> None:
        """Delete objects, and only when all are gone the records that list them.

        Copies of records go before those, and parts that are objects after them: a record that is there can
        be read, and a copy is always one of a record.
        """
        objects = [key for scope in scopes for key in objects_of(census, scope)]
        whole = [scope for scope in scopes if scope.scope == keys.WHOLE_EDGE]
        records = [key for scope in whole if (key := census.key_of(scope.edge)) is not None]
        parts = [key for key in objects if records and keys.is_part(key)]
        self._delete_all("objects", [key for key in objects if key not in {*parts}])
        self._delete_all("copies", self._copies(whole))
        self._delete_all("records", sorted(records))
        self._delete_all("parts", parts)

    def _copies(self, whole: Sequence[Scope]) -> list[str]:
        """Return the copies of the records of nodes whose own edge goes."""
        gone = {keys.copy_key(scope.node) for scope in whole if scope.node is not None}
        return sorted(gone.intersection(self.backend.list(keys.COPIES))) if gone else []

    def _sweep(self, census: Census, gone: Sequence[Scope]) -> int:
        """Delete marks that nothing refers to any more; return how many."""
        whole = {scope.edge for scope in gone if scope.scope == keys.WHOLE_EDGE}
        edges = set(census.stored) - whole
        nodes = {node for node, edge in census.own.items() if edge in edges}
        parents = {census.parents[node] for node in nodes}
        left = set(census.data) - whole
        marks = [
            key
            for key in census.condemned
            if (edge := keys.parse_condemned_key(key).edge) not in edges and edge not in left
        ]
        marks += [
            key
            for key in census.retired
            if (node := keys.parse_retired_key(key).node) not in nodes and node not in parents
        ]
        dead = {node for node, edge in census.own.items() if edge in whole}
        marks += [keys.tag_key(name) for name in census.named if name.node in dead]
        self._delete_all("marks", sorted(marks))
        return len(marks)

    def _delete_all(self, phase: str, found: Sequence[str]) -> None:
        batches = [found[at : at + _BATCH] for at in range(0, len(found), _BATCH)]
        for _ in spread(
            self.backend.delete_many,
            batches,
            workers=4,
            phase=f"deleting {phase}",
            on_progress=self.on_progress,
        ):
            pass

    # Reporting ------------------------------------------------------------------------------------------

    def _report(
        self,
        census: Census,
        gone: Sequence[Scope],
        freed: tuple[int, int],
        *,
        new: Sequence[Scope],
        waiting: int,
        marks: int,
        dry_run: bool,
    ) -> CollectReport:
        whole = [scope for scope in gone if scope.scope == keys.WHOLE_EDGE]
        return CollectReport(
            url=self.backend.url,
            dry_run=dry_run,
            condemned=len(new),
            waiting=waiting,
            deleted_objects=freed[0],
            deleted_bytes=freed[1],
            deleted_states=sum(scope.node is not None for scope in whole),
            deleted_shortcuts=sum(scope.edge in census.graph.edges for scope in whole),
            deleted_marks=marks,
            kept_states=len(census.kept),
            grace_seconds=self.grace,
        )

    def _freed(self, census: Census, gone: Sequence[Scope]) -> tuple[int, int]:
        """Count objects and their bytes, as the records give them; what no record names is asked for."""
        objects = {key for scope in gone for key in objects_of(census, scope)}
        sizes: dict[str, int] = {}
        for stored in census.stored.values():
            refs = [ref for some in stored.arrays.values() for ref in some]
            sizes |= {ref.key: ref.nbytes for ref in (*refs, *stored.exact) if ref.key in objects}
        unnamed = sorted(objects - sizes.keys())
        return len(objects), sum(sizes.values()) + (sum(spread(self._size, unnamed)) if unnamed else 0)

    def _size(self, key: str) -> int:
        try:
            return self.backend.size(key)
        except NotFoundError:
            return 0
