"""The objects of one edge: written side by side, remembered for the record that will need them."""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from threading import Lock

from lcstore.arrays import Buffer
from lcstore.durability import NAMED, Durability
from lcstore.edges.columns import EXACT
from lcstore.edges.frames import Chunk
from lcstore.errors import LcstoreError, StorageError
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.format.layoutfile import layout_object
from lcstore.format.zarrmeta import group_metadata
from lcstore.jobs.deadline import deadline
from lcstore.layout.layout import Layout
from lcstore.layout.qualified import FIRST_PART, part_of, qualified
from lcstore.storage.backend import Backend
from lcstore.storage.put import LITTLE, put_object
from lcstore.storage.wave import Wave
from lcstore.track.draft import Draft
from lcstore.write.paritywrite import ParityObject, ParityWrite


class Written:
    """The objects written for one part of an edge. Thread-safe.

    Parameters
    ----------
    backend
        Where to.
    edge
        Id of the edge.
    requests
        Threads that wait for the target: objects then go out side by side, and are there once `end` returns.
        Without, each is there when it was put.
    durability
        What is stored besides.

    Attributes
    ----------
    part
        The name of the part. A save writes one alone, and a shortcut is written as one, whatever its parts.
    refs
        The objects that the record is to name, each with its pool and array if it is of one.
    objects
        How many objects were written, marks left out.
    extra
        Bytes of objects that the record does not name: layouts, second copies, the record itself.
    protection
        Bytes of parity and second copies, which are among the others.
    """

    def __init__(
        self,
        backend: Backend,
        edge: str,
        *,
        durability: Durability = NAMED["none"],
        requests: Executor | None = None,
    ) -> None:
        self.backend = backend
        self._wave = None if requests is None else Wave(backend, requests)
        self.edge = edge
        self.part = FIRST_PART
        self.refs: list[tuple[ObjectRef, str | None, keys.Op | None]] = []
        self.extra = 0
        self.objects = 0
        self.protection = 0
        self.durability = durability
        self._parity = ParityWrite(durability.parity)
        self._begun: list[str] = []
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes written, records included."""
        return self.extra + sum(ref.nbytes for ref, _, _ in self.refs)

    def besides(self) -> dict[str, int]:
        """Return what the record says of objects that it does not name; ask before the record is counted."""
        return {"bytes_besides": self.extra, "record_copies": int(self.durability.copies)}

    def put(self, key: str, data: Buffer, pool: str | None = None, op: keys.Op | None = None) -> ObjectRef:
        """Write an object, or begin to, and remember it."""
        self._put(key, data)
        ref = ObjectRef.of(key, data)
        with self._lock:
            self.refs.append((ref, pool, op))
            self.objects += 1
        return ref

    def put_with_copy(self, key: str, data: bytes) -> ObjectRef:
        """Write an object of no array, and a copy beside it."""
        ref = self.put(key, data)
        if self.durability.copies:
            self.put_besides(keys.own_copy_key(key), data)
        return ref

    def put_besides(self, key: str, data: bytes) -> None:
        """Write a second copy of what is written."""
        self._put(key, data)
        self.count_besides(len(data))

    def count_besides(self, nbytes: int) -> None:
        """Count a second copy that is there."""
        self.count(nbytes)
        with self._lock:
            self.protection += nbytes

    def copy_record(self, key: str, data: bytes) -> None:
        """Store the second copy of a record, which is good without it: `verify` tells where it is missing."""
        if self.durability.copies:
            with suppress(StorageError):
                put_object(self.backend, key, data)
                self.count_besides(len(data))

    def put_chunk(self, chunk: Chunk) -> ObjectRef:
        """Write a coded chunk, and the parity that it completes."""
        key = keys.chunk_key(self.edge, qualified(self.part, chunk.pool), chunk.op, chunk.index)
        ref = self.put(key, chunk.data, chunk.pool, chunk.op)
        made = self._parity.add(chunk.pool, chunk.op, chunk.index, chunk.data)
        if made is not None:
            self._put_parity(made)
        return ref

    def _put_parity(self, made: ParityObject) -> None:
        key = keys.parity_key(self.edge, qualified(self.part, made.pool), made.op, made.number)
        self.put(key, made.data, made.pool, made.op)
        with self._lock:
            self.protection += len(made.data)

    def put_mark(self, key: str, data: bytes) -> None:
        """Write a mark of the node to come. Its bytes are not counted, as more marks may be set later."""
        self._put(key, data)

    def _put(self, key: str, data: Buffer) -> None:
        self._begun.append(key)
        if self._wave is None:
            put_object(self.backend, key, data)
        else:
            self._wave.put(key, data)

    def end(self) -> None:
        """Return when all objects are there, and durable where the target can be; errors as for `put`."""
        if self._wave is not None:
            self._wave.end()

    def take_away(self) -> None:
        """Delete what was written, as far as that goes quickly: no record names it, and none ever will."""
        if self._wave is not None:
            self._wave.stop()
        with suppress(LcstoreError), deadline(LITTLE):
            self.backend.delete_many(self._begun)

    def put_layout(self, layout: Layout, named: tuple[Layout, str] | None = None) -> str:
        """Return the hash of a stored layout.

        It is stored anew, as an object of its own, unless it is the one that the head names: any other may
        be a collector's.

        Parameters
        ----------
        layout
            Of this part.
        named
            Layout and hash that the head names for the part, where the head is the writer's own and
            acknowledged: collectors keep the latest node of every run, and so its layouts.
        """
        if named is not None and named[0] is layout:
            return named[1]
        digest, data = layout_object(layout)
        self._put(keys.layout_key(digest), data)
        self.count(len(data))
        if self.durability.copies:
            self.put_besides(keys.copy_key(digest), data)
        return digest

    def count(self, nbytes: int) -> None:
        """Count an object that is written elsewhere."""
        with self._lock:
            self.extra += nbytes
            self.objects += 1

    def put_metadata(self, layout: Layout) -> None:
        """Write the rest of the parity, and the Zarr metadata of the arrays: one object for each part."""
        for made in self._parity.rest():
            self._put_parity(made)
        arrays: dict[str, set[tuple[str, keys.Op]]] = {}
        for _, pool, op in self.refs:
            if pool is not None and op is not None:
                arrays.setdefault(part_of(qualified(self.part, pool)), set()).add((pool, op))
        for part, inside in sorted(arrays.items()):
            metadata = group_metadata((layout.pools[pool], op) for pool, op in inside)
            self.put(keys.group_key(self.edge, part), metadata)

    def listed(self) -> tuple[ObjectRef, ...]:
        """Return the objects in the record's order."""
        return tuple(ref for ref, _, _ in self._ordered())

    def _ordered(self) -> list[tuple[ObjectRef, str | None, keys.Op | None]]:
        """Return the objects by folder; there chunks with parity as it covers them, all others by key."""

        def order(item: tuple[ObjectRef, str | None, keys.Op | None]) -> tuple[str, int, str]:
            ref, pool, op = item
            return ref.key.rpartition("/")[0], self._parity.place(ref.key, pool, op), ref.key

        return sorted(self.refs, key=order)

    def split(self, draft: Draft) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Return the objects that the edge needs, and those of the exact value alone."""
        needed = {
            spec.pool for spec, op in zip(draft.layout.tensors, draft.columns.op, strict=True) if op == EXACT
        }
        edge: list[ObjectRef] = []
        exact: list[ObjectRef] = []
        for ref, pool, op in self._ordered():
            (exact if op == "exact" and pool not in needed else edge).append(ref)
        return [ref for ref in edge if not ref.key.endswith("/leaves.json")], exact
