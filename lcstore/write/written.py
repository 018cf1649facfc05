"""The objects of one edge: written one by one, remembered for the record that will need them."""

from __future__ import annotations

from threading import Lock

from lcstore.format import keys
from lcstore.format.records import ObjectRef
from lcstore.format.zarrmeta import GROUP, array_metadata
from lcstore.state.layout import Layout
from lcstore.storage.backend import Backend
from lcstore.track.columns import EXACT
from lcstore.track.draft import Draft
from lcstore.track.frames import Chunk
from lcstore.track.grid import track_dtype


class Written:
    """The objects written for one edge. Thread-safe."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
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

    def put_chunk(self, edge: str, chunk: Chunk) -> ObjectRef:
        """Write a coded chunk."""
        return self.put(
            keys.chunk_key(edge, chunk.pool, chunk.op, chunk.index), chunk.data, chunk.pool, chunk.op
        )

    def put_record(self, key: str, data: bytes) -> None:
        """Write what belongs to the node to come and is no object of the edge: a mark, a layout."""
        self.backend.put(key, data)
        self.count(len(data))

    def count(self, nbytes: int) -> None:
        """Count an object that is written elsewhere."""
        self.extra += nbytes
        self.objects += 1

    def put_metadata(self, edge: str, layout: Layout) -> None:
        """Write the Zarr metadata of the arrays that have chunks."""
        arrays = sorted({(pool, op) for _, pool, op in self.refs if pool is not None and op is not None})
        if not arrays:
            return
        self.put(keys.group_key(edge), GROUP)
        for pool, op in arrays:
            spec = layout.pools[pool]
            integer = str(track_dtype(spec.dtype)) if op != "exact" and spec.role == "weights" else None
            data = array_metadata(
                spec.size, spec.chunk, spec.dtype, op, integer=integer, storage=spec.storage_dtype
            )
            self.put(keys.array_key(edge, pool, op), data, pool, op)

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
