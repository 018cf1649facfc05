"""Chunks of one edge, each checked against the record before anything is made of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from lcstore.edges.algebra import ArrayName
from lcstore.edges.edge import Edge
from lcstore.errors import CorruptionError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef
from lcstore.format.parity import Family, families
from lcstore.once import once
from lcstore.records.stored import fetch_object, fetch_rebuilt
from lcstore.storage.backend import Backend


class ChunkFetch:
    """Gets chunks of one edge, checked; a chunk that no record lists is zero. Thread-safe.

    Parameters
    ----------
    backend, edge
        Where the chunks are, and what lists them.
    more
        Further objects of the edge: those of an exact value.
    """

    def __init__(self, backend: Backend, edge: EdgeBody, more: Sequence[ObjectRef] = ()) -> None:
        self.backend = backend
        self.edge = edge.id
        self.refs = {ref.key: ref for ref in (*edge.objects, *more)}

    @once
    def _families(self) -> dict[str, Family]:
        return families(self.refs.values())

    @property
    def stored(self) -> int:
        """Bytes of all objects that the records list."""
        return sum(ref.nbytes for ref in self.refs.values())

    def locate(self, pool: str, op: ArrayName, chunk: int) -> str:
        """Return the key of a chunk."""
        return keys.chunk_key(self.edge, pool, op, chunk)

    def ref(self, pool: str, op: ArrayName, chunk: int) -> ObjectRef | None:
        """Return what the record says of a chunk; None where it lists none."""
        return self.refs.get(self.locate(pool, op, chunk))

    def has(self, ref: ObjectRef, there: Collection[str]) -> bool:
        """Return whether an object is among those that are there, or can be rebuilt of them."""
        if ref.key in there:
            return True
        family = self._families.get(ref.key)
        return family is not None and all(other.key in there for other in family.others(ref.key))

    def __call__(self, pool: str, op: ArrayName, chunk: int) -> bytes | None:
        """Return the bytes of a chunk, rebuilt if need be; None where the record lists none."""
        ref = self.ref(pool, op, chunk)
        if ref is None:
            return None
        try:
            return fetch_object(self.backend, ref)
        except CorruptionError as error:
            return fetch_rebuilt(self.backend, ref, self._families.get(ref.key), error)


def stored_bytes(edges: Sequence[Edge]) -> int:
    """Return how many bytes the objects of some edges have, as the records list them."""
    own = [edge.own for edge in edges if edge.own is not None]
    found = {id(edge.fetch): edge.fetch for edge in (*edges, *own)}
    return sum(fetch.stored for fetch in found.values() if isinstance(fetch, ChunkFetch))
