"""Edges along a path, merged into one that leads from its first node to its last: a shortcut, or an anchor.

Nothing is rounded: merged deltas are exact sums of integers on the grid, on the finest step among them. What
the target's own edge sets is not repeated; the shortcut leaves it to that edge (`OWN`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.lossless import encode_lossless
from lcstore.errors import CorruptionError
from lcstore.state.layout import Layout
from lcstore.track.columns import ADD, EXACT, KEEP, OWN, SET, SET_GRID, Columns, OpName
from lcstore.track.compose import composed_dtype
from lcstore.track.digests import digest_integers, digest_values
from lcstore.track.draft import Chunk
from lcstore.track.edge import Edge
from lcstore.track.frames import values_of_frame
from lcstore.track.poolmap import Piece
from lcstore.track.route import AT_BASE, Route
from lcstore.track.steps import log2_of
from lcstore.track.sums import frame_of_sums

#: Merges one chunk; gives what is to be stored of it: nothing, its `add`, its `set`, or both.
MergeJob: TypeAlias = Callable[[], list[Chunk]]

#: Most bytes that a job holds: in those of a chunk as it is composed, and besides.
_CHUNKS_HELD: Final = 6
_HELD_BESIDES: Final = 16 << 20
_NO_STEP: Final = 255


class Merger:
    """Merges the edges of one path. Jobs may run side by side.

    Parameters
    ----------
    edges
        From the base to the target, at least one.
    layout, columns
        The target's: the columns of its own edge.
    base
        Layout and columns of the node that the path begins at; None where it begins at the root: then the
        merged edge is an anchor.

    Attributes
    ----------
    columns
        Of the merged edge. Their steps are complete once `prove` has run.

    Raises
    ------
    CorruptionError
        Nothing sets a tensor, neither the path nor the base.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        layout: Layout,
        columns: Columns,
        base: tuple[Layout, Columns] | None = None,
    ) -> None:
        self.layout = layout
        count = len(layout.tensors)
        sets = (columns.op == SET) | (columns.op == EXACT) | (columns.op == SET_GRID)
        rest = np.flatnonzero(~sets)
        self.route = Route(edges, layout, rest.tolist(), base[0] if base is not None else None)
        lossy = np.array([spec.role == "weights" for spec in layout.tensors], bool)
        at_base = self.route.begins == AT_BASE
        op = np.where(at_base, np.where(self.route.added, ADD, KEEP), np.where(lossy, SET_GRID, SET))
        op[sets] = OWN
        self.columns = Columns(
            op.astype(np.uint8),
            columns.grid.copy(),
            np.zeros(count, np.uint8),
            columns.digest.copy(),
            columns.scale.copy(),
        )
        self._wanted = columns.digest.copy()
        if base is not None:
            below = rest[at_base[rest]]
            there = self.route.places(base[0], below)
            self._wanted[below] -= base[1].digest[there]
        self._found = np.zeros(count, np.uint64)
        self._steps = np.full(count, _NO_STEP, np.uint8)
        self._lock = Lock()

    def jobs(self) -> list[MergeJob]:
        """List the jobs, one for each chunk that may have something to store."""
        stored = set(np.flatnonzero(np.isin(self.columns.op, (ADD, SET, SET_GRID))).tolist())
        return [
            partial(self._merge, name, chunk)
            for name, lies in self.route.maps.items()
            for chunk in lies.chunks_of(stored)
        ]

    def prove(self) -> None:
        """Check, once all jobs have run, that what was merged leads to the target; complete the columns.

        Raises
        ------
        CorruptionError
            The digest of a tensor is not the one committed.
        """
        own = self.columns.op == OWN
        wrong = np.flatnonzero(~own & (self._found != self._wanted))
        if wrong.size:
            path = self.layout.tensors[int(wrong[0])].name
            if int(self.columns.op[wrong[0]]) in (ADD, KEEP):
                raise CorruptionError(
                    f"the edges merged do not lead tensor {path!r} from the digest of the base to that of "
                    "the target"
                )
            raise CorruptionError(f"the merged value of tensor {path!r} does not have the digest committed")
        self.columns.shift[:] = np.where(self._steps == _NO_STEP, 0, self._steps)

    def _merge(self, pool: str, chunk: int) -> list[Chunk]:
        lies, spec = self.route.maps[pool], self.layout.pools[pool]
        by_op: dict[int, list[Piece]] = {ADD: [], SET: [], SET_GRID: []}
        for piece in lies.pieces(chunk):
            by_op.get(int(self.columns.op[piece.tensor]), []).append(piece)
        low, high = lies.bounds(chunk)
        out = np.zeros(high - low, composed_dtype(spec))
        pieces = [piece for some in by_op.values() for piece in some]
        self.route.compose(pool, chunk, [piece.tensor for piece in pieces], out)
        if spec.role != "weights":
            return self._copy(pool, chunk, by_op[SET], out)
        ops: tuple[tuple[OpName, list[Piece]], ...] = (("add", by_op[ADD]), ("grid", by_op[SET_GRID]))
        both = all(some for _, some in ops)
        made = [
            self._sum(pool, op, chunk, some, out.copy() if both and op == "add" else out)
            for op, some in ops
            if some
        ]
        return [one for one in made if one is not None]

    def _sum(self, pool: str, op: OpName, chunk: int, pieces: list[Piece], sums: Array) -> Chunk | None:
        """Code what a chunk adds up to; `sums` is used up."""
        _clear_between(sums, pieces)
        for piece in pieces:
            total = np.zeros(1, np.uint64)
            values = sums[piece.at : piece.at + piece.size]
            digest_integers(self.layout.tensors[piece.tensor], values, piece.first, total)
            self._add_digest(piece.tensor, total)
        data, steps = frame_of_sums(sums, pieces, f"chunk {chunk} of pool {pool!r}")
        with self._lock:
            for tensor, step in steps.items():
                self._steps[tensor] = min(int(self._steps[tensor]), step, key=log2_of)
        return None if data is None else Chunk(pool, op, chunk, data)

    def _copy(self, pool: str, chunk: int, pieces: list[Piece], values: Array) -> list[Chunk]:
        """Code values as they are, every bit of them."""
        _clear_between(values, pieces)
        for piece in pieces:
            total = np.zeros(1, np.uint64)
            found = values[piece.at : piece.at + piece.size]
            digest_values(self.layout.tensors[piece.tensor], found, piece.first, total)
            self._add_digest(piece.tensor, total)
        if not values.view(np.uint8).any():
            return []
        data = encode_lossless(values)
        back = values_of_frame(data, values.size, values.dtype)
        if not np.array_equal(back.view(np.uint8), values.view(np.uint8)):
            raise CorruptionError(f"the frame made of chunk {chunk} of pool {pool!r} does not decode to it")
        return [Chunk(pool, "set", chunk, data)]

    def _add_digest(self, tensor: int, total: Array) -> None:
        with self._lock:
            self._found[tensor : tensor + 1] += total


def bytes_per_job(layout: Layout) -> int:
    """Return a bound of the bytes that one job of a `Merger` holds at a time, what it fetches included.

    Six times the largest chunk as it is composed (4 bytes per weight, 8 of float64; other values as they
    are), and 16 MiB for what decoders need. The result, coded, is counted while the job runs.
    """
    held = (min(pool.chunk, pool.size) * composed_dtype(pool).itemsize for pool in layout.pools.values())
    return _CHUNKS_HELD * max(held, default=0) + _HELD_BESIDES


def _clear_between(values: Array, pieces: Sequence[Piece]) -> None:
    """Set to zero what lies outside the pieces: other tensors of the chunk, and holes."""
    end = 0
    for piece in pieces:
        values[end : piece.at] = 0
        end = piece.at + piece.size
    values[end:] = 0
