"""Storing an edge that is merged of others: its chunks, read back, and then the record that makes it so."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lcstore.arrays import Array
from lcstore.durability import NAMED, Durability
from lcstore.edges.merge import MergeJob, Merger, bytes_per_job
from lcstore.errors import CorruptionError, NotFoundError, StorageError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import EdgeBody, ObjectRef
from lcstore.format.marks import CondemnedRecord
from lcstore.format.records import EdgeRecord, utc_now
from lcstore.index.listing import Listing, committed
from lcstore.index.partrecords import shortcut_parts
from lcstore.index.standing import is_taken_away
from lcstore.storage.backend import Backend
from lcstore.storage.jobs import run_all
from lcstore.storage.settle import put_object, put_record
from lcstore.version import SOFTWARE
from lcstore.write.written import Stored, Written

#: Merging holds about this many bytes at a time, all workers together; more only where one chunk takes more.
MEMORY: Final = 384 << 20


class NoRoomError(Exception):
    """An edge takes more bytes than may be written."""


@dataclass(frozen=True)
class Part:
    """Some of the chunks of an edge, merged and stored by themselves.

    Attributes
    ----------
    chunks
        Each with its pool and its array.
    digests, steps
        What `Merger.found` says of them.
    """

    chunks: tuple[Stored, ...]
    digests: Array
    steps: Array


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
    edge
        The id of an edge that is made in parts; "": one is drawn.
    """

    def __init__(
        self,
        backend: Backend,
        executor: Executor,
        merger: Merger,
        durability: Durability = NAMED["none"],
        *,
        room: int | None = None,
        edge: str = "",
    ) -> None:
        self.backend = backend
        self.executor = executor
        self.merger = merger
        self.room = room
        self.written = Written(backend, edge or secrets.token_hex(16), durability=durability)

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
        return self._completed(lambda: self._merge_all(self.merger.jobs()))

    def write_part(self, number: int, of: int) -> Part:
        """Merge and store one part of the chunks: what `join` is given of each.

        Raises
        ------
        CorruptionError
            What is to be merged is damaged.
        StorageError
            An object could not be stored, or reads back differently.
        """
        chunks: list[Stored] = []
        try:
            for job in self.merger.jobs()[number::of]:
                for chunk in job():
                    # Parity is made by who joins the parts: it may cover chunks of several.
                    ref = self.written.put(self.written.key_of(chunk), chunk.data)
                    self._check(ref)
                    chunks.append((ref, chunk.pool, chunk.op))
        except BaseException:
            self.written.take_away()
            raise
        return Part(tuple(chunks), *self.merger.found)

    def join(self, parts: Sequence[Part | None]) -> bool:
        """Store what is to be beside the chunks of all parts, but the record; errors as for `write`.

        Returns
        -------
        bool
            False where a part is missing, or a collector took some of it: nothing is left of the edge then.
        """
        return self._completed(lambda: self._take_in(parts))

    def _take_in(self, parts: Sequence[Part | None]) -> None:
        there = [part for part in parts if part is not None]
        self.written.take_in([chunk for part in there for chunk in part.chunks])
        if len(there) < len(parts):
            raise NotFoundError("a part is missing", key=keys.edge_folder(self.written.edge))
        for part in there:
            self.merger.take_in(part.digests, part.steps)

    def _completed(self, store: Callable[[], None]) -> bool:
        """Store chunks, and what goes with them; return False where a collector took some of it."""
        try:
            store()
            self.merger.prove()
            self.written.put_metadata(self.merger.layout)
        except BaseException as error:
            self.written.take_away()
            if not isinstance(error, NotFoundError) or error.key is None:
                raise
            if not error.key.startswith(keys.edge_folder(self.written.edge)):
                raise
            return False
        return True

    def commit(self, base: str, target: str, span: int, created: str = "") -> EdgeRecord | None:
        """Store the record, and look around; return None where a collector took the edge meanwhile.

        Parameters
        ----------
        base, target
            Ids of the nodes that it leads from and to; `ROOT` to begin with.
        span
            How many edges it stands for.
        created
            The time that the record tells; "": now.

        Raises
        ------
        NoRoomError
            There is not `room` for the record; nothing is left of the edge.
        """
        parts = shortcut_parts(self.merger.layout, self.merger.columns, self.written.listed())
        edge = EdgeBody(self.written.edge, base, parts)
        stats: dict[str, int | float] = {"span": span, "record_copies": int(self.written.durability.copies)}
        record = EdgeRecord(target, edge, created or utc_now(), stats, SOFTWARE)
        data = record.to_bytes()
        try:
            self._check_room(len(data) * (1 + self.written.durability.copies))
        except NoRoomError:
            self.written.take_away()
            raise
        put_record(self.backend, keys.edge_key(record.name), data)
        self.written.count(len(data))
        listing = Listing.take(self.backend, committed(edge.id, ()))
        if not is_taken_away(listing, edge.id, edge.objects):
            self._put_copy(keys.edge_key(record.name), data)
            return record
        # Never under the name of the collector's own, which that is about to delete.
        created = f"{utc_now()[:-1]}{int(secrets.token_hex(4), 16) % 1000:03d}Z"
        mark = CondemnedRecord(edge.id, None, markkeys.WHOLE_EDGE, created)
        put_record(self.backend, mark.key(), mark.to_bytes())
        return None

    def _put_copy(self, key: str, data: bytes) -> None:
        """Store the second copy of the record; the edge is there without it, and `verify` tells of that."""
        if self.written.durability.copies:
            with suppress(StorageError):
                put_object(self.backend, keys.copy_key(keys.edge_stem(key)), data)
                self.written.count_besides(len(data))

    def _merge_all(self, found: Sequence[MergeJob]) -> None:
        """Merge chunk after chunk, some at once.

        No more threads than that take part: an allocator keeps what each thread used last.
        """
        jobs, at_once = deque(found), max(1, MEMORY // bytes_per_job(self.merger.layout))

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
            ref.check(self.backend.get(ref.key, 0, ref.nbytes + 1))
        except CorruptionError as error:
            message = f"what was just written reads back differently: {error.message}"
            raise StorageError(message, key=ref.key) from error
