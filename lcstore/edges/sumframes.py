"""The frame of a sum of deltas: on the coarsest step sizes that lose nothing, and proved to decode to it."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.coders import format as f
from lcstore.coders.entropy import encode_any
from lcstore.edges.deltas import apply_delta
from lcstore.errors import CorruptionError
from lcstore.frames.frame import build_frame
from lcstore.frames.scales import pack_scales
from lcstore.frames.sums import NO_STEP, common_steps, from_levels, odd_divisor, to_levels
from lcstore.layout.poolmap import Piece
from lcstore.layout.specs import ALIGN

#: Elements of the small blocks that tell rows of unlike step sizes apart, and bits of a block's step size.
_SMALL: Final = 1 << f.MIN_BLOCK
_SCALE_BITS: Final = 8


def frame_of_sums(sums: Array, pieces: Sequence[Piece], what: str) -> tuple[bytes | None, dict[int, int]]:
    """Make the frame of a chunk of sums.

    Parameters
    ----------
    sums
        ``int32[n]`` or ``int64[n]``, zero outside `pieces`. Used up: zero everywhere afterwards.
    pieces
        The tensors that the frame is about. Each takes the finest step size that any of its blocks needs,
        as one for all takes fewer bits than one for each block. Where rows had step sizes of their own,
        and it pays, blocks keep theirs.
    what
        Names the sums, for messages.

    Returns
    -------
    tuple
        The frame, or None where everything is zero; and by tensor the scale that says its step size,
        for those that have one.

    Raises
    ------
    CorruptionError
        The frame does not decode to the sums.
    """
    steps = common_steps(sums, _SMALL)
    if (steps == NO_STEP).all():
        return None, {}
    apart = {piece.at for piece in pieces if _pays(sums, steps, piece)}
    block = _SMALL if apart else ALIGN
    if not apart:
        steps = _joined(steps)
    finest = _share(steps, block, pieces, apart)
    to_levels(sums, block, steps)
    odd = {p.at: _take_out(sums, steps, block, p, finest) for p in pieces if p.at not in apart}
    coded = encode_any(sums)  # without a cache of tables: equal sums make equal frames, whoever merges
    for piece in pieces:
        sums[piece.at : piece.at + piece.size] *= odd.get(piece.at, 1)
    from_levels(sums, block, steps & 63)
    data = build_frame(
        coded,
        count=sums.size,
        dtype=sums.dtype,
        quantizer=f.LINEAR,
        scales=pack_scales(steps),
        block=block.bit_length() - 1,
    )
    del coded
    if not _takes_back(data, sums):
        raise CorruptionError(f"the frame made of {what} does not decode to the sum")
    return data, finest


def _pays(sums: Array, steps: Array, piece: Piece) -> bool:
    """Return whether a piece takes fewer bits where its small blocks keep their step sizes."""
    mine = steps[piece.at // _SMALL : -(-(piece.at + piece.size) // _SMALL)]
    used = np.flatnonzero(mine != NO_STEP)
    above = mine[used].astype(np.int64) - int(mine[used].min(initial=64))
    cost = _SCALE_BITS * mine.size
    if _SMALL * int(above.sum()) <= cost:
        return False
    values = sums[piece.at : piece.at + mine.size * _SMALL]
    starts = np.arange(0, values.size, _SMALL)
    counts = np.add.reduceat((values != 0).view(np.uint8), starts, dtype=np.int64)[used]
    return int((above * counts).sum()) > cost


def _joined(steps: Array) -> Array:
    """Return the step sizes of blocks of `ALIGN` elements, given those of the small ones."""
    each = ALIGN // _SMALL
    padded = np.full(-(-steps.size // each) * each, NO_STEP, np.int16)
    padded[: steps.size] = steps
    least = np.where(padded == NO_STEP, np.iinfo(np.int16).max, padded).reshape(-1, each).min(axis=1)
    joined: Array = np.where(least == np.iinfo(np.int16).max, NO_STEP, least).astype(np.int16)
    return joined


def _take_out(levels: Array, steps: Array, block: int, piece: Piece, finest: dict[int, int]) -> int:
    """Divide the levels of a piece by the odd number that its step sizes share; return that number."""
    mine = levels[piece.at : piece.at + piece.size]
    place = odd_divisor(mine) if piece.tensor in finest else 0
    if place:
        np.floor_divide(mine, 2 * place + 1, out=mine)
        steps[piece.at // block : -(-(piece.at + piece.size) // block)] += 64 * place
        finest[piece.tensor] += 64 * place
    return 2 * place + 1


def _takes_back(data: bytes, sums: Array) -> bool:
    """Subtract a frame as a reader would; return whether nothing is left."""
    try:
        apply_delta(data, sums, -1)
    except CorruptionError:
        return False
    return not sums.any()


def _share(steps: Array, block: int, pieces: Sequence[Piece], apart: Container[int]) -> dict[int, int]:
    """Set the step size of all blocks of a piece to its finest; blocks of zeros take the one before.

    Blocks of pieces that begin at one of `apart` keep theirs.
    """
    finest = {}
    last = 0
    for piece in pieces:
        blocks = steps[piece.at // block : -(-(piece.at + piece.size) // block)]
        needed = blocks[blocks != NO_STEP]
        if needed.size:
            finest[piece.tensor] = last = int(needed.min())
        if piece.at not in apart:
            blocks[:] = last
    # Blocks of zeros: any step size serves, and the fewest changes are the briefest.
    known = np.where(steps == NO_STEP, -1, np.arange(steps.size))
    before = np.maximum.accumulate(known)
    steps[:] = np.where(before < 0, 0, steps[before])
    return finest
