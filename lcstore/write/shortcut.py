"""Storing an edge that is merged of others: its chunks, read back, and then the record that makes it so."""

from __future__ import annotations

import secrets
from collections import deque
from concurrent.futures import Executor
from typing import Final

from lcstore.durability import NAMED, Durability
from lcstore.edges.merge import MergeJob, Merger, bytes_per_job
from lcstore.errors import CorruptionError, NotFoundError, StorageError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody, ObjectRef
from lcstore.format.marks import CondemnedRecord
from lcstore.format.records import EdgeRecord, distinct_now, utc_now
from lcstore.index.listing import Listing, committed
from lcstore.index.standing import is_taken_away
from lcstore.jobs.jobs import run_all
from lcstore.records.partrecords import shortcut_parts
from lcstore.storage.backend import Backend, read_twice
from lcstore.storage.put import put_record
from lcstore.version import SOFTWARE
from lcstore.write.written import Written

#: Merging holds about this many bytes at a time, all workers together; more only where one chunk takes more.
MEMORY: Final = 384 << 20


class NoRoomError(Exception):
    """An edge takes more bytes than may be written."""


class ShortcutWrite:
    """An edge from `base` to `target` on its way into the store: merged and stored, then committed.

    Parameters
    ----------
    backend, executor
        Where to; threads to merge and write with.
    merger
        Merges the edges that this one stands for.
    durability
        What is stored besides.
    room
        How many bytes may be written, the record's too; None: any number.
    """

    def __init__(
        self,
        backend: Backend,
        executor: Executor,
        merger: Merger,
        durability: Durability = NAMED["none"],
        *,
        room: int | None = None,
    ) -> None:
        self.backend = backend
        self.executor = executor
        self.merger = merger
        self.room = room
        self.written = Written(backend, secrets.token_hex(16), durability=durability)

    def write(self) -> bool:
        """Merge and store everything but the record; return False where a collector took some of it.

        Raises
        ------
        CorruptionError
            What is merged is not what was committed.
        StorageError
            An object could not be stored, or reads back differently.
        NoRoomError
            There is not `room` for it; nothing is left of it.
        """
        layout = self.merger.layout
        try:
            self._merge_all(max(1, MEMORY // bytes_per_job(layout)))
            self.merger.prove()
            self.written.put_metadata(layout)
        except BaseException as error:
            self.written.take_away()
            if not isinstance(error, NotFoundError) or error.key is None:
                raise
            if not error.key.startswith(keys.edge_folder(self.written.edge)):
                raise
            return False
        return True

    def commit(self, base: str, target: str, span: int) -> EdgeRecord | None:
        """Store the record, and look around; return None where a collector took the edge meanwhile.

        Parameters
        ----------
        base, target
            Ids of the nodes that it leads from and to; `ROOT` to begin with.
        span
            How many edges it stands for.

        Raises
        ------
        NoRoomError
            There is not `room` for the record; nothing is left of the edge.
        StorageError
            It could not be stored. Nothing is left of the edge, unless its record may be there.
        """
        parts = shortcut_parts(self.merger.layout, self.merger.columns, self.written.listed())
        edge = EdgeBody(self.written.edge, base, parts)
        stats: dict[str, int | float] = {"span": span, "record_copies": int(self.written.durability.copies)}
        record = EdgeRecord(target, edge, utc_now(), stats, SOFTWARE)
        data = record.to_bytes()
        try:
            self._check_room(len(data) * (1 + self.written.durability.copies))
            put_record(self.backend, keys.edge_key(record.name), data)
        except (NoRoomError, StorageError) as error:
            if isinstance(error, NoRoomError) or not error.outcome_unknown:
                self.written.take_away()
            raise
        self.written.count(len(data))
        listing = Listing.take(self.backend, committed(edge.id, ()))
        if not is_taken_away(listing, edge.id, edge.objects):
            self.written.copy_record(keys.copy_key(keys.edge_stem(keys.edge_key(record.name))), data)
            return record
        # Never under the name of the collector's own, which that is about to delete.
        mark = CondemnedRecord(edge.id, None, markkeys.WHOLE_EDGE, distinct_now())
        put_record(self.backend, mark.key(), mark.to_bytes())
        return None

    def _merge_all(self, at_once: int) -> None:
        """Merge chunk after chunk, some at once.

        No more threads than that take part: an allocator keeps what each thread used last.
        """
        jobs = deque(self.merger.jobs())

        def work() -> None:
            while True:
                try:
                    job = jobs.popleft()
                except IndexError:
                    return
                try:
                    self._merge(job)
                except BaseException:
                    jobs.clear()
                    raise

        run_all(self.executor, [work] * min(at_once, len(jobs)))

    def _merge(self, job: MergeJob) -> None:
        """Merge a chunk, write it, and read back what was written."""
        for chunk in job():
            self._check_room(len(chunk.data))
            self._check(self.written.put_chunk(chunk))

    def _check_room(self, more: int) -> None:
        if self.room is not None and self.written.nbytes + more > self.room:
            raise NoRoomError

    def _check(self, ref: ObjectRef) -> None:
        try:
            read_twice(lambda: ref.check(self.backend.get(ref.key, 0, ref.nbytes + 1)))
        except CorruptionError as error:
            message = f"what was just written reads back differently: {error.message}"
            raise StorageError(message, key=ref.key) from error
