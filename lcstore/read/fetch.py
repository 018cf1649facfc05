"""Stored objects, each checked against its record before anything is made of it."""

from __future__ import annotations

from collections.abc import Sequence

from lcstore.edges.algebra import ArrayName
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef
from lcstore.index.partrecords import fetch_object
from lcstore.storage.backend import Backend


class ChunkFetch:
    """Gets chunks of one edge, checked; a chunk that no record lists is zero.

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

    def locate(self, pool: str, op: ArrayName, chunk: int) -> str:
        """Return the key of a chunk."""
        return keys.chunk_key(self.edge, pool, op, chunk)

    def ref(self, pool: str, op: ArrayName, chunk: int) -> ObjectRef | None:
        """Return what the record says of a chunk; None where it lists none."""
        return self.refs.get(self.locate(pool, op, chunk))

    def __call__(self, pool: str, op: ArrayName, chunk: int) -> bytes | None:
        """Return the bytes of a chunk; None where the record lists none."""
        ref = self.ref(pool, op, chunk)
        return None if ref is None else fetch_object(self.backend, ref)
