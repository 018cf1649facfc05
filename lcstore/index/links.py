"""Edges as verifying and repairing look at them: what each says of the tensors of its target's layout."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import CorruptionError
from lcstore.format import keys
from lcstore.format.bodies import EdgeBody, ObjectRef
from lcstore.format.records import EdgeRecord, NodeRecord
from lcstore.graph.names import ROOT
from lcstore.state.layout import Layout
from lcstore.state.specs import stem_of
from lcstore.track.columns import ADD, ARRAYS, EXACT, KEEP, OWN, SET, SET_GRID, Columns
from lcstore.track.poolmap import PoolMap, pool_maps

#: Operations that set a tensor without a look at what was there.
SETS: Final = (SET, EXACT, SET_GRID)
#: Operations by which the base's value goes on.
PASSES: Final = (KEEP, ADD)


class LayoutView:
    """A layout, with where its tensors lie and what they are."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    @cached_property
    def maps(self) -> dict[str, PoolMap]:
        """Of the pools."""
        return pool_maps(self.layout)

    @cached_property
    def weights(self) -> Array:
        """Which tensors are weights: ``bool``, per tensor."""
        return np.array([spec.role == "weights" for spec in self.layout.tensors], bool)

    @cached_property
    def lossy(self) -> Array:
        """Which tensors may have an exact value besides: ``bool``, per tensor."""
        return np.array([spec.role != "plain" for spec in self.layout.tensors], bool)

    def within(self, pools: Iterable[str]) -> Array:
        """Return which tensors lie in pools of these names, of whatever part: ``bool``, per tensor."""
        wanted = set(pools)
        return np.array([stem_of(spec.pool) in wanted for spec in self.layout.tensors], bool)

    def touched(self, pool: str, chunk: int) -> Array:
        """Tell which tensors a chunk holds a piece of: ``bool``, per tensor."""
        out = np.zeros(len(self.layout.tensors), bool)
        if pool in self.maps:
            out[[piece.tensor for piece in self.maps[pool].pieces(chunk)]] = True
        return out

    def places(self, base: LayoutView) -> Array:
        """Return where another layout has each tensor, if at the same place: ``int64``, -1 where not."""
        return self.layout.places_in(base.layout)


def pick(values: Array, places: Array) -> Array:
    """Return an entry for each place; zero (or False) for those of -1."""
    out = np.zeros(places.size, values.dtype)
    there = places >= 0
    out[there] = values[places[there]]
    return out


@dataclass(frozen=True, eq=False)
class Link:
    """One edge.

    Attributes
    ----------
    id, base, target
        Its id, and the nodes that it leads from (or `ROOT`) and to.
    key, step
        Of its record; the step of the node whose own edge it is.
    own
        Whether the target was saved with it.
    """

    id: str
    base: str
    target: str
    key: str
    step: int | None
    own: bool
    view: LayoutView
    columns: Columns
    objects: tuple[ObjectRef, ...]

    @property
    def node(self) -> str | None:
        """The node whose own edge it is, as condemnations say it."""
        return self.target if self.own else None

    def scope_of(self, tensor: int) -> str:
        """Return what is condemned to let go of what the edge says of a tensor: of a shortcut, all of it."""
        if not self.own:
            return keys.WHOLE_EDGE
        op, spec = int(self.columns.op[tensor]), self.view.layout.tensors[tensor]
        return keys.array_scope(spec.pool, ARRAYS.get(op, "add" if spec.role == "weights" else "set"))


def own_link(node: str, record: NodeRecord, view: LayoutView) -> Link:
    """Return the edge that a node was saved with.

    Raises
    ------
    CorruptionError
        It does not fit its layout.
    """
    key = keys.node_key(record.name(node))
    columns = Columns.from_bytes(record.edge.columns, len(view.layout.tensors), key=key)
    _fits(record.edge, view.layout, key)
    body = record.edge
    if body.base == ROOT and np.isin(columns.op, PASSES).any():
        raise CorruptionError("an edge from the root must set everything, and this one does not", key=key)
    return Link(body.id, body.base, node, key, record.step, True, view, columns, body.objects)


def shortcut_link(record: EdgeRecord, own: Link) -> Link:
    """Return an edge that maintenance added; `own` is that which its target was saved with.

    Raises
    ------
    CorruptionError
        It does not fit the layout of its target, or contradicts what the target's own edge says.
    """
    key = keys.edge_key(record.name)
    body, view = record.edge, own.view
    columns = Columns.from_bytes(body.columns, len(view.layout.tensors), key=key, shortcut=True)
    _fits(body, view.layout, key)
    same = (columns.digest == own.columns.digest) & (columns.grid == own.columns.grid)
    if not same.all():
        raise CorruptionError("it does not lead to the values of its target", key=key)
    if not np.array_equal(columns.op == OWN, np.isin(own.columns.op, SETS)):
        raise CorruptionError("it must leave to its target's own edge what that sets, and no more", key=key)
    if body.base == ROOT and np.isin(columns.op, PASSES).any():
        raise CorruptionError("an edge from the root must set everything, and this one does not", key=key)
    return Link(body.id, body.base, record.target, key, None, False, view, columns, body.objects)


def _fits(edge: EdgeBody, layout: Layout, key: str) -> None:
    """Every chunk that an edge lists lies in a pool of its layout."""
    for ref in edge.objects:
        name = keys.parse_data_key(ref.key)
        if name.pool is None:
            continue
        pool = layout.pools.get(name.pool)
        if pool is None:
            raise CorruptionError(f"it lists an object of pool {name.pool!r}, unknown to its layout", key=key)
        if name.chunk is not None and name.chunk * pool.chunk >= pool.size:
            raise CorruptionError(f"it lists chunk {name.chunk} past the end of pool {name.pool!r}", key=key)


#: What an edge does to the tensors that an array of it holds.
OP_OF: Final[dict[keys.Op, int]] = {array: op for op, array in ARRAYS.items()}
