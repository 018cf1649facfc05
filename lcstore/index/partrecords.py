"""Reading records whose parts may be objects of their own, and parts of what is made of several of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from lcstore.edges.columns import Columns
from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef, PartBody
from lcstore.format.records import EdgeRecord, NodeRecord, read_edge, read_node
from lcstore.state.layout import Layout, Part
from lcstore.state.qualified import FIRST_PART
from lcstore.storage.backend import Backend
from lcstore.storage.survey import spread


def fetch_object(backend: Backend, ref: ObjectRef) -> bytes:
    """Return a stored object that is what its record says.

    What fails the check is read once more: a bit may have flipped on the way.

    Raises
    ------
    CorruptionError
        It is missing or differs.
    """
    try:
        try:
            return ref.check(backend.get(ref.key, 0, ref.nbytes + 1))
        except CorruptionError:
            return ref.check(backend.get(ref.key, 0, ref.nbytes + 1))
    except NotFoundError as error:
        raise CorruptionError("an object that a record needs is missing", key=ref.key) from error


def fetch_objects(backend: Backend, refs: Sequence[ObjectRef]) -> Iterable[bytes]:
    """Return several stored objects, read side by side; errors as for `fetch_object`."""
    return spread(partial(fetch_object, backend), refs) if len(refs) > 1 else [fetch_object(backend, refs[0])]


def node_reader(backend: Backend) -> Callable[[str, bytes], NodeRecord]:
    """Return what reads the record of a node, given its key and bytes; it gets the parts that it needs."""
    return partial(read_node, fetch=partial(fetch_objects, backend))


def edge_reader(backend: Backend) -> Callable[[str, bytes], EdgeRecord]:
    """Return what reads the record of an edge that maintenance added, as `node_reader` does."""
    return partial(read_edge, fetch=partial(fetch_objects, backend))


def shortcut_parts(
    layout: Layout, columns: Columns, objects: Iterable[ObjectRef] = ()
) -> tuple[PartBody, ...]:
    """Return the parts of a shortcut to a node of this layout, each with its objects and its columns."""
    found: dict[str, list[ObjectRef]] = {}
    for ref in objects:
        found.setdefault(keys.part_name(ref.key), []).append(ref)
    parts = layout.parts or (Part(FIRST_PART, layout, 0),)
    return tuple(
        PartBody(
            part.name,
            tuple(found.get(part.name, ())),
            columns.rows(part.first, part.first + len(part.layout.tensors)).to_bytes(),
        )
        for part in parts
    )
