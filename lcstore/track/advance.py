"""The fused pass over a chunk: each piece moves its track to what readers will have, on the steps decided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.scales import steps_of
from lcstore.kernels import advance as kernels
from lcstore.kernels.grid import add_levels
from lcstore.kernels.status import RANGE
from lcstore.state.layout import ALIGN, TensorSpec
from lcstore.state.poolmap import Piece
from lcstore.track import grid
from lcstore.track.blocksteps import BlockSteps
from lcstore.track.digests import digest_of, first_position
from lcstore.track.steps import Step

if TYPE_CHECKING:
    from lcstore.track.draft import Draft


class Advance:
    """Moves the track of one chunk.

    Parameters
    ----------
    draft
        Says what each tensor does; not changed.
    track
        The chunk of its pool, changed.
    levels, escapes
        Filled, as `advance` does.
    scales, block
        ``int16``, one for each `block` elements: filled with what a frame says of their step.

    Attributes
    ----------
    escaped
        How many levels escaped so far.
    digest
        Of what the last piece was moved by.
    """

    def __init__(
        self, draft: Draft, track: Array, levels: Array, escapes: Array, scales: Array, block: int
    ) -> None:
        self.draft = draft
        self.track = track
        self.levels = levels
        self.escapes = escapes
        self.scales = scales
        self.block = block
        self.escaped = 0
        self.digest = np.uint64(0)
        self._out = np.zeros(1, np.uint64)
        #: Position of the first element of the tensor, of a shard in its whole.
        self._begins = 0

    def over(self, piece: Piece) -> bool:
        """Move a piece; False where it leaves its grid: then levels say how far it was moved."""
        spec = self.draft.layout.tensors[piece.tensor]
        begins = first_position(spec)
        self._begins = begins or 0
        before = self._track_digest(spec, piece) if begins is None else np.uint64(0)
        self.digest = np.uint64(0)
        for part, step in self._stepped(piece):
            here = slice(part.at // self.block, -(-(part.at + part.size) // self.block))
            self._out[:] = 0
            touched = self._touched(part)
            if isinstance(step, BlockSteps):
                of_blocks = np.repeat(step.scales(part.first, part.size), step.block // self.block)
                self.scales[here] = of_blocks[: self.scales[here].size]
                escaped = self._move(step.parts(part.first, part.size, touched), step.steps, part)
            else:
                self.scales[here] = step.scale
                escaped = self._move(_whole(part.size, touched), (step,), part)
            if escaped == RANGE:
                return False
            self.escaped = escaped
            with np.errstate(over="ignore"):
                self.digest += self._out[0]
        if begins is None:
            with np.errstate(over="ignore"):
                self.digest = self._track_digest(spec, piece) - before
        return True

    def _track_digest(self, spec: TensorSpec, piece: Piece) -> np.uint64:
        """Return the digest of the track of a piece of a shard that the fused pass has none of."""
        return digest_of(spec, self.track[piece.at : piece.at + piece.size], piece.first)

    def undo(self) -> None:
        """Move the track back by all levels that are there, which are used up."""
        places = np.flatnonzero(self.levels == kernels.ESCAPE)
        moves = self.escapes[: places.size] * steps_of(self.scales[places // self.block])
        self.levels[places] = 0
        add_levels(self.levels, self.scales, self.block, -1, self.track)
        self.track[places] -= moves.astype(self.track.dtype)
        self.levels[:] = 0

    def _stepped(self, piece: Piece) -> Iterator[tuple[Piece, Step | BlockSteps]]:
        """Cut a piece where its step changes."""
        if piece.tensor in self.draft.by_row:
            yield piece, self.draft.by_row[piece.tensor]
            return
        step = self.draft.steps[piece.tensor]
        finer = self.draft.finer.get(piece.tensor)
        if finer is None:
            yield piece, step
            return
        first = piece.first // ALIGN
        octaves = finer[first : -(-(piece.first + piece.size) // ALIGN)]
        starts = [0, *(np.flatnonzero(np.diff(octaves)) + 1).tolist(), octaves.size]
        for low, high in pairwise(starts):
            begin, end = low * ALIGN, min(high * ALIGN, piece.size)
            part = Piece(piece.tensor, piece.first + begin, piece.at + begin, end - begin)
            yield part, step.finer(int(octaves[low]))

    def _move(self, parts: Array, steps: Sequence[Step], piece: Piece) -> int:
        """Move parts of a piece, each by the step size at its place in `steps`; give what `advance` gives."""
        state, inverse, limit = self._on_grid(piece)
        where = slice(piece.at, piece.at + piece.size)
        return int(
            kernels.advance(
                parts,
                np.array([step.units for step in steps], np.int64),
                np.array([step.gain for step in steps], state.dtype),
                np.array([step.rounding for step in steps], state.dtype),
                state,
                self.track[where],
                self.levels[where],
                self.escapes,
                self.escaped,
                inverse,
                limit,
                self._begins + piece.first,
                self._out,
            )
        )

    def _on_grid(self, piece: Piece) -> tuple[Array, Any, Any]:
        """Return the values of a piece, what makes grid units of them, and the largest of these."""
        draft, dtype = self.draft, self.draft.layout.tensors[piece.tensor].dtype
        flat = draft.arrays[piece.tensor]
        state = grid.as_working(flat[piece.first : piece.first + piece.size], dtype)
        kind = state.dtype.type
        return state, kind(2.0 ** -int(draft.columns.grid[piece.tensor])), kind(grid.limit_of(dtype))

    def _touched(self, piece: Piece) -> Array | None:
        """Return the ranges that changed in a piece, from its first element on; None where all may have."""
        ranges = self.draft.touched.get(piece.tensor)
        if ranges is None:
            return None
        low, high = np.searchsorted(ranges[:, 1], piece.first, "right"), piece.first + piece.size
        here: Array = ranges[low : np.searchsorted(ranges[:, 0], high)] - piece.first
        return here


def _whole(size: int, ranges: Array | None) -> Array:
    """Return ranges of a piece of `size` elements, or all of it, as parts on the first step size."""
    if ranges is None:
        return np.array([[0, size, 0]])
    within = np.clip(ranges, 0, size)
    return np.column_stack((within, np.zeros(len(within), np.int64)))
