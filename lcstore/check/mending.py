"""What a damaged or missing object was, as far as something else that is stored says it too."""

from __future__ import annotations

from collections.abc import Iterator

from lcstore.check.readable import Readable
from lcstore.errors import CorruptionError
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.format.parity import Family, families
from lcstore.format.zarrmeta import group_metadata
from lcstore.index.links import Link
from lcstore.once import once
from lcstore.records.stored import fetch_copy, rebuild
from lcstore.storage.backend import Backend


class Mending:
    """Makes objects of a store again.

    Parameters
    ----------
    store
        What its records say.
    backend
        Where objects are read; that of `store` if None.
    """

    def __init__(self, store: Readable, backend: Backend | None = None) -> None:
        self.store = store
        self._backend = backend or store.backend
        self._families: dict[str, dict[str, Family]] = {}

    def was(self, ref: ObjectRef) -> bytes:
        """Return the bytes that a record lists.

        Raises
        ------
        CorruptionError
            Nothing says them any more.
        StorageError
            Something could not be read.
        """
        if ref.key.endswith("/zarr.json"):
            return ref.check(self._metadata(ref.key))
        if keys.has_own_copy(ref.key):
            return fetch_copy(self._backend, ref)
        edge = keys.parse_data_key(ref.key).edge
        if edge not in self._families:
            self._families[edge] = families(self._objects.get(edge, ()))
        family = self._families[edge].get(ref.key)
        if family is None:
            raise CorruptionError("nothing is stored that it can be rebuilt from", key=ref.key)
        return rebuild(self._backend, ref, family)

    @once
    def _objects(self) -> dict[str, tuple[ObjectRef, ...]]:
        """The objects of each edge in its record's order."""
        return dict(self._listed())

    @once
    def _links(self) -> dict[str, Link]:
        return self.store.links

    def _listed(self) -> Iterator[tuple[str, tuple[ObjectRef, ...]]]:
        for node in self.store.records.values():
            exact = () if node.exact is None else node.exact.objects
            yield node.edge.id, (*node.edge.objects, *exact)
        for shortcut in self.store.edges.values():
            yield shortcut.edge.id, shortcut.edge.objects

    def _metadata(self, key: str) -> bytes:
        """Return Zarr's metadata: what it says follows from the layout."""
        edge, part = keys.parse_data_key(key).edge, keys.part_name(key)
        link = self._links.get(edge)
        if link is None:
            raise CorruptionError("no layout says what its arrays are", key=key)
        names = (keys.parse_data_key(r.key) for r in self._objects[edge] if keys.part_name(r.key) == part)
        arrays = {(name.pool, name.op) for name in names if name.op is not None}
        pools = link.layout.pools
        return group_metadata((pools[pool], op) for pool, op in arrays if pool in pools)
