"""A track that goes from node to node: what edges add is added on the way there, or taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.state.layout import Layout
from lcstore.track.columns import ADD, ARRAYS, EXACT, KEEP, OWN, SET, SET_GRID, Columns, OpName
from lcstore.track.compose import Composer, composed_dtype
from lcstore.track.edge import Edge, fill
from lcstore.track.frames import apply_delta
from lcstore.track.poolmap import Piece
from lcstore.track.route import AT_BASE, Route

#: In `Trip.begins`: what is held at the start leads to the tensor's value; nothing on the way does.
HELD: Final = -1
LOST: Final = -2

_SETS: Final = (SET, EXACT, SET_GRID, OWN)


class Passage(NamedTuple):
    """An edge that is gone over: on, or `back`."""

    edge: Edge
    back: bool


class Held(NamedTuple):
    """What is held of a node: its layout, and which of its tensors."""

    layout: Layout
    tensors: Array


class Trip:
    """The way from one node to another, as the tensors that are wanted of the other one see it.

    Parameters
    ----------
    passages
        The edges in order.
    view
        A route of no edges for the layout of the node that they lead to.
    wanted
        Tensors of that layout.
    start
        What is held where they begin; None at the root.

    Attributes
    ----------
    begins
        ``int64``, per tensor of the layout: the passage that sets it, `HELD`, or `LOST`: it was set on an
        edge gone back over, or is not held.
    """

    def __init__(
        self, passages: Sequence[Passage], view: Route, wanted: Sequence[int], start: Held | None
    ) -> None:
        self.passages = passages
        self.view = view
        self.layout = view.layout
        self.wanted = sorted(wanted)
        count = len(self.layout.tensors)
        self.begins = np.full(count, LOST)
        self._adds = np.zeros((len(passages), count), bool)
        left = np.array(self.wanted, np.int64)
        for at in range(len(passages) - 1, -1, -1):
            left = self._look(at, left)
        if start is not None and left.size:
            places = view.places(start.layout, left)
            there = places >= 0
            self.begins[left[there][start.tensors[places[there]]]] = HELD

    def _look(self, at: int, left: Array) -> Array:
        """Note what a passage does to the tensors `left`; return those whose value it passes on."""
        edge, back = self.passages[at]
        there = self.view.places(edge.layout, left)
        left, there = left[there >= 0], there[there >= 0]
        op = edge.columns.op[there]
        adds = (op == ADD) & (self._lossy(left))
        self._adds[at, left[adds]] = True
        if not back:
            self.begins[left[np.isin(op, _SETS)]] = at
        passed: Array = left[adds | (op == KEEP)]
        return passed

    def _lossy(self, tensors: Array) -> Array:
        return np.array([self.layout.tensors[t].role == "weights" for t in tensors.tolist()], bool)

    @property
    def lost(self) -> list[int]:
        """The wanted tensors that have to be composed anew."""
        return [t for t in self.wanted if self.begins[t] == LOST]

    @property
    def edges(self) -> int:
        """How many edges tensors of weights go over."""
        begins = [int(self.begins[t]) for t in self.wanted if self.layout.tensors[t].role == "weights"]
        first = min((at for at in begins if at != LOST), default=len(self.passages))
        return len(self.passages) - max(first, 0)

    def apply(self, pool: str, chunk: int, pieces: Sequence[Piece], out: Array) -> None:
        """Go over all edges with one chunk.

        Parameters
        ----------
        pool, chunk, pieces
            The chunk, and the pieces of wanted tensors in it.
        out
            What is held of it; where no wanted tensor lies it means nothing, before and after.
        """
        live = [piece for piece in pieces if self.begins[piece.tensor] != LOST]
        if not live:
            return
        first = min(int(self.begins[piece.tensor]) for piece in live)
        part = span_of(live)
        for at in range(max(first, 0), len(self.passages)):
            edge, back = self.passages[at]
            size = _size(edge.layout, pool, chunk)
            self._set(at, pool, chunk, live, out[:size])
            if first < at and self._adds[at, [piece.tensor for piece in live]].any():
                data = edge.fetch(pool, "add", chunk)
                if data is not None:
                    with edge.named(pool, "add", chunk):
                        within = (min(part[0], size), min(part[1], size))
                        apply_delta(data, out[:size], -1 if back else 1, within)

    def _set(self, at: int, pool: str, chunk: int, live: Sequence[Piece], out: Array) -> None:
        for edge, pieces in self._setters(at, live):
            fill(edge, pool, chunk, pieces, out, None)

    def _setters(self, at: int, live: Sequence[Piece]) -> Iterator[tuple[Edge, list[Piece]]]:
        """Yield the edges that hold what begins with a passage, and the pieces as their layout has them."""
        here = [piece for piece in live if self.begins[piece.tensor] == at]
        if not here:
            return
        edge = self.passages[at].edge
        there = self.view.places(edge.layout, np.array([piece.tensor for piece in here], np.int64)).tolist()
        moved = [Piece(t, p.first, p.at, p.size) for t, p in zip(there, here, strict=True)]
        own = [piece for piece in moved if edge.columns.op[piece.tensor] == OWN]
        stored = [piece for piece in moved if edge.columns.op[piece.tensor] != OWN]
        if stored:
            yield edge, stored
        if own and edge.own is not None:
            yield edge.own, own

    def fetches(self, at: int) -> Iterator[tuple[Edge, str, OpName, int]]:
        """Yield the chunks that a passage will ask for: edge, pool, operation, number."""
        for pool, chunk, pieces in chunks_of(self.view, self.wanted):
            live = [piece for piece in pieces if self.begins[piece.tensor] != LOST]
            if not live:
                continue
            for edge, moved in self._setters(at, live):
                ops = set(edge.columns.op[[piece.tensor for piece in moved]].tolist())
                stored = ops & {EXACT, SET_GRID} if self.layout.pools[pool].role == "weights" else ops
                for op in sorted(stored):
                    yield edge, pool, ARRAYS[op], chunk
            before = [piece.tensor for piece in live if self.begins[piece.tensor] < at]
            if before and self._adds[at, before].any():
                yield self.passages[at].edge, pool, "add", chunk


class Cursor:
    """Holds the track of some tensors of one node, and goes with it to others. Not thread-safe.

    Attributes
    ----------
    held
        What it holds; None before it is anywhere.
    edges_applied
        How many edges were added, taken back or composed for tensors of weights so far.
    """

    def __init__(self) -> None:
        self.held: Held | None = None
        self.edges_applied = 0
        self._at: Composer | None = None
        self._views: dict[int, Route] = {}

    def forget(self) -> None:
        """Hold nothing any more."""
        self.held = self._at = None

    def view(self, layout: Layout) -> Route:
        """Return a route of no edges for a layout: it knows where others have its tensors."""
        found = self._views.get(id(layout))
        if found is None or found.layout is not layout:
            while len(self._views) >= 4:
                self._views.pop(next(iter(self._views)))
            found = self._views[id(layout)] = Route((), layout, ())
        return found

    def go(self, trip: Trip, lost: Route | None, columns: Columns) -> list[Callable[[], None]]:
        """Begin to go to the node that a trip leads to.

        Nothing is held until `arrive` is told that all jobs have run; if one fails, `forget`.

        Parameters
        ----------
        trip
            From what is held.
        lost
            The edges that set the tensors which the trip loses, for its layout; None where it loses none.
        columns
            Of the node that it leads to.

        Returns
        -------
        list
            The jobs, one for each chunk; they may run side by side.
        """
        before = self._at.pools if self._at is not None else {}
        self.forget()
        self._at = at = Composer((), trip.layout, columns, ())
        for name in {trip.layout.tensors[t].pool for t in trip.wanted}:
            spec = trip.layout.pools[name]
            pool = before.get(name, np.zeros(0, composed_dtype(spec)))
            if pool.size < spec.size:
                pool = np.concatenate((pool, np.zeros(spec.size - pool.size, pool.dtype)))
            at.pools[name] = pool
        self.edges_applied += trip.edges + (_edges(lost, trip.lost) if lost is not None else 0)
        return [
            partial(_go, trip, lost, name, chunk, pieces, at.pools[name])
            for name, chunk, pieces in chunks_of(trip.view, trip.wanted)
        ]

    def arrive(self, trip: Trip) -> None:
        """Hold what a trip wanted: all its jobs have run."""
        tensors = np.zeros(len(trip.layout.tensors), bool)
        tensors[trip.wanted] = True
        self.held = Held(trip.layout, tensors)

    def values(self, tensor: int) -> Array:
        """Return the flat value of a tensor that is held, proved, as the caller's own.

        Raises
        ------
        CorruptionError
            Its digest is not the one committed.
        """
        assert self._at is not None
        return self._at.values(tensor)


def chunks_of(view: Route, wanted: Sequence[int]) -> Iterator[tuple[str, int, list[Piece]]]:
    """Yield pool, number and pieces of each chunk that holds wanted tensors."""
    by_pool: dict[str, set[int]] = {}
    for tensor in wanted:
        by_pool.setdefault(view.layout.tensors[tensor].pool, set()).add(tensor)
    for name, tensors in by_pool.items():
        lies = view.maps[name]
        for chunk in lies.chunks_of(tensors):
            yield name, chunk, [piece for piece in lies.pieces(chunk) if piece.tensor in tensors]


def span_of(pieces: Sequence[Piece]) -> tuple[int, int]:
    """Return where in their chunk pieces begin and end."""
    return min(piece.at for piece in pieces), max(piece.at + piece.size for piece in pieces)


def _go(trip: Trip, lost: Route | None, pool: str, chunk: int, pieces: Sequence[Piece], held: Array) -> None:
    low, high = trip.view.maps[pool].bounds(chunk)
    out = held[low:high]
    trip.apply(pool, chunk, pieces, out)
    anew = [piece for piece in pieces if trip.begins[piece.tensor] == LOST]
    if not anew or lost is None:
        return
    # Apart, for what is composed adds to its neighbours in the chunk as well.
    composed = np.zeros(out.size, out.dtype)
    lost.compose(pool, chunk, [piece.tensor for piece in anew], composed, span_of(anew))
    for piece in anew:
        here = slice(piece.at, piece.at + piece.size)
        out[here] = composed[here]


def _edges(route: Route, tensors: Sequence[int]) -> int:
    """Return how many edges the weights among `tensors` are composed of."""
    begins = [int(route.begins[t]) for t in tensors if route.layout.tensors[t].role == "weights"]
    return len(route.edges) - min(begins) if begins else 0


def _size(layout: Layout, pool: str, chunk: int) -> int:
    """Return how many elements a chunk has in a layout; a pool that grew since had fewer."""
    spec = layout.pools.get(pool)
    return max(0, min(spec.chunk, spec.size - chunk * spec.chunk)) if spec is not None else 0


def begins_all(route: Route, tensors: Sequence[int]) -> bool:
    """Say whether the edges of a route set all of `tensors`."""
    return bool((route.begins[np.array(tensors, np.int64)] != AT_BASE).all())
