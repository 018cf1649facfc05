"""Which second copies there are to be, and of what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef, split_layouts
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.limits import MAX_LAYOUT_BYTES, MAX_RECORD_BYTES


class Copied(NamedTuple):
    """What a second copy is of.

    Attributes
    ----------
    key
        Its key.
    due
        Whether the copy is to be there: each handle may write them or not.
    ref
        Of an object of an edge: what its record says of it.
    """

    key: str
    due: bool
    ref: ObjectRef | None = None

    @property
    def most(self) -> int:
        """Bytes that it has at most, if it is whole."""
        return max(MAX_RECORD_BYTES, MAX_LAYOUT_BYTES) if self.ref is None else self.ref.nbytes


def copied(nodes: Mapping[str, NodeRecord], edges: Iterable[EdgeRecord], *, usual: bool) -> dict[str, Copied]:
    """Return what each second copy is of, by the copy's key; nothing where no record has one.

    Parameters
    ----------
    nodes, edges
        The records that are needed; of nodes by id.
    usual
        Whether those of old, which do not say it, have copies.
    """
    found: dict[str, Copied] = {}
    for copy, one in _all(nodes, edges, usual):
        found[copy] = one._replace(due=one.due or (copy in found and found[copy].due))
    if not usual and not any(one.due for one in found.values()):
        return {}
    return found | {keys.copy_key(keys.STORE_KEY): Copied(keys.STORE_KEY, True)}


def _all(
    nodes: Mapping[str, NodeRecord], edges: Iterable[EdgeRecord], usual: bool
) -> Iterator[tuple[str, Copied]]:
    for node, record in nodes.items():
        due = bool(record.stats.get("record_copies", usual))
        yield keys.copy_key(node), Copied(keys.node_key(record.name(node)), due)
        for _, digest in split_layouts(record.layout):
            yield keys.copy_key(digest), Copied(keys.layout_key(digest), due)
        yield from _beside(record.edge, due)
    for edge in edges:
        due, key = bool(edge.stats.get("record_copies", usual)), keys.edge_key(edge.name)
        yield keys.copy_key(keys.edge_stem(key)), Copied(key, due)
        yield from _beside(edge.edge, due)


def _beside(edge: EdgeBody, due: bool) -> Iterator[tuple[str, Copied]]:
    for ref in (ref for part in edge.parts for ref in part.needed):
        if keys.has_own_copy(ref.key):
            yield keys.own_copy_key(ref.key), Copied(ref.key, due, ref)
