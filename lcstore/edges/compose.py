"""Edges along a path, put together: the values of a node, or the track that stands on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NoReturn

import numpy as np

from lcstore.arrays import Array
from lcstore.edges import grid
from lcstore.edges.algebra import LOST, ArrayName, Start
from lcstore.edges.blocks import blocks
from lcstore.edges.columns import NO_GRID, Columns
from lcstore.edges.digests import Digests, digest_of
from lcstore.edges.edge import Edge, Span, composed_dtype, to_track
from lcstore.edges.path import Path
from lcstore.errors import CorruptionError
from lcstore.layout.layout import Layout
from lcstore.layout.poolmap import Piece, PieceColumns
from lcstore.limits import zeros
from lcstore.once import once

#: Elements from which on a piece is rounded by itself, to where it belongs.
_LARGE: Final = 4096


class Composer:
    """Composes the edges of one path, chunk by chunk.

    Parameters
    ----------
    edges
        From the root, or from the node whose tracks `start` holds, to the node.
    layout, columns
        The node's own.
    wanted
        Tensors of the layout.
    window
        Compose only these elements, first and behind the last, of the one wanted tensor.
    start
        Composed before, all of it: the tracks that the path begins with. They are handed over with `jobs`.

    Attributes
    ----------
    path
        The edges.
    pools
        By name, what is composed: integers of the grid, or values. At least as long as the pool; of a window
        the chunks that hold it.

    Raises
    ------
    CorruptionError
        An edge says of a tensor what cannot be.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        layout: Layout,
        columns: Columns,
        wanted: Iterable[int],
        *,
        window: Span | None = None,
        start: Composer | None = None,
    ) -> None:
        self.layout = layout
        self.columns = columns
        self.window = window
        self.path = Path(edges, layout, wanted, None if start is None else start.as_start)
        self.pools: dict[str, Array] = {}
        self._first = 0
        self._start = start
        self._anew: Path | None = None
        self._digests = Digests(layout)

    @property
    def as_start(self) -> Start:
        """The node as the start of another path, once the jobs have run."""
        return Start.of(self.layout, self.path.wanted)

    @property
    def edges_applied(self) -> int:
        """How many edges are added, taken back or composed for tensors of weights."""
        return self.path.length + (self._anew.length if self._anew is not None else 0)

    def compose_anew(self, path: Path) -> None:
        """Compose tensors that are lost on the path along another one to the same node.

        Raises
        ------
        CorruptionError
            Nothing on it sets one of them.
        """
        path.check()
        self._anew = path

    def check(self) -> None:
        """Check that something leads to all wanted tensors.

        Raises
        ------
        CorruptionError
            Nothing does.
        """
        if self._anew is None:
            self.path.check()

    def jobs(self) -> list[Callable[[], None]]:
        """List the jobs, one per chunk that holds a wanted tensor; they may run side by side.

        Raises
        ------
        CorruptionError
            Nothing leads to a wanted tensor.
        """
        self.check()
        self._make_room()
        return [
            partial(self._compose, pool, chunk, pieces)
            for pool, chunk, pieces in self.path.chunks(window=self.window)
        ]

    def taking(self, exact: Mapping[int, Array]) -> list[Callable[[], None]]:
        """Hold also tensors that the node's own edge sets as `EXACT`; list the jobs that fill their tracks.

        What was composed lies in the same chunks, so these jobs run behind those of `jobs`.

        Parameters
        ----------
        exact
            Their exact flat values.
        """
        self.path.wanted = np.union1d(self.path.wanted, np.array([*exact], np.int64))
        for name in self._names():
            if name not in self.pools:
                self.pools[name] = self._room(name, None)
        return [partial(self._take, tensor, values) for tensor, values in exact.items()]

    def _take(self, tensor: int, values: Array) -> None:
        spec = self.layout.tensors[tensor]
        track = self.pools[spec.pool][spec.offset : spec.offset + spec.size]
        whole = PieceColumns.of([Piece(tensor, 0, 0, spec.size)])
        to_track(self.layout, self.columns, whole, values, track)

    def _make_room(self) -> None:
        before, self._start = self._start.pools if self._start is not None else {}, None
        for name in self._names():
            self.pools[name] = self._room(name, before.pop(name, None))

    def fetches(self) -> Iterator[tuple[Edge, str, ArrayName, int]]:
        """Yield what the jobs get, about in the order in which they do: edge, pool, array, chunk."""
        for pool, chunk, pieces in self.path.chunks(window=self.window):
            for edge, array in self.needs(pieces):
                yield edge, pool, array, chunk

    def needs(self, pieces: PieceColumns) -> Iterator[tuple[Edge, ArrayName]]:
        """Yield of which edge and array a chunk is got for some pieces of it, about in that order."""
        yield from self.path.needs(pieces)
        if self._anew is not None:
            yield from self._anew.needs(self._lost(pieces))

    def _lost(self, pieces: PieceColumns) -> PieceColumns:
        """Return the pieces to which the path does not lead."""
        return pieces.where(self.path.begins[pieces.tensor] == LOST)

    def _names(self) -> list[str]:
        pools = [*self.layout.pools]
        return [pools[number] for number in np.unique(self.layout.places.pool[self.path.wanted]).tolist()]

    @property
    def nbytes(self) -> int:
        """Bytes of what `jobs` makes room for."""
        extents = ((name, self._extent(self._size(name))) for name in self._names())
        return sum(
            (high - low) * composed_dtype(self.layout.pools[name]).itemsize for name, (low, high) in extents
        )

    def _size(self, name: str) -> int:
        """Return the elements of a pool: on the way it may be longer than in the end."""
        pools = [edge.layout.pools[name] for edge in self.path.edges if name in edge.layout.pools]
        return max(pool.size for pool in (self.layout.pools[name], *pools))

    def _room(self, name: str, held: Array | None) -> Array:
        """Return room for a pool, with what is held of it."""
        size = self._size(name)
        if held is None:
            first, behind = self._extent(size)
            return zeros(behind - first, composed_dtype(self.layout.pools[name]))
        return np.concatenate((held, np.zeros(size - held.size, held.dtype))) if held.size < size else held

    def _extent(self, size: int) -> Span:
        """Return which elements of a pool there is room for: those of all chunks of the window, or all."""
        if self.window is None:
            return 0, size
        spec = self.layout.tensors[self.path.wanted[0]]
        chunk = self.layout.pools[spec.pool].chunk
        low, high = (spec.offset + at for at in self.window)
        self._first = low // chunk * chunk
        return self._first, max(self._first, min(size, -(-high // chunk) * chunk))

    def _span(self, pool: str, chunk: int) -> Span | None:
        """Return the elements of a chunk that the window needs; None without one."""
        if self.window is None:
            return None
        low, high = self.layout.maps[pool].bounds(chunk)
        begin, end = (self.layout.tensors[self.path.wanted[0]].offset - low + at for at in self.window)
        return max(0, begin), min(end, high - low)

    def _compose(self, pool: str, chunk: int, pieces: PieceColumns) -> None:
        self._apply(pool, chunk, pieces, self._held_of(pool, chunk))

    def _held_of(self, pool: str, chunk: int) -> Array:
        """Return the room of a chunk in its pool."""
        size = self.layout.pools[pool].chunk
        first = chunk * size - self._first
        return self.pools[pool][first : first + size]

    def chunk(self, pool: str, chunk: int, pieces: PieceColumns) -> Array:
        """Return what some pieces of a chunk come to, in an array of the chunk; the rest means nothing."""
        out = zeros(self.path.longest(pool, chunk), composed_dtype(self.layout.pools[pool]))
        self._apply(pool, chunk, pieces, out)
        return out

    def filling(self, out: Mapping[int, Array], *, keep: bool = False) -> list[Callable[[], None]]:
        """List jobs, one per chunk, that fill the flat values of wanted tensors; then `check_filled`.

        Each block is composed, digested and rounded while it is in cache.

        Parameters
        ----------
        out
            Memory for the values of a tensor, in its dtype. Wanted tensors that are not here are digested.
        keep
            Whether `pools` is to hold the track then. Nothing of it is kept otherwise.

        Raises
        ------
        CorruptionError
            Nothing leads to a wanted tensor.
        """
        self.check()
        if keep:
            self._make_room()
        filled = np.zeros(len(self.layout.tensors), bool)
        filled[[*out]] = True
        return [
            partial(self._fill, pool, chunk, pieces, pieces.where(filled[pieces.tensor]), out)
            for pool, chunk, pieces in self.path.chunks()
        ]

    def check_filled(self) -> None:
        """Check the digests of all wanted tensors, once the jobs of `filling` have run.

        Raises
        ------
        CorruptionError
            One is not the one committed: what was filled is not to be used.
        """
        wanted = self.path.wanted
        wrong = wanted[self._digests.found[wanted] != self.columns.digest[wanted]]
        if wrong.size:
            self._refuse(int(wrong[0]))

    def _fill(
        self, pool: str, chunk: int, pieces: PieceColumns, filled: PieceColumns, out: Mapping[int, Array]
    ) -> None:
        for low, part in self._blocks(pool, chunk, pieces):
            high = low + part.size
            self._digests.add(pieces.within(low, high).moved(-low), part)
            self._give(filled.within(low, high).moved(-low), part, out)

    def _give(self, pieces: PieceColumns, part: Array, out: Mapping[int, Array]) -> None:
        """Fill what pieces of a part of one chunk stand for: many small ones are rounded together."""
        together = self.layout.weights[pieces.tensor] & (pieces.size < _LARGE)
        for tensor, first, at, size in pieces.where(~together):
            self._round(tensor, part[at : at + size], out[tensor][first : first + size])
        small = pieces.where(together)
        if not len(small):
            return
        dtype = self.layout.tensors[int(small.tensor[0])].dtype
        values = grid.empty_values(int(small.size.sum()), dtype)
        grid.from_grids(part, small, self._units[small.tensor], dtype, values)
        begin = 0
        columns = small.tensor, small.first, small.size
        for tensor, first, size in zip(*(column.tolist() for column in columns), strict=True):
            out[tensor][first : first + size] = values[begin : begin + size]
            begin += size

    def _blocks(self, pool: str, chunk: int, pieces: PieceColumns) -> Iterator[tuple[int, Array]]:
        held = self._held_of(pool, chunk) if pool in self.pools else None
        if self._anew is None or not len(self._lost(pieces)):
            yield from self.path.blocks(pool, chunk, pieces, held)
            return
        if held is None:
            held = self.chunk(pool, chunk, pieces)
        else:
            self._apply(pool, chunk, pieces, held)
        for low, high in blocks(0, held.size, held.size):
            yield low, held[low:high]

    def _apply(self, pool: str, chunk: int, pieces: PieceColumns, out: Array) -> None:
        self.path.apply(pool, chunk, pieces, out, self._span(pool, chunk))
        lost = self._lost(pieces)
        if self._anew is None or not len(lost):
            return
        # Apart, for what is composed adds to its neighbours in the chunk as well.
        composed = np.zeros(self._anew.longest(pool, chunk), out.dtype)
        self._anew.apply(pool, chunk, lost, composed)
        for low, high in lost.runs():
            out[low:high] = composed[low:high]

    def values(self, tensor: int) -> Array:
        """Return the flat track value of a wanted tensor, in its dtype, once the jobs have run.

        Of a window only its elements; their digest cannot be proved then (their objects were checked).

        Raises
        ------
        CorruptionError
            Its digest is not the committed one.
        """
        spec = self.layout.tensors[tensor]
        low, high = self.window or (0, spec.size)
        held = self.pools[spec.pool][spec.offset + low - self._first : spec.offset + high - self._first]
        return self.proved(tensor, held) if self.window is None else self.rounded(tensor, held)

    def proved(self, tensor: int, track: Array) -> Array:
        """Return the flat value of which this is the track, as `values` does, and check its digest."""
        if digest_of(self.layout.tensors[tensor], track) != self.columns.digest[tensor]:
            self._refuse(tensor)
        return self.rounded(tensor, track)

    def _refuse(self, tensor: int) -> NoReturn:
        name = self.layout.tensors[tensor].name
        raise CorruptionError(f"the digest of tensor {name!r} is not the one committed")

    def rounded(self, tensor: int, track: Array) -> Array:
        """Return values of a tensor, in its dtype, and of memory of their own."""
        out = grid.empty_values(track.size, self.layout.tensors[tensor].dtype)
        self._round(tensor, track, out)
        return out

    def _round(self, tensor: int, track: Array, out: Array) -> None:
        """Fill `out` with the values that a track stands for."""
        spec = self.layout.tensors[tensor]
        if spec.role != "weights":
            out[:] = track
            return
        grid.from_grid(track, int(self._units[tensor]), spec.dtype, out)

    @once
    def _units(self) -> Array:
        return np.where(self.columns.grid == NO_GRID, 0, self.columns.grid)
