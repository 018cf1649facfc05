"""One save in the making: what each tensor does, the jobs that code the chunks, and the way back.

Coding moves the track. A draft that is not committed is rolled back: coded deltas are subtracted (integers,
so exactly), overwritten values are put back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.codec.factored import Part
from lcstore.state.layout import ALIGN, Layout
from lcstore.state.names import Name
from lcstore.state.poolmap import Piece, PoolMap
from lcstore.track import grid, samples
from lcstore.track.advance import Advance
from lcstore.track.blocksteps import BlockSteps
from lcstore.track.columns import ADD, EXACT, KEEP, NO_GRID, SET, Columns, OpName
from lcstore.track.digests import digest_of
from lcstore.track.frames import apply_delta, frame_of_levels, frame_of_values, gather, values_of_frame
from lcstore.track.policy import Policy
from lcstore.track.rate import Rate
from lcstore.track.steps import Step

if TYPE_CHECKING:
    from lcstore.track.track import Track


@dataclass(frozen=True)
class Chunk:
    """A coded chunk: which array of the edge, which of its chunks, its bytes."""

    pool: str
    op: OpName
    index: int
    data: bytes


#: Codes one chunk; None where there is nothing to store. Jobs of a draft may run side by side.
Job: TypeAlias = Callable[[], Chunk | None]


@dataclass
class Draft:
    """A save that is not committed yet. Made by `Track.draft`.

    Attributes
    ----------
    layout, columns
        Of the new node. The columns' digests are complete once every job has run.
    jobs
        Run each once, in any order or side by side; then `commit` or `roll_back`.
    rate
        What the track is to remember of its rate once this is committed.
    factor
        What the policy's errors are multiplied with.
    shares
        What errors of single tensors are multiplied with besides.
    errors
        Tracking error aimed at for each tensor that is added to.
    finer
        Of tensors with steps of their own in some blocks: for each block, by how many octaves they are finer.
    by_row
        Of tensors with rows that need finer steps: the step of each block, in place of all that.
    looked
        The tensors that the worst row is looked for in.
    touched
        Of tensors of which only some elements changed: ``int64[r, 2]``, ranges of them, rising and apart.
    coded
        Bytes coded so far.
    off_grid
        Tensors found not to fit their grid. If there are any, the draft can only be rolled back.
    astray
        Whether what was moved could not be moved back: even rolled back, the track is nobody's.
    """

    track: Track
    layout: Layout
    arrays: Sequence[Array]
    columns: Columns
    pools: dict[str, Array]
    maps: dict[str, PoolMap]
    policy: Policy
    rate: Rate
    factor: float = 1.0
    shares: dict[int, float] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    steps: dict[int, Step] = field(default_factory=dict)
    errors: dict[int, float] = field(default_factory=dict)
    finer: dict[int, Array] = field(default_factory=dict)
    by_row: dict[int, BlockSteps] = field(default_factory=dict)
    looked: set[int] = field(default_factory=set)
    touched: dict[int, Array] = field(default_factory=dict)
    coded: int = 0
    samples: dict[int, Array] = field(default_factory=dict)
    off_grid: set[int] = field(default_factory=set)
    astray: bool = False
    _moved: list[tuple[Array, bytes]] = field(default_factory=list)
    _replaced: list[tuple[Array, Array]] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)

    def commit(self) -> None:
        """Make the draft the track's state: what it coded is committed."""
        self.track.accept(self)
        self._let_go()

    def roll_back(self) -> None:
        """Put the track back to where it was before the draft, unless it went `astray`."""
        for part, data in reversed(self._moved):
            apply_delta(data, part, -1)
        for part, before in reversed(self._replaced):
            part[:] = before
        self._let_go()

    def keep(self) -> None:
        """Forget the way back: whether the draft is committed will be found out later."""
        self._let_go()

    def _let_go(self) -> None:
        """Drop what is not needed any more; the jobs and the draft hold each other, and the user's state."""
        self.jobs.clear()
        self._moved.clear()
        self._replaced.clear()
        self.arrays = ()

    def tracking(self) -> tuple[float, float]:
        """Estimate tracking error and lag on the samples, both in intervals (NaN where nothing moved)."""
        error = moved = along = 0.0
        for tensor, now in self.samples.items():
            before = self.track.samples.get(self.layout.tensors[tensor].name)
            if self.columns.op[tensor] != ADD or before is None or not now.size:
                continue
            spec = self.layout.tensors[tensor]
            pool = self.pools[spec.pool][spec.offset : spec.offset + spec.size]
            unit = math.ldexp(1.0, int(self.columns.grid[tensor]))
            sums = samples.residuals(pool, unit, now, before)
            weight = spec.size / now.size
            error += weight * sums[0]
            moved += weight * sums[1]
            along += weight * sums[2]
        return (math.sqrt(error / moved), along / moved) if moved > 0 else (math.nan, math.nan)

    def worst_row(self) -> tuple[float, Name] | None:
        """Return the largest relative error among some rows, and its tensor; None where none are watched."""
        return self.rate.rows.worst(self)

    # Jobs -----------------------------------------------------------------------------------------------

    def code_deltas(self, pool: str, chunk: int) -> Chunk | None:
        """Code the tensors of a chunk that are added to, and move the track with them."""
        pieces, (low, high) = self.maps[pool].pieces(chunk), self.maps[pool].bounds(chunk)
        with self.track.scratch.levels(high - low) as (levels, escapes):
            data = self._code_levels(pieces, self.pools[pool][low:high], levels, escapes)
        return None if data is None else self._count(Chunk(pool, "add", chunk, data))

    def _count(self, chunk: Chunk) -> Chunk:
        with self._lock:
            self.coded += len(chunk.data)
        return chunk

    def _code_levels(
        self, pieces: Iterable[Piece], track: Array, levels: Array, escapes: Array
    ) -> bytes | None:
        pieces = [piece for piece in pieces if self.columns.op[piece.tensor] == ADD]
        own = (self.by_row[piece.tensor].block for piece in pieces if piece.tensor in self.by_row)
        block = min(own, default=ALIGN)
        scales = np.zeros(-(-levels.size // block), np.int16)
        moving = Advance(self, track, levels, escapes, scales, block)
        try:
            for piece in pieces:
                if not moving.over(piece):
                    with self._lock:
                        self.off_grid.add(piece.tensor)
                    self._undo(moving)
                    return None
                self._add_digest(piece.tensor, moving.digest)
            coded = escapes[: moving.escaped]
            data = frame_of_levels(levels, coded, scales, block, track.dtype, self.track.tables)
            if data is not None:
                self._moved.append((track, data))  # one step, and the last: no lock is needed
        except BaseException:  # short of memory, say: the way back knows only what came to be a frame
            self._undo(moving)
            raise
        return data

    def _undo(self, moving: Advance) -> None:
        try:
            moving.undo()
        except BaseException:  # short of memory still
            self.astray = True
            raise

    def code_values(
        self, pool: str, chunk: int, op: OpName, tensors: set[int], precision: float | None
    ) -> Chunk | None:
        """Code those of `tensors` that a chunk holds as values; set the track to them where they have one."""
        spec, (low, high) = self.layout.pools[pool], self.maps[pool].bounds(chunk)
        pieces = [p for p in self.maps[pool].pieces(chunk) if p.tensor in tensors]
        dtype = dtype_from_name(spec.dtype)
        values = gather([(self._part(p), p.at) for p in pieces], high - low, dtype)
        if precision == 0:
            values[:] = 0  # dropped
        data = frame_of_values(
            values, spec.role, precision or None, self.track.tables, self._matrices(pieces)
        )
        if spec.role == "weights" and op == "exact":
            for piece in pieces:
                if self.columns.op[piece.tensor] == EXACT:
                    self._set_grid(piece, pool, low)
        elif op == "set":
            coded = values if not precision else values_of_frame(data, values.size, dtype)
            for piece in pieces:
                part = coded[piece.at : piece.at + piece.size]
                self._digest_values(piece, part)
                if pool in self.pools:
                    self._to_replace(piece, pool, low)[:] = part
        if not values.view(np.uint8).any():
            return None
        made = Chunk(pool, op, chunk, data)
        return made if op == "exact" else self._count(made)  # exact values are no part of a delta

    def _matrices(self, pieces: Iterable[Piece]) -> list[Part]:
        """Return where the pieces of a chunk lie in their tensors, taken as matrices."""
        parts = []
        for piece in pieces:
            shape = self.layout.tensors[piece.tensor].shape
            cols = math.prod(shape[1:])
            parts.append(Part(piece.at, piece.size, cols, piece.first % cols))
        return parts

    def _part(self, piece: Piece) -> Array:
        return self.arrays[piece.tensor][piece.first : piece.first + piece.size]

    def _set_grid(self, piece: Piece, pool: str, low: int) -> None:
        name = self.layout.tensors[piece.tensor].dtype
        out = self._to_replace(piece, pool, low)
        if not grid.to_grid(self._part(piece), int(self.columns.grid[piece.tensor]), out, name):
            with self._lock:
                self.off_grid.add(piece.tensor)
            return
        self._add_digest(piece.tensor, digest_of(self.layout.tensors[piece.tensor], out, piece.first))

    def _digest_values(self, piece: Piece, values: Array) -> None:
        self._add_digest(piece.tensor, digest_of(self.layout.tensors[piece.tensor], values, piece.first))

    def _to_replace(self, piece: Piece, pool: str, low: int) -> Array:
        """Give the piece's place in the pool, to be overwritten; what was there is kept for the way back."""
        part = self.pools[pool][low + piece.at : low + piece.at + piece.size]
        if self.pools[pool] is self.track.pools.get(pool):  # else the track has its own still
            before = part.copy()
            with self._lock:
                self._replaced.append((part, before))
        return part

    def _add_digest(self, tensor: int, amount: np.uint64) -> None:
        with self._lock, np.errstate(over="ignore"):
            self.columns.digest[tensor] += amount

    # Making the list of jobs ------------------------------------------------------------------------------

    def list_jobs(self, exact: bool) -> None:
        """List the jobs for what the columns say; with `exact`, also those for the exact values."""
        ops = self.columns.op
        for name, tensors in self.maps.items():
            role = self.layout.pools[name].role
            of = {op: {t for t in tensors.tensors if ops[t] == op} for op in (ADD, SET, EXACT)}
            for chunk in tensors.chunks_of(of[ADD]):
                self.jobs.append(partial(self.code_deltas, name, chunk))
            rest = (
                {t for t in tensors.tensors if ops[t] in (ADD, SET, KEEP)}
                if exact and role != "plain"
                else set()
            )
            whole = of[EXACT] | rest
            for chunk in tensors.chunks_of(whole):
                self.jobs.append(partial(self.code_values, name, chunk, "exact", whole, None))
            precision = {
                "first_moment": self.policy.first_moment,
                "second_moment": self.policy.second_moment,
            }.get(role)
            for chunk in tensors.chunks_of(of[SET]) if role != "weights" else ():
                self.jobs.append(partial(self.code_values, name, chunk, "set", of[SET], precision))


__all__ = ["NO_GRID", "Chunk", "Draft", "Job"]
