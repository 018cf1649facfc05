"""A step for each block of a tensor, in blocks as small as its rows ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec import format as f
from lcstore.state.layout import ALIGN
from lcstore.track.steps import Step

#: Where a block has a step of its own, a delta is rounded away from zero from here on, in steps.
OWN_THRESHOLD: Final = 0.7
#: In place of octaves: more than this are log2 of a step of the block's own, above this.
_OWN: Final = 128
#: Bits that the scale of a block takes.
_SCALE_BITS: Final = 8


@dataclass(frozen=True)
class BlockSteps:
    """The steps of a tensor, block by block.

    Attributes
    ----------
    block
        Elements of a block: a power of two, 32 to 1,024.
    steps
        The steps that there are.
    which
        ``int64``, per block: its step's place in `steps`.
    """

    block: int
    steps: tuple[Step, ...]
    which: Array

    def scales(self, first: int, size: int) -> Array:
        """Return the scale of each block that holds some of `size` elements from `first` on."""
        scales = np.array([step.scale for step in self.steps], np.int16)
        found: Array = scales[self._within(first, size)]
        return found

    def parts(self, first: int, size: int, ranges: Array | None) -> Array:
        """Cut a piece of a tensor where its step changes.

        Parameters
        ----------
        first, size
            The piece; it begins with a block.
        ranges
            ``int64[r, 2]``: only these elements of the piece, rising and apart.

        Returns
        -------
        Array
            ``int64[p, 3]``: first element of each part, the one behind the last, and where its step is in
            `steps`.
        """
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


def block_of(width: int) -> int:
    """Return the block for rows of so many elements: few blocks are to lie in rows of unlike scale."""
    whole = width & -width
    return max(1 << f.MIN_BLOCK, min(ALIGN, max(whole, 1 << max(width // 4, 1).bit_length() - 1)))


def choose_blocks(
    step: Step, octaves: Array, allowed: Array, width: int, size: int, worst: tuple[float, float]
) -> BlockSteps | None:
    """Give each block of a tensor the finest step that a row in it needs; None where none needs one.

    Parameters
    ----------
    step, octaves
        The tensor's step, and for each 1,024 elements by how many octaves it is finer anyway.
    allowed
        Per row: the root mean square of what it may be off by, in grid units.
    width, size
        Elements of a row, and of the tensor.
    worst
        Root mean square of what a row may come to be off by, in steps: of `step`, and of one with
        `OWN_THRESHOLD`.
    """
    tries = [
        _try(step, octaves, allowed, width, size, worst, block)
        for block in dict.fromkeys((ALIGN, block_of(width)))
    ]
    bits, block, codes = min(tries, key=lambda one: one[0])
    if not bits:
        return None
    found = np.flatnonzero(np.bincount(codes))
    place = np.zeros(codes.max() + 1, np.int64)
    place[found] = np.arange(found.size)
    steps = [
        Step(code - _OWN, OWN_THRESHOLD) if code >= _OWN else step.finer(code) for code in found.tolist()
    ]
    return BlockSteps(block, tuple(steps), place[codes])


def _try(
    step: Step,
    octaves: Array,
    allowed: Array,
    width: int,
    size: int,
    worst: tuple[float, float],
    block: int,
) -> tuple[float, int, Array]:
    """Return about how many bits own steps take in such blocks, the block, and for each of them its step.

    Own steps are powers of two, so that they stay the same for long: sums of deltas are on the finest step.
    """
    starts = np.arange(0, size, block)
    last = (np.minimum(starts + block, size) - 1) // width
    needs = np.minimum(np.minimum.reduceat(allowed, starts // width), allowed[last])
    usual = octaves[starts // ALIGN].astype(np.int64)
    units = np.array([step.finer(octave).units for octave in range(int(usual.max()) + 1)], np.float64)[usual]
    unmet = worst[0] * units > needs
    if not unmet.any():
        return 0.0, block, usual
    own = np.floor(np.log2(np.maximum(needs[unmet] / worst[1], 1.0))).astype(np.int64)
    finer = np.maximum(np.log2(units[unmet]) - own, 0.0)
    bits = block * float(finer.sum()) + (_SCALE_BITS * starts.size if block < ALIGN else 1)
    codes = usual.copy()
    codes[unmet] = _OWN + own
    return bits, block, codes
