"""The step sizes of one tensor by block: a table, made when a save is decided and used when it is coded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.coders import format as f
from lcstore.layout.specs import ALIGN
from lcstore.track.stepsizes import StepSize

#: Where rows give a block its step size, a delta is rounded away from zero from here on, in step sizes.
OWN_THRESHOLD: Final = 0.7
#: The most octaves that a block may be finer by: they lead from any step size to the grid's unit.
MOST_FINER: Final = 64
#: Codes of blocks: octaves below the usual step size; or, from here on, log2 of a step size of their own.
_OWN: Final = 128
#: Bits that the scale of a block takes.
_SCALE_BITS: Final = 8


@dataclass(frozen=True)
class Needs:
    """What the rows of a tensor need.

    Attributes
    ----------
    allowed
        ``float64``, per row: the root mean square of what it may be off by, in grid units.
    width
        Elements of a row.
    usual, own
        Root mean square of what a row may come to be off by, in step sizes: of the tensor's usual one, and of
        one with `OWN_THRESHOLD`.
    """

    allowed: Array
    width: int
    usual: float
    own: float


@dataclass(frozen=True)
class StepTable:
    """The step sizes of a tensor.

    Attributes
    ----------
    block
        Elements of a block: a power of two, 32 to 1,024.
    sizes
        The step sizes that there are.
    which
        ``int64``, per block: the place of its step size in `sizes`.
    """

    block: int
    sizes: tuple[StepSize, ...]
    which: Array

    def scales(self, first: int, size: int, block: int) -> Array | int:
        """Return the scale, ``int16``, of each `block` elements of `size` from `first` on, or that of all."""
        if len(self.sizes) == 1:
            return self.sizes[0].scale
        scales = np.array([step.scale for step in self.sizes], np.int16)
        found: Array = np.repeat(scales[self._within(first, size)], self.block // block)
        return found[: -(-size // block)]

    def parts(self, first: int, size: int, ranges: Array | None) -> Array:
        """Cut a piece of a tensor where its step size changes.

        Parameters
        ----------
        first, size
            The piece; it begins with a block.
        ranges
            ``int64[r, 2]``: only these elements of the piece, rising and apart.

        Returns
        -------
        Array
            ``int64[p, 3]``: first element of each part, the one behind the last, and the place of its step
            size in `sizes`.
        """
        if len(self.sizes) == 1 and ranges is None:
            return np.array(((0, size, 0),))
        which = self._within(first, size)
        starts = np.concatenate(([0], np.flatnonzero(np.diff(which)) + 1)) * self.block
        if ranges is not None:
            starts = np.unique(np.concatenate((starts, np.clip(ranges, 0, size).reshape(-1))))
            starts = starts[starts < size]
        parts = np.stack((starts, np.append(starts[1:], size)), axis=1)
        if ranges is not None:
            begun = np.searchsorted(ranges[:, 0], starts, "right")
            parts = parts[begun > np.searchsorted(ranges[:, 1], starts, "right")]
        return np.column_stack((parts, which[parts[:, 0] // self.block]))

    def _within(self, first: int, size: int) -> Array:
        return self.which[first // self.block : -(-(first + size) // self.block)]


def make_table(usual: StepSize, count: int, finer: Array | None, needs: Needs | None) -> StepTable:
    """Return the step size of each block of a tensor: the finest that anything asks for.

    Parameters
    ----------
    usual
        The tensor's.
    count
        Elements of the tensor.
    finer
        ``int16``, for each 1,024 elements: by how many octaves less their updates ask for; None where nothing
        asks for less.
    needs
        What rows ask for; None where the usual step size serves them all. Blocks are smaller where that pays.
    """
    octaves = np.zeros(-(-count // ALIGN), np.int64) if finer is None else finer
    if needs is None and finer is None:
        return StepTable(ALIGN, (usual,), octaves)
    if needs is None:
        block, codes = ALIGN, octaves.astype(np.int64)
    else:
        blocks = dict.fromkeys((ALIGN, block_of(needs.width)))
        tries = [_by_row(usual, octaves, needs, count, block) for block in blocks]
        _, block, codes = min(tries, key=lambda one: one[0])
    found = np.flatnonzero(np.bincount(codes))
    place = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    place[found] = np.arange(found.size)
    sizes = (
        StepSize(code - _OWN, OWN_THRESHOLD) if code >= _OWN else usual.finer(code) for code in found.tolist()
    )
    return StepTable(block, tuple(sizes), place[codes])


def block_of(width: int) -> int:
    """Return the block for rows of so many elements: few blocks are to lie in rows of unlike scale."""
    whole = width & -width
    return max(1 << f.MIN_BLOCK, min(ALIGN, max(whole, 1 << max(width // 4, 1).bit_length() - 1)))


def _by_row(
    usual: StepSize, octaves: Array, needs: Needs, count: int, block: int
) -> tuple[float, int, Array]:
    """Return about how many bits it takes to meet the needs in such blocks; the block, and each one's code.

    What rows ask for are powers of two, so that they stay the same for long: sums of deltas are on the finest
    step size.
    """
    starts = np.arange(0, count, block)
    last = (np.minimum(starts + block, count) - 1) // needs.width
    allowed = np.minimum(np.minimum.reduceat(needs.allowed, starts // needs.width), needs.allowed[last])
    codes = octaves[starts // ALIGN].astype(np.int64)
    units = np.array([usual.finer(by).units for by in range(int(codes.max()) + 1)], np.float64)[codes]
    unmet = needs.usual * units > allowed
    if not unmet.any():
        return 0.0, block, codes
    own = np.floor(np.log2(np.maximum(allowed[unmet] / needs.own, 1.0))).astype(np.int64)
    finer = np.maximum(np.log2(units[unmet]) - own, 0.0)
    codes[unmet] = _OWN + own
    bits = block * float(finer.sum()) + (_SCALE_BITS * starts.size if block < ALIGN else 1)
    return bits, block, codes
