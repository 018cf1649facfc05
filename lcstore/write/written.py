"""The objects of one edge: written one by one, remembered for the record that will need them."""

from __future__ import annotations

from threading import Lock

from lcstore.edges.columns import EXACT
from lcstore.edges.frames import Chunk
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.format.layoutfile import layout_object
from lcstore.format.zarrmeta import GROUP, array_metadata
from lcstore.state.layout import Layout
from lcstore.state.qualified import FIRST_PART, part_of, qualified
from lcstore.storage.backend import Backend
from lcstore.track.draft import Draft


class Written:
    """The objects written for one part of an edge. Thread-safe.

    Parameters
    ----------
    backend
        Where to.
    edge, part
        Id of the edge, and name of the part. A shortcut is written as one, whatever its parts.
    """

    def __init__(self, backend: Backend, edge: str, part: str = FIRST_PART) -> None:
        self.backend = backend
        self.edge = edge
        self.part = part
        self.refs: list[tuple[ObjectRef, str | None, keys.Op | None]] = []
        self.extra = 0
        self.objects = 0
        self._lock = Lock()

    @property
    def nbytes(self) -> int:
        """Bytes written, records included."""
        return self.extra + sum(ref.nbytes for ref, _, _ in self.refs)

    def put(self, key: str, data: bytes, pool: str | None = None, op: keys.Op | None = None) -> ObjectRef:
        """Write an object and remember it."""
        self.backend.put(key, data)
        ref = ObjectRef.of(key, data)
        with self._lock:
            self.refs.append((ref, pool, op))
            self.objects += 1
        return ref

    def put_chunk(self, chunk: Chunk) -> ObjectRef:
        """Write a coded chunk."""
        key = keys.chunk_key(self.edge, qualified(self.part, chunk.pool), chunk.op, chunk.index)
        return self.put(key, chunk.data, chunk.pool, chunk.op)

    def put_record(self, key: str, data: bytes) -> None:
        """Write what belongs to the node to come and is no object of the edge: a mark, a layout."""
        self.backend.put(key, data)
        self.count(len(data))

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
        self.put_record(keys.layout_key(digest), data)
        return digest

    def count(self, nbytes: int) -> None:
        """Count an object that is written elsewhere."""
        self.extra += nbytes
        self.objects += 1

    def put_metadata(self, layout: Layout) -> None:
        """Write the Zarr metadata of the arrays that have chunks."""
        arrays = sorted({(pool, op) for _, pool, op in self.refs if pool is not None and op is not None})
        for part in sorted({part_of(qualified(self.part, pool)) for pool, _ in arrays}):
            self.put(keys.group_key(self.edge, part), GROUP)
        for pool, op in arrays:
            key = keys.array_key(self.edge, qualified(self.part, pool), op)
            self.put(key, array_metadata(layout.pools[pool], op), pool, op)

    def listed(self) -> tuple[ObjectRef, ...]:
        """Return the objects in the order of their keys."""
        return tuple(sorted((ref for ref, _, _ in self.refs), key=lambda ref: ref.key))

    def split(self, draft: Draft) -> tuple[list[ObjectRef], list[ObjectRef]]:
        """Return the objects that the edge needs, and those of the exact value alone."""
        needed = {
            spec.pool for spec, op in zip(draft.layout.tensors, draft.columns.op, strict=True) if op == EXACT
        }
        edge: list[ObjectRef] = []
        exact: list[ObjectRef] = []
        for ref, pool, op in sorted(self.refs, key=lambda item: item[0].key):
            (exact if op == "exact" and pool not in needed else edge).append(ref)
        return [ref for ref in edge if not ref.key.endswith("/leaves.json")], exact
