"""The fused pass over a chunk: each piece moves its track to what readers will have, as its table says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from lcstore.arrays import Array
from lcstore.coders.tables import TableCache
from lcstore.compiling.status import RANGE
from lcstore.edges import grid
from lcstore.edges.deltas import apply_delta
from lcstore.edges.digests import digest_of, first_position
from lcstore.edges.frames import frame_of_levels
from lcstore.kernels import advance as kernels
from lcstore.kernels.grid import RUN, add_levels
from lcstore.layout.poolmap import Piece
from lcstore.layout.specs import TensorSpec
from lcstore.track.steptable import StepTable


class Scratch:
    """Buffers for the levels of one chunk, as many pairs as jobs have run side by side. Thread-safe.

    To map and clear fresh memory each time would cost a good part of the work.
    """

    def __init__(self) -> None:
        self._free: list[tuple[Array, Array]] = []

    def take(self, count: int) -> tuple[Array, Array]:
        """Lend levels of `count` elements, all zero, and room for their escapes, not cleared."""
        try:
            levels, escapes = self._free.pop()  # one step: no lock is needed
        except IndexError:
            levels, escapes = np.empty(0, np.int8), np.empty(0, np.int64)
        if levels.size < count:
            levels, escapes = np.empty(count, np.int8), np.empty(count + RUN, np.int64)
        lent = levels[:count]
        lent[:] = 0
        return lent, escapes

    def give_back(self, levels: Array, escapes: Array) -> None:
        """Take back what was lent; what is never given back is forgotten."""
        whole = levels if levels.base is None else levels.base
        self._free.append((whole, escapes))


class Advance:
    """Moves the track of one chunk. `undo` takes back what has been moved, at any time.

    Parameters
    ----------
    track
        The chunk of its pool, changed in place.
    block
        Elements that the frame is to say a step size for: those of the smallest block of any table.
    scratch
        Where levels are written until they are a frame. Where that fails they stay, to be undone.
    """

    def __init__(self, track: Array, block: int, scratch: Scratch) -> None:
        self.track = track
        self._block = block
        self._scratch = scratch
        self._levels, self._escapes = scratch.take(track.size)
        self._scales = np.zeros(-(-track.size // block), np.int16)
        self._escaped = 0
        self._undo: Callable[[], None] = self._undo_levels

    def over(
        self, piece: Piece, spec: TensorSpec, flat: Array, unit: int, table: StepTable, ranges: Array | None
    ) -> np.uint64 | None:
        """Move a piece.

        Parameters
        ----------
        piece
            Which elements of the tensor, and where in the chunk.
        spec, flat, unit
            The tensor, its values, and log2 of its grid's unit.
        table
            Its step sizes.
        ranges
            ``int64[r, 2]``: only these elements of the tensor have changed.

        Returns
        -------
        numpy.uint64 or None
            Digest of what it was moved by; None where it leaves its grid: then undo the whole chunk.
        """
        state = grid.as_working(flat[piece.first : piece.first + piece.size], spec.dtype)
        kind = state.dtype.type
        here, blocks = slice(piece.at, piece.at + piece.size), -(-piece.size // self._block)
        low = piece.at // self._block
        self._scales[low : low + blocks] = table.scales(piece.first, piece.size, self._block)
        begins, out = first_position(spec), np.zeros(1, np.uint64)
        before = digest_of(spec, self.track[here], piece.first) if begins is None else None
        escaped = kernels.advance(
            table.parts(piece.first, piece.size, _within(ranges, piece)),
            np.array([step.units for step in table.sizes], np.int64),
            np.array([step.gain for step in table.sizes], state.dtype),
            np.array([step.rounding for step in table.sizes], state.dtype),
            state,
            self.track[here],
            self._levels[here],
            self._escapes,
            self._escaped,
            kind(2.0**-unit),
            kind(grid.limit_of(spec.dtype)),
            (begins or 0) + piece.first,
            out,
        )
        if escaped == RANGE:
            return None
        self._escaped = int(escaped)
        if before is None:
            return np.uint64(out[0])
        # The pass knows only positions that go on without a gap.
        with np.errstate(over="ignore"):
            return digest_of(spec, self.track[here], piece.first) - before

    def frame(self, tables: TableCache) -> bytes | None:
        """Return the frame of what was moved, None where that is nothing. From now on `undo` goes by it."""
        escapes, room = np.split(self._escapes, (self._escaped,))
        data = frame_of_levels(
            self._levels,
            escapes,
            self._scales,
            self._block,
            self.track.dtype,
            tables,
            room.view(np.uint8),  # escapes leave most of theirs, which is not to be mapped anew
        )
        self._undo = partial(apply_delta, data, self.track, -1) if data is not None else _nothing
        self._give_back()
        return data

    def undo(self) -> None:
        """Move the track back, once. After a failure nobody can: it is moved back in part."""
        undo, self._undo = self._undo, _lost
        undo()
        self._undo = _nothing
        self._give_back()

    def _undo_levels(self) -> None:
        levels, track = self._levels, self.track
        places = np.flatnonzero(levels == kernels.ESCAPE)
        levels[places] = 0
        add_levels(levels, places, self._escapes[: places.size], self._scales, self._block, -1, track)

    def _give_back(self) -> None:
        if self._levels.size:
            self._scratch.give_back(self._levels, self._escapes)
        self._levels = self._escapes = np.empty(0, np.int8)


def _nothing() -> None:
    """Undo nothing."""


def _lost() -> None:
    raise RuntimeError("a chunk of the track was moved back in part; what it holds now, no reader has")


def _within(ranges: Array | None, piece: Piece) -> Array | None:
    """Return the ranges that changed in a piece, from its first element on; None where all may have."""
    if ranges is None:
        return None
    low, high = np.searchsorted(ranges[:, 1], piece.first, "right"), piece.first + piece.size
    here: Array = ranges[low : np.searchsorted(ranges[:, 0], high)] - piece.first
    return here
