"""The jobs that code the chunks of a save: they move the pools given to them, and return what they found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.coders.rowsort import Part
from lcstore.coders.tables import TableCache
from lcstore.dtypes import dtype_from_name
from lcstore.edges import grid
from lcstore.edges.algebra import ArrayName
from lcstore.edges.columns import ADD, EXACT, SET
from lcstore.edges.digests import Digests, digest_of
from lcstore.edges.frames import Chunk, frame_of_values, values_of_frame
from lcstore.edges.patterns import frame_of_patterns, patterns
from lcstore.frames.fill import working
from lcstore.frames.lossless import encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.layout.poolmap import Piece, PieceColumns, PoolMap
from lcstore.layout.specs import ALIGN
from lcstore.state.moments import is_fading
from lcstore.track.decide import Asked, Decision
from lcstore.track.fusedpass import Advance, Scratch
from lcstore.track.readonce import IN_CACHE, ReadOnce

#: The arrays of an edge that hold plain tensors, by the operation.
_PLAIN: Final[tuple[tuple[int, ArrayName], ...]] = (EXACT, "exact"), (SET, "set")

#: How to move the track back, one chunk after another. A job says how before it moves anything.
Journal: TypeAlias = list[Callable[[], None]]


class JobResult(NamedTuple):
    """What came of the coding of a chunk.

    Attributes
    ----------
    chunk
        The coded chunk; None where there is nothing to store.
    off_grid
        Tensors that do not fit their grid.
    not_finite
        Moments with NaN or infinity, which have the whole chunk kept bit for bit, and in how many values.
    """

    chunk: Chunk | None
    off_grid: set[int]
    not_finite: Sequence[tuple[int, int]] = ()


#: Codes one chunk. Jobs of a save may run side by side.
Work: TypeAlias = Callable[[Journal], JobResult]


@dataclass(frozen=True, eq=False)
class Coder:
    """What the jobs of one save share.

    Attributes
    ----------
    asked, decided
        The state, and what is done with it.
    pools
        By name: moved in place. One that is missing is not kept.
    fresh
        Pools that no commit stands on: nothing of them is worth a way back.
    maps
        By pool: which tensors lie where.
    digests
        Of what readers will get: complete once all jobs have run.
    tables, scratch
        Those of the handle.
    """

    asked: Asked
    decided: Decision
    pools: Mapping[str, Array]
    fresh: Set[str]
    maps: Mapping[str, PoolMap]
    digests: Digests
    tables: TableCache
    scratch: Scratch

    def jobs(self) -> Iterator[Work]:
        """Yield the jobs for what was decided, and those for the exact values if they are asked for."""
        ops, policy = self.decided.columns.op, self.asked.policy
        precisions = {"first_moment": policy.first_moment, "second_moment": policy.second_moment}
        for name, members in self.maps.items():
            role, chunks = members.pool.role, members.chunks_of
            of = {op: {t for t in members.tensors if ops[t] == op} for op in (ADD, SET, EXACT)}
            if role == "plain":
                yield from (partial(self.code_patterns, name, chunk) for chunk in chunks(of[ADD]))
                for op, array in _PLAIN:
                    plain = of[op]
                    yield from (
                        partial(self.code_plain, name, chunk, array, plain) for chunk in chunks(plain)
                    )
                continue
            yield from (partial(self.code_deltas, name, chunk) for chunk in chunks(of[ADD]))
            whole = {*members.tensors} if self.asked.exact else of[EXACT]
            yield from (partial(self.code_exact, name, chunk, whole) for chunk in chunks(whole))
            if role != "weights":
                code = partial(self.code_moments, name, tensors=of[SET], precision=precisions[role])
                yield from (partial(code, chunk) for chunk in chunks(of[SET]))

    def code_deltas(self, pool: str, chunk: int, journal: Journal) -> JobResult:
        """Code the tensors of a chunk that are added to, and move the track with them."""
        decided, (low, high) = self.decided, self.maps[pool].bounds(chunk)
        pieces = [piece for piece in self.maps[pool].pieces(chunk) if piece.tensor in decided.tables]
        block = min((decided.tables[piece.tensor].block for piece in pieces), default=ALIGN)
        moving = Advance(self.pools[pool][low:high], block, self.scratch)
        if pool not in self.fresh:
            journal.append(moving.undo)
        amounts = np.zeros(len(pieces), np.uint64)
        for number, piece in enumerate(pieces):
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
                return JobResult(None, {piece.tensor})
            amounts[number] = added
        self.digests.more(np.array([piece.tensor for piece in pieces], np.int64), amounts)
        data = moving.frame(self.tables)
        return JobResult(None if data is None else Chunk(pool, "add", chunk, data), set())

    def code_patterns(self, pool: str, chunk: int, journal: Journal) -> JobResult:
        """Code by how much the bit patterns of plain tensors in a chunk differ, and move the track there."""
        decided, (low, high) = self.decided, self.maps[pool].bounds(chunk)
        lies = self.maps[pool].pieces(chunk)
        lies = lies.where(decided.columns.op[lies.tensor] == ADD)
        pieces = [*lies]
        words = patterns(self.pools[pool][low:high])
        moves = np.zeros(words.size, words.dtype)
        for piece in pieces:
            here = slice(piece.at, piece.at + piece.size)
            np.subtract(patterns(self._part(piece)), words[here], out=moves[here])
        data = frame_of_patterns(moves)
        if data is not None and pool not in self.fresh:
            probes = [place for piece in pieces if (place := _first_moved(piece, moves)) is not None]
            journal.append(partial(_patterns_back, probes, words[[at for _, at in probes]], data, words))
        for piece in pieces:  # and nothing else: another job may be setting what lies between
            words[piece.at : piece.at + piece.size] += moves[piece.at : piece.at + piece.size]
        self.digests.add(lies, self.pools[pool][low:high])
        return JobResult(None if data is None else Chunk(pool, "add", chunk, data), set())

    def code_plain(
        self, pool: str, chunk: int, op: ArrayName, tensors: Set[int], journal: Journal
    ) -> JobResult:
        """Code the plain tensors of a chunk bit for bit, once they are laid into the track."""
        lies = self.maps[pool].pieces(chunk, tensors)
        track = self._room(lies, pool, chunk, journal)
        for piece in lies:
            track[piece.at : piece.at + piece.size] = self._part(piece)
        self.digests.add(lies, track)
        # Pieces that touch are one part: states have very many small tensors.
        values = Pieces(((low, track[low:high]) for low, high in lies.runs()), track.size, track.dtype)
        data = frame_of_values(values, "plain", None, self.tables).data
        return JobResult(Chunk(pool, op, chunk, data) if values.any_bit() else None, set())

    def code_moments(
        self, pool: str, chunk: int, journal: Journal, *, tensors: Set[int], precision: float | None
    ) -> JobResult:
        """Code moments, which have no track."""
        role, lies = self.asked.layout.pools[pool].role, self.maps[pool].pieces(chunk, tensors)
        kept = [*lies] if precision != 0 else []  # with no bits at all, they are dropped
        values = self._values(kept, pool, chunk)
        matrices = self._matrices(kept) if role == "second_moment" else ()
        fading = all(is_fading(self.asked.layout.tensors[piece.tensor].name) for piece in kept)
        made = frame_of_values(values, role, precision or None, self.tables, matrices, fading=fading)
        for start, part in made.decoded:
            self.digests.add(lies.within(start, start + part.size).moved(-start), part)
        stored = Chunk(pool, "set", chunk, made.data) if values.any_bit() else None
        return JobResult(stored, set(), () if made.fits else self._not_finite(kept))

    def _not_finite(self, pieces: Iterable[Piece]) -> Sequence[tuple[int, int]]:
        """Return how many values of each piece are not finite, of those where some are."""
        wide = ((piece.tensor, working(self._part(piece))) for piece in pieces)
        counts = ((tensor, int(np.count_nonzero(~np.isfinite(values)))) for tensor, values in wide)
        return [(tensor, count) for tensor, count in counts if count]

    def code_exact(self, pool: str, chunk: int, tensors: Set[int], journal: Journal) -> JobResult:
        """Code weights or moments bit for bit, and set the track to those that are to be set.

        The exact values of others are stored besides what readers get.
        """
        lies = self.maps[pool].pieces(chunk, tensors)
        chosen = self.decided.columns.op[lies.tensor] == EXACT
        track, fits = self._room(lies.where(chosen), pool, chunk, journal), chosen.copy()
        pieces, found = [*lies], np.zeros(len(lies), np.uint64)

        def seen(number: int, low: int, values: Array) -> None:
            if fits[number]:
                digest = self._set_grid(pieces[number], low, values, track)
                fits[number] = digest is not None
                found[number : number + 1] += digest or np.uint64(0)  # as arrays do, which wrap silently

        low, high = self.maps[pool].bounds(chunk)
        given = [(piece.at, self._part(piece)) for piece in pieces]
        values = ReadOnce(given, high - low, self._dtype(pool), seen)
        stored = Chunk(pool, "exact", chunk, encode_lossless(values)) if values.any_bit() else None
        self.digests.more(lies.tensor[fits], found[fits])
        return JobResult(stored, {*lies.tensor[chosen & ~fits].tolist()})

    def _values(self, pieces: Iterable[Piece], pool: str, chunk: int) -> Pieces:
        low, high = self.maps[pool].bounds(chunk)
        return Pieces(((piece.at, self._part(piece)) for piece in pieces), high - low, self._dtype(pool))

    def _dtype(self, pool: str) -> np.dtype:
        return dtype_from_name(self.asked.layout.pools[pool].dtype)

    def _part(self, piece: Piece) -> Array:
        return self.asked.arrays[piece.tensor][piece.first : piece.first + piece.size]

    def _matrices(self, pieces: Iterable[Piece]) -> Sequence[Part]:
        """Return where the pieces of a chunk lie in their tensors, taken as matrices."""
        parts = []
        for piece in pieces:
            cols = math.prod(self.asked.layout.tensors[piece.tensor].shape[1:])
            parts.append(Part(piece.at, piece.size, cols, piece.first % cols))
        return parts

    def _set_grid(self, piece: Piece, low: int, values: Array, track: Array) -> np.uint64 | None:
        """Set the track from an element of a piece on to exact values, rounded; return their digest.

        It is None where they do not fit their grid.
        """
        unit, spec = int(self.decided.columns.grid[piece.tensor]), self.asked.layout.tensors[piece.tensor]
        out = track[piece.at + low : piece.at + low + values.size]
        fits = grid.to_grid(values, unit, out, spec.dtype)
        return digest_of(spec, out, piece.first + low) if fits else None

    def _room(self, lies: PieceColumns, pool: str, chunk: int, journal: Journal) -> Array:
        """Return a chunk of the track, of which some pieces are to be overwritten.

        The way back keeps what was there.
        """
        low, high = self.maps[pool].bounds(chunk)
        if pool not in self.pools:
            return np.empty(high - low, grid.pool_dtype(self.asked.layout.pools[pool]))
        track = self.pools[pool][low:high]
        for begin, end in lies.runs() if pool not in self.fresh else ():
            journal.append(partial(np.copyto, track[begin:end], track[begin:end].copy()))
        return track


def _first_moved(piece: Piece, moves: Array) -> tuple[Piece, int] | None:
    """Return a piece, and the place of the first of its elements that moves; None where none does."""
    for low in range(piece.at, piece.at + piece.size, IN_CACHE):
        some = moves[low : min(low + IN_CACHE, piece.at + piece.size)]
        if some.any():
            return piece, low + int(np.argmax(some != 0))
    return None


def _patterns_back(probes: Sequence[tuple[Piece, int]], before: Array, data: Buffer, words: Array) -> None:
    """Put plain tensors back by what a frame says that they move, if they were moved yet.

    One element of each, as it was `before`, tells: the caller's arrays may have changed since.
    """
    moves = values_of_frame(data, words.size, words.dtype)
    for (piece, at), was in zip(probes, before, strict=True):
        if words[at] != was:
            words[piece.at : piece.at + piece.size] -= moves[piece.at : piece.at + piece.size]
