"""The jobs that code the chunks of a save: they move the pools given to them, and return what they found."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.codec.dtypes import dtype_from_name
from lcstore.codec.factored import Part
from lcstore.codec.pieces import Pieces
from lcstore.coders.tables import TableCache
from lcstore.edges import grid
from lcstore.edges.algebra import ArrayName
from lcstore.edges.columns import ADD, EXACT, KEEP, SET
from lcstore.edges.digests import digest_of
from lcstore.edges.frames import Chunk, frame_of_values, values_of_frame
from lcstore.edges.patterns import frame_of_patterns, patterns
from lcstore.layout.poolmap import Piece, PoolMap
from lcstore.layout.specs import ALIGN
from lcstore.state.moments import is_fading
from lcstore.track.decide import Asked, Decision
from lcstore.track.fusedpass import Advance, Scratch

#: Elements that are rounded, and then digested, at a time.
_IN_CACHE: Final = 1 << 16

#: How to move the track back, one chunk after another. A job says how before it moves anything.
Journal: TypeAlias = list[Callable[[], None]]


class Coded(NamedTuple):
    """What a job has found.

    Attributes
    ----------
    chunk
        None where there is nothing to store.
    digests
        By tensor, what is to be added to its digest.
    off_grid
        Tensors that do not fit their grid.
    """

    chunk: Chunk | None
    digests: list[tuple[int, np.uint64]]
    off_grid: set[int]


#: Codes one chunk. Jobs of a save may run side by side.
Work: TypeAlias = Callable[[Journal], Coded]


@dataclass(frozen=True, eq=False)
class Coder:
    """What the jobs of one save share.

    Attributes
    ----------
    asked, decided
        The state, and what is done with it.
    pools
        By name: moved in place.
    fresh
        Pools that no commit stands on: nothing of them is worth a way back.
    maps
        By pool: which tensors lie where.
    tables, scratch
        Those of the handle.
    """

    asked: Asked
    decided: Decision
    pools: Mapping[str, Array]
    fresh: Set[str]
    maps: Mapping[str, PoolMap]
    tables: TableCache
    scratch: Scratch

    def jobs(self) -> Iterator[Work]:
        """Yield the jobs for what was decided, and those for the exact values if they are asked for."""
        ops, policy = self.decided.columns.op, self.asked.policy
        precisions = {"first_moment": policy.first_moment, "second_moment": policy.second_moment}
        for name, members in self.maps.items():
            role = members.pool.role
            of = {op: {t for t in members.tensors if ops[t] == op} for op in (KEEP, ADD, SET, EXACT)}
            code = self.code_patterns if role == "plain" else self.code_deltas
            for chunk in members.chunks_of(of[ADD]):
                yield partial(code, name, chunk)
            whole = of[EXACT]
            if self.asked.exact and role != "plain":
                whole = {*members.tensors}
            for chunk in members.chunks_of(whole):
                yield partial(self.code_values, name, chunk, "exact", whole, None)
            for chunk in members.chunks_of(of[SET]) if role != "weights" else ():
                yield partial(self.code_values, name, chunk, "set", of[SET], precisions.get(role))

    def code_deltas(self, pool: str, chunk: int, journal: Journal) -> Coded:
        """Code the tensors of a chunk that are added to, and move the track with them."""
        decided, (low, high) = self.decided, self.maps[pool].bounds(chunk)
        pieces = [piece for piece in self.maps[pool].pieces(chunk) if piece.tensor in decided.tables]
        block = min((decided.tables[piece.tensor].block for piece in pieces), default=ALIGN)
        moving = Advance(self.pools[pool][low:high], block, self.scratch)
        if pool not in self.fresh:
            journal.append(moving.undo)
        digests = []
        for piece in pieces:
            spec = self.asked.layout.tensors[piece.tensor]
            added = moving.over(
                piece,
                spec,
                self.asked.arrays[piece.tensor],
                int(decided.columns.grid[piece.tensor]),
                decided.tables[piece.tensor],
                self.asked.touched.get(spec.name),
            )
            if added is None:
                moving.undo()  # now: the levels of many chunks would be larger than their track
                return Coded(None, [], {piece.tensor})
            digests.append((piece.tensor, added))
        data = moving.frame(self.tables)
        return Coded(None if data is None else Chunk(pool, "add", chunk, data), digests, set())

    def code_patterns(self, pool: str, chunk: int, journal: Journal) -> Coded:
        """Code by how much the bit patterns of plain tensors in a chunk differ, and move the track there."""
        decided, (low, high) = self.decided, self.maps[pool].bounds(chunk)
        pieces = [p for p in self.maps[pool].pieces(chunk) if decided.columns.op[p.tensor] == ADD]
        words = patterns(self.pools[pool][low:high])
        moves = np.zeros(words.size, words.dtype)
        for piece in pieces:
            here = slice(piece.at, piece.at + piece.size)
            np.subtract(patterns(self._part(piece)), words[here], out=moves[here])
        data = frame_of_patterns(moves)
        if data is not None and pool not in self.fresh:
            journal.append(partial(self._patterns_back, pieces, data, words))
        for piece in pieces:  # and nothing else: another job may be setting what lies between
            words[piece.at : piece.at + piece.size] += moves[piece.at : piece.at + piece.size]
        digests = [(p.tensor, self._digest(p.tensor, self._part(p), p.first)) for p in pieces]
        return Coded(None if data is None else Chunk(pool, "add", chunk, data), digests, set())

    def _patterns_back(self, pieces: Sequence[Piece], data: Buffer, words: Array) -> None:
        """Put plain tensors back to what a frame says they differ from, whether moved yet or not."""
        moves = values_of_frame(data, words.size, words.dtype)
        for piece in pieces:
            here = slice(piece.at, piece.at + piece.size)
            np.subtract(patterns(self._part(piece)), moves[here], out=words[here])

    def code_values(
        self,
        pool: str,
        chunk: int,
        op: ArrayName,
        tensors: Set[int],
        precision: float | None,
        journal: Journal,
    ) -> Coded:
        """Code those of `tensors` that a chunk holds as values; set the track to them where they have one."""
        spec, (low, high) = self.asked.layout.pools[pool], self.maps[pool].bounds(chunk)
        pieces = [*self.maps[pool].pieces(chunk, tensors)]
        kept = pieces if precision != 0 else ()  # with no bits at all, they are dropped
        values = Pieces(
            ((piece.at, self._part(piece)) for piece in kept), high - low, dtype_from_name(spec.dtype)
        )
        matrices = self._matrices(kept) if spec.role == "second_moment" else ()
        fading = all(is_fading(self.asked.layout.tensors[piece.tensor].name) for piece in kept)
        made = frame_of_values(values, spec.role, precision or None, self.tables, matrices, fading=fading)
        stored = Chunk(pool, op, chunk, made.data) if values.any_bit() else None
        if op == "set" or spec.role == "plain":
            for piece in pieces if pool in self.pools else ():
                self._place(piece, pool, low, journal)[:] = self._part(piece)
            return Coded(stored, self._digests(pieces, made.decoded), set())
        digests, off_grid = [], set()
        for piece in pieces:
            if self.decided.columns.op[piece.tensor] != EXACT:
                continue  # its exact value is stored besides what readers get
            found = self._set_grid(piece, self._place(piece, pool, low, journal))
            if found is None:
                off_grid.add(piece.tensor)
            else:
                digests += found
        return Coded(stored, digests, off_grid)

    def _part(self, piece: Piece) -> Array:
        return self.asked.arrays[piece.tensor][piece.first : piece.first + piece.size]

    def _matrices(self, pieces: Iterable[Piece]) -> Sequence[Part]:
        """Return where the pieces of a chunk lie in their tensors, taken as matrices."""
        parts = []
        for piece in pieces:
            cols = math.prod(self.asked.layout.tensors[piece.tensor].shape[1:])
            parts.append(Part(piece.at, piece.size, cols, piece.first % cols))
        return parts

    def _digests(
        self, pieces: Sequence[Piece], decoded: Iterable[tuple[int, Array]]
    ) -> list[tuple[int, np.uint64]]:
        """Return the digests of the pieces of a chunk, in parts, from what its frame decodes to."""
        begins = [piece.at for piece in pieces]
        ends = [piece.at + piece.size for piece in pieces]
        digests = []
        for start, values in decoded:
            for piece in pieces[bisect_right(ends, start) : bisect_left(begins, start + values.size)]:
                low, high = max(piece.at, start), min(piece.at + piece.size, start + values.size)
                part = values[low - start : high - start]
                digests.append((piece.tensor, self._digest(piece.tensor, part, piece.first + low - piece.at)))
        return digests

    def _digest(self, tensor: int, values: Array, first: int) -> np.uint64:
        return digest_of(self.asked.layout.tensors[tensor], values, first)

    def _set_grid(self, piece: Piece, out: Array) -> list[tuple[int, np.uint64]] | None:
        """Set the track of a piece to its exact value, rounded; return its digest in parts.

        None where it does not fit its grid. What was rounded is still in cache when its digest is taken.
        """
        unit, spec = int(self.decided.columns.grid[piece.tensor]), self.asked.layout.tensors[piece.tensor]
        values, digests = self._part(piece), []
        for low in range(0, piece.size, _IN_CACHE):
            here = slice(low, low + _IN_CACHE)
            if not grid.to_grid(values[here], unit, out[here], spec.dtype):
                return None
            digests.append((piece.tensor, digest_of(spec, out[here], piece.first + low)))
        return digests

    def _place(self, piece: Piece, pool: str, low: int, journal: Journal) -> Array:
        """Return the piece's place in the pool, to be overwritten; the way back keeps what was there."""
        part = self.pools[pool][low + piece.at : low + piece.at + piece.size]
        if pool not in self.fresh:
            journal.append(partial(np.copyto, part, part.copy()))
        return part
