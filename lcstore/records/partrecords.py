"""Reading records whose parts may be objects of their own, and the parts of a shortcut."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from lcstore.edges.columns import Columns
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef, PartBody
from lcstore.format.records import EdgeRecord, NodeRecord, read_edge, read_node
from lcstore.layout.layout import Layout, Part
from lcstore.layout.qualified import FIRST_PART
from lcstore.records.stored import fetch_parts
from lcstore.storage.backend import Backend


def node_reader(backend: Backend) -> Callable[[str, bytes], NodeRecord]:
    """Return what reads the record of a node, given its key and bytes; it gets the parts that it needs."""
    return partial(read_node, fetch=partial(fetch_parts, backend))


def edge_reader(backend: Backend) -> Callable[[str, bytes], EdgeRecord]:
    """Return what reads the record of an edge that maintenance added, as `node_reader` does."""
    return partial(read_edge, fetch=partial(fetch_parts, backend))


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
