"""What edges do to tensors, alone and along a path: the one place that knows what an operation means.

Pure arrays over the tensors of a layout: no chunks, no keys. The rules are those of docs/format/columns.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.edges.columns import ADD, EXACT, KEEP, OWN, SET, SET_GRID
from lcstore.errors import CorruptionError
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import PieceColumns

#: The arrays that an edge may have of a pool.
ArrayName: TypeAlias = Literal["add", "grid", "set", "exact"]

_SETTERS: Final[tuple[ArrayName, ...]] = ("grid", "set", "exact")

#: By operation, and whether the tensor is one of weights. Weights that are `SET` are zero: nothing is stored.
_HELD_IN: Final[dict[tuple[int, bool], ArrayName]] = {
    (ADD, True): "add",
    (ADD, False): "add",
    (SET_GRID, True): "grid",
    (SET, False): "set",
    (EXACT, True): "exact",
    (EXACT, False): "exact",
}

#: The same as a table: places in `_ARRAYS`.
_ARRAYS: Final[tuple[ArrayName | None, ...]] = (None, "add", *_SETTERS)
_HELD_IN_COLUMN: Final = np.array(
    [[_ARRAYS.index(_HELD_IN.get((op, weights))) for weights in (False, True)] for op in range(OWN + 1)]
)

#: In `Trace.begins`: the value begins with what the path's first node has.
START: Final = -1
#: In `Trace.begins`: nothing on the path leads to the value.
LOST: Final = -2


def sets(op: Array) -> Array:
    """Return which operations set a tensor without a look at what was there."""
    out: Array = (op == SET) | (op == EXACT) | (op == SET_GRID)
    return out


def sets_weights(op: Array, layout: Layout) -> Array:
    """Return where in a layout weights are set that are not zero: ``int64``."""
    return np.flatnonzero(layout.weights & sets(op) & (op != SET))


def whole(layout: Layout) -> Array:
    """Return the operations that set every tensor to what it is when edges are put together: ``uint8``."""
    return np.where(layout.weights, SET_GRID, np.where(layout.plain, EXACT, SET)).astype(np.uint8)


def by_array(op: Array, weights: Array, pieces: PieceColumns) -> list[tuple[ArrayName | None, PieceColumns]]:
    """Divide pieces by the array in which an edge holds them; with None, what it holds in none.

    Parameters
    ----------
    op, weights
        What the edge says of each tensor of its layout, and whether that is one of weights.
    pieces
        Of tensors of that layout.
    """
    held = _HELD_IN_COLUMN[op[pieces.tensor], weights[pieces.tensor].astype(np.int64)]
    return [(_ARRAYS[code], pieces.where(held == code)) for code in np.unique(held).tolist()]


def array_of(op: int, weights: bool) -> ArrayName | None:
    """Return the array of its pool in which an edge holds a tensor, weights or not; None: in none."""
    return _HELD_IN.get((op, weights))


@dataclass(frozen=True, eq=False)
class Effect:
    """What an edge does to the tensors of its target.

    Attributes
    ----------
    layout
        That of the target.
    op
        ``uint8``, per tensor. What a shortcut leaves to the own edge of its target is as that says it.
    owned
        ``bool``, per tensor: the own edge of the target sets it in the edge's stead, and holds its value.
    sets
        ``bool``, per tensor: the edge gives it a value, whatever it was before.
    adds, passes
        ``bool``, per tensor: something is added to the value before; that goes on, added to or not.
    sign
        1; -1 of an edge that leads back, from its target to its base: what it adds is subtracted.
    """

    layout: Layout
    op: Array
    owned: Array
    sets: Array
    adds: Array
    passes: Array
    sign: int = 1

    @classmethod
    def of(cls, layout: Layout, op: Array, own: Array | None = None) -> Self:
        """Return what an edge does.

        Parameters
        ----------
        layout
            That of its target.
        op
            ``uint8``, per tensor: what it says.
        own
            What the own edge of the target says, where the edge is a shortcut.

        Raises
        ------
        CorruptionError
            The edge leaves a tensor to an own edge that does not set it.
        """
        owned = op == OWN
        if owned.any():
            own = own if own is not None and own.size == op.size else np.full_like(op, KEEP)
            wrong = np.flatnonzero(owned & ~sets(own))
            if wrong.size:
                name = layout.tensors[int(wrong[0])].name
                raise CorruptionError(
                    f"a shortcut leaves tensor {name!r} to an own edge that does not set it"
                )
            op = np.where(owned, own, op)
        adds = (op == ADD) & layout.movable
        return cls(layout, op, owned, sets(op), adds, adds | (op == KEEP))

    def back(self) -> Self:
        """Return what the same edge does on the way back to its base: what it sets is lost there."""
        return replace(self, sets=np.zeros_like(self.sets), sign=-self.sign)

    def holds(self, array: ArrayName) -> Array:
        """Return which tensors the edge itself holds in one of its arrays: ``bool``, per tensor."""
        held = np.zeros_like(self.owned)
        for op, weights in (what for what, where in _HELD_IN.items() if where == array):
            held |= (self.op == op) & (self.layout.weights == weights)
        return held & ~self.owned

    def carry(self, values: Array, base: Layout, otherwise: object) -> Array:
        """Return what was said of the tensors of the base, said of those of the target.

        Parameters
        ----------
        values, base
            An entry for each tensor of the base, and its layout.
        otherwise
            The entry of tensors whose value does not come from the base.
        """
        out = np.full(self.op.size, otherwise, values.dtype)
        places = self.layout.places_in(base)
        on = self.passes & (places >= 0)
        out[on] = values[places[on]]
        return out

    def digests(self, target: Array, base: tuple[Layout, Array] | None) -> Array:
        """Return the digests of what the edge holds, own edge included: ``uint64``, per tensor.

        They are linear: what is added has that of the target less that of the base.

        Parameters
        ----------
        target
            Digests of the target.
        base
            Layout and digests of the base; None at the root.
        """
        return target if base is None else target - self.carry(base[1], base[0], 0)

    def unlike(self, found: Array, wanted: Array) -> Array:
        """Return of which tensors what the edge holds does not have the digest it has to: ``bool``.

        Patterns add up modulo 2^w, and so do their digests: of those the low w bits are compared.
        """
        out: Array = (found - wanted) << np.where(self.adds, self.layout.spare_bits, np.uint64(0)) != 0
        return out

    def spoiled(self, damaged: Callable[[ArrayName], Array]) -> Array:
        """Return which tensors the edge leads to a wrong value, those that are owned apart.

        Parameters
        ----------
        damaged
            Gives by array the tensors of which a chunk cannot be had: ``bool``, per tensor. A chunk of deltas
            is added as a whole, so its neighbours suffer with what is added to.
        """
        out = self.passes & self.layout.movable & damaged("add")
        for array in _SETTERS:
            out |= self.holds(array) & damaged(array)
        return out


class Start(NamedTuple):
    """Where a path starts: the layout of a node, and which of its tensors are known there, ``bool``."""

    layout: Layout
    tensors: Array

    @classmethod
    def of(cls, layout: Layout, tensors: Sequence[int] | Array) -> Self:
        """Return the start at a node of which some tensors are known."""
        there = np.zeros(len(layout.tensors), bool)
        there[np.asarray(tensors, np.int64)] = True
        return cls(layout, there)


class Trace(NamedTuple):
    """Where the values of tensors at the end of a path come from.

    Attributes
    ----------
    begins
        ``int64``, per tensor of the last layout: the edge that sets it, `START`, or `LOST`. What all edges
        after that add goes on top.
    added
        ``bool``, per tensor: whether any of them adds to it.
    """

    begins: Array
    added: Array


def trace(effects: Sequence[Effect], layout: Layout, wanted: Array, start: Start | None) -> Trace:
    """Find out where values come from, from the last edge back.

    Parameters
    ----------
    effects
        Those of the edges of the path.
    layout
        That of the node that they lead to.
    wanted
        ``int64``: tensors of that layout; of others nothing is said.
    start
        The node that they lead from; None at the root.
    """
    found = Trace(np.full(len(layout.tensors), LOST), np.zeros(len(layout.tensors), bool))
    left = wanted
    for at in range(len(effects) - 1, -1, -1):
        if not left.size:
            return found
        effect = effects[at]
        there = layout.places_in(effect.layout)[left]
        left, there = left[there >= 0], there[there >= 0]
        found.begins[left[effect.sets[there]]] = at
        found.added[left[effect.adds[there]]] = True
        left = left[effect.passes[there]]
    if start is not None:
        there = layout.places_in(start.layout)[left]
        left, there = left[there >= 0], there[there >= 0]
        found.begins[left[start.tensors[there]]] = START
    return found


def merged(path: Trace, own: Effect) -> Array:
    """Return what a shortcut that stands for a path says of each tensor: ``uint8``.

    Parameters
    ----------
    path
        The trace of every tensor that the own edge does not set.
    own
        What the own edge of the path's last node does.
    """
    passed = np.where(path.added, ADD, KEEP)
    return np.where(own.sets, OWN, np.where(path.begins == START, passed, whole(own.layout))).astype(np.uint8)
