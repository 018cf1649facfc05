"""Edges as verifying and repairing look at them: what each says of the tensors of its target's layout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcstore.edges.algebra import Effect, array_of
from lcstore.edges.columns import OWN, Columns
from lcstore.errors import CorruptionError
from lcstore.format import keys, markkeys
from lcstore.format.bodies import ObjectRef
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.graph.refs import ROOT
from lcstore.layout.layout import Layout
from lcstore.once import once


@dataclass(frozen=True, eq=False)
class Link:
    """One edge.

    Attributes
    ----------
    id, base, target
        Its id, and the nodes that it leads from (or `ROOT`) and to.
    key, step
        The key of its record; the step of the node whose own edge it is.
    layout, columns, objects
        What it says of the tensors of its target, and what it stores.
    own
        Of a shortcut: the edge that its target was saved with.
    """

    id: str
    base: str
    target: str
    key: str
    step: int | None
    layout: Layout
    columns: Columns
    objects: tuple[ObjectRef, ...]
    own: Link | None = None

    @once
    def effect(self) -> Effect:
        """What it does to the tensors of its target."""
        return Effect.of(self.layout, self.columns.op, None if self.own is None else self.own.columns.op)

    @property
    def node(self) -> str | None:
        """The node whose own edge it is, as condemnations say it."""
        return self.target if self.own is None else None

    def scope_of(self, tensor: int) -> str:
        """Return what is condemned to let go of what the edge says of a tensor: of a shortcut, all of it."""
        if self.own is not None:
            return markkeys.WHOLE_EDGE
        pool = self.layout.tensors[tensor].pool
        array = array_of(int(self.columns.op[tensor]), bool(self.layout.weights[tensor]))
        return markkeys.array_scope(pool, "add" if self.effect.passes[tensor] else array or "set")


def own_link(node: str, record: NodeRecord, layout: Layout) -> Link:
    """Return the edge that a node was saved with.

    Raises
    ------
    CorruptionError
        It does not fit its layout.
    """
    key = keys.node_key(record.name(node))
    body = record.edge
    columns = Columns.from_bytes(body.columns, len(layout.tensors), key=key)
    return _checked(Link(body.id, body.base, node, key, record.step, layout, columns, body.objects))


def shortcut_link(record: EdgeRecord, own: Link) -> Link:
    """Return an edge that maintenance added; `own` is that which its target was saved with.

    Raises
    ------
    CorruptionError
        It does not fit the layout of its target, or contradicts what the target's own edge says.
    """
    key = keys.edge_key(record.name)
    body, layout = record.edge, own.layout
    columns = Columns.from_bytes(body.columns, len(layout.tensors), key=key, shortcut=True)
    same = (columns.digest == own.columns.digest) & (columns.grid == own.columns.grid)
    if not same.all():
        raise CorruptionError("it does not lead to the values of its target", key=key)
    if not np.array_equal(columns.op == OWN, own.effect.sets):
        raise CorruptionError("it must leave to its target's own edge what that sets, and no more", key=key)
    return _checked(Link(body.id, body.base, record.target, key, None, layout, columns, body.objects, own))


def _checked(link: Link) -> Link:
    """Return a link, checked: its chunks lie in pools of its layout, and from the root it sets everything."""
    for ref in link.objects:
        name = keys.parse_data_key(ref.key)
        if name.pool is None:
            continue
        pool = link.layout.pools.get(name.pool)
        if pool is None:
            message = f"it lists an object of pool {name.pool!r}, unknown to its layout"
            raise CorruptionError(message, key=link.key)
        if name.chunk is not None and name.chunk * pool.chunk >= pool.size:
            message = f"it lists chunk {name.chunk} past the end of pool {name.pool!r}"
            raise CorruptionError(message, key=link.key)
    if link.base == ROOT and not link.effect.sets.all():
        message = "an edge from the root must set everything, and this one does not"
        raise CorruptionError(message, key=link.key)
    return link
