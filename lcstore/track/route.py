"""The edges of one path as the layout of its last node sees them: where each value begins, and its chunks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import CorruptionError
from lcstore.state.layout import Layout
from lcstore.state.names import Name
from lcstore.track.columns import ADD, ARRAYS, EXACT, KEEP, OWN, SET, SET_GRID, OpName
from lcstore.track.edge import Edge, fill
from lcstore.track.frames import apply_delta
from lcstore.track.poolmap import PoolMap, pool_maps

#: In `Route.begins`: no edge of the path sets the tensor, so its value begins with the base's.
AT_BASE: Final = -1
#: Operations that set a tensor without a look at what was there.
_SETS: Final = np.array([SET, EXACT, SET_GRID], np.uint8)


class Route:
    """The edges of a path, and where on it the value of each wanted tensor begins.

    Parameters
    ----------
    edges
        From the base to the node.
    layout
        The node's.
    wanted
        Tensors of the layout.
    base
        Layout of the node that the path begins at; None where that is the root.

    Attributes
    ----------
    maps
        Of the pools of the layout.
    begins
        ``int64``, per tensor of the layout: the last edge that sets it, or `AT_BASE`.
    added
        ``bool``, per tensor: whether anything is added to what it begins with.

    Raises
    ------
    CorruptionError
        Nothing sets a tensor, neither the path nor the base, or an edge says of it what cannot be.
    """

    def __init__(
        self, edges: Sequence[Edge], layout: Layout, wanted: Sequence[int], base: Layout | None = None
    ) -> None:
        self.edges = edges
        self.layout = layout
        self.maps = pool_maps(layout)
        self.begins = np.full(len(layout.tensors), AT_BASE)
        self.added = np.zeros(len(layout.tensors), bool)
        self._place = np.zeros(len(layout.tensors), np.int64)
        self._owned = np.zeros(len(layout.tensors), bool)
        self._maps_of = {id(layout): self.maps}
        self._places_of = {id(layout): np.arange(len(layout.tensors))}
        self._find(np.array(wanted, np.int64), base)

    def _find(self, left: Array, base: Layout | None) -> None:
        """Find where the tensors `left` begin, from the last edge back."""
        lossy = np.array([self.layout.tensors[t].role == "weights" for t in left.tolist()], bool)
        for at in range(len(self.edges) - 1, -1, -1):
            if not left.size:
                return
            edge = self.edges[at]
            there = self.places(edge.layout, left)
            self._must(there >= 0, left)
            op = edge.columns.op[there]
            owned = op == OWN
            if owned.any():
                self._check_own(edge, left[owned], there[owned])
            sets = owned | np.isin(op, _SETS)
            adds = (op == ADD) & lossy
            self._must(sets | adds | (op == KEEP), left)
            self.added[left[adds]] = True
            done = left[sets]
            self.begins[done], self._place[done], self._owned[done] = at, there[sets], owned[sets]
            left, lossy = left[~sets], lossy[~sets]
        self._must(self.places(base, left) >= 0 if base is not None else np.zeros(left.size, bool), left)

    def _must(self, good: Array, tensors: Array) -> None:
        if not good.all():
            raise CorruptionError(f"nothing on the path sets tensor {self._path(tensors[~good][0])!r}")

    def _check_own(self, edge: Edge, tensors: Array, there: Array) -> None:
        """Check that an own edge sets what its shortcut leaves to it."""
        sets = np.zeros(there.size, bool)
        if edge.own is not None and edge.own.columns.op.size == edge.columns.op.size:
            sets = np.isin(edge.own.columns.op[there], _SETS)
        if not sets.all():
            path = self._path(tensors[~sets][0])
            raise CorruptionError(f"a shortcut leaves tensor {path!r} to an own edge that does not set it")

    def _path(self, tensor: int) -> Name:
        return self.layout.tensors[int(tensor)].name

    def places(self, layout: Layout, tensors: Array) -> Array:
        """Return where a layout has tensors of this route's layout: -1 where it has not, or elsewhere."""
        places = self._places_of.get(id(layout))
        if places is None:
            places = self._places_of[id(layout)] = self.layout.places_in(layout)
        out: Array = places[tensors]
        return out

    def setter(self, tensor: int) -> Edge:
        """Return the edge that holds what a wanted tensor begins with; of a path from the root."""
        edge = self.edges[int(self.begins[tensor])]
        return edge.own if self._owned[tensor] and edge.own is not None else edge

    def arrays(self) -> set[tuple[str, str, OpName]]:
        """Return what wanted tensors are set from: of each array the place of its first chunk, pool, op."""
        found: set[tuple[str, str, OpName]] = set()
        for tensor in np.flatnonzero(self.begins != AT_BASE).tolist():
            edge, pool = self.setter(tensor), self.layout.tensors[tensor].pool
            op = ARRAYS[int(edge.columns.op[self._place[tensor]])]
            found.add((edge.locate(pool, op, 0), pool, op))
        return found

    def _map(self, layout: Layout, pool: str) -> PoolMap | None:
        maps = self._maps_of.get(id(layout))
        if maps is None:
            maps = self._maps_of[id(layout)] = pool_maps(layout)
        return maps.get(pool)

    def compose(
        self,
        pool: str,
        chunk: int,
        tensors: Sequence[int],
        out: Array,
        part: tuple[int, int] | None = None,
    ) -> None:
        """Compose what the path says of `tensors` of one chunk.

        Parameters
        ----------
        pool, chunk, tensors
            The chunk, and the wanted tensors that it holds (at least one).
        out
            The chunk, zero: integers of the grid, or values of a plain pool or one of moments. Filled where
            these tensors lie, with what is added to the base's value for those that begin there. What it
            holds elsewhere means nothing.
        part
            Only these elements (first, and behind the last) are needed.
        """
        begins = self.begins[np.array(tensors, np.int64)]
        first = int(begins.min())
        setters: dict[int, list[int]] = {}
        for tensor, at in zip(tensors, begins.tolist(), strict=True):
            setters.setdefault(at, []).append(tensor)
        adds = self.layout.pools[pool].role == "weights"
        for at in range(max(first, 0), len(self.edges)):
            here = setters.get(at)
            if here is not None:
                self._set(self.edges[at], pool, chunk, here, out, part)
            if adds and first < at:
                self._add(self.edges[at], pool, chunk, out, part)

    def _add(self, edge: Edge, pool: str, chunk: int, out: Array, part: tuple[int, int] | None) -> None:
        data = edge.fetch(pool, "add", chunk)
        if data is None:
            return
        tensors = self._map(edge.layout, pool)
        low, high = tensors.bounds(chunk) if tensors is not None else (0, 0)
        with edge.named(pool, "add", chunk):
            apply_delta(data, out[: high - low], part=_within(part, high - low))

    def _set(
        self,
        edge: Edge,
        pool: str,
        chunk: int,
        tensors: Sequence[int],
        out: Array,
        part: tuple[int, int] | None,
    ) -> None:
        """Set tensors that begin with `edge`: some from its own chunks, some from those of its own edge."""
        lies = self._map(edge.layout, pool)
        assert lies is not None
        low, high = lies.bounds(chunk)
        size = high - low
        for owned in (False, True):
            which = {int(self._place[t]) for t in tensors if self._owned[t] == owned}
            source = edge.own if owned else edge
            if which and source is not None:
                pieces = [p for p in lies.pieces(chunk) if p.tensor in which]
                fill(source, pool, chunk, pieces, out[:size], _within(part, size))


def _within(part: tuple[int, int] | None, count: int) -> tuple[int, int] | None:
    return None if part is None else (min(part[0], count), min(part[1], count))
