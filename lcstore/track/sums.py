"""The frame of a sum of deltas: on the coarsest steps that lose nothing, and proved to decode to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lcstore.arrays import Array
from lcstore.codec import format as f
from lcstore.codec.adaptive import encode_adaptive
from lcstore.codec.entropy import Coded, encode_any
from lcstore.codec.frame import build_frame
from lcstore.codec.scales import pack_scales
from lcstore.errors import CorruptionError
from lcstore.kernels import sums as kernels
from lcstore.state.plan import ALIGN
from lcstore.track.frames import apply_delta
from lcstore.track.layout import Piece

#: The adaptive coder is taken where it saves this much: it is a tenth as fast to decode, or less.
_MUST_SAVE = 0.02


def frame_of_sums(
    sums: Array, pieces: Sequence[Piece], what: str, rows: Sequence[int] | None = None
) -> tuple[bytes | None, dict[int, int]]:
    """Make the frame of a chunk of sums.

    Parameters
    ----------
    sums
        ``int32[n]`` or ``int64[n]``, zero outside `pieces`. Used up: zero everywhere afterwards.
    pieces
        The tensors that the frame is about. Each takes the finest step that any of its blocks needs: their
        statistics are alike, and one step says less than a step for each block.
    what
        Names the sums, for messages.
    rows
        By tensor the length of a row: try the adaptive coder too, which is slow and may be smaller.

    Returns
    -------
    tuple
        The frame, or None where everything is zero; and by tensor the scale that says its step, for those
        that have one.

    Raises
    ------
    CorruptionError
        The frame does not decode to the sums.
    """
    steps = np.empty(-(-sums.size // ALIGN), np.int16)
    if not kernels.common_steps(sums, ALIGN, steps):
        return None, {}
    finest = _share(steps, pieces)
    kernels.to_levels(sums, ALIGN, steps)
    odd = {piece.at: _take_out(sums, steps, piece, finest) for piece in pieces}
    coded = _code(sums, pieces, rows)
    for piece in pieces:
        sums[piece.at : piece.at + piece.size] *= odd[piece.at]
    kernels.from_levels(sums, ALIGN, steps & 63)
    data = build_frame(
        coded,
        count=sums.size,
        dtype=sums.dtype,
        quantizer=f.LINEAR,
        scales=pack_scales(steps),
        block=f.BLOCK,
    )
    del coded
    if not _takes_back(data, sums):
        raise CorruptionError(f"the frame made of {what} does not decode to the sum")
    return data, finest


def _code(levels: Array, pieces: Sequence[Piece], rows: Sequence[int] | None) -> Coded:
    coded = encode_any(levels)  # without a cache of tables: equal sums make equal frames, whoever merges
    if rows is None:
        return coded
    size = len(coded.table) + len(coded.directory) + sum(map(len, coded.payload))
    stretches = np.array([(p.at, p.size, rows[p.tensor]) for p in pieces], np.int64)
    return encode_adaptive(levels, stretches, int((1 - _MUST_SAVE) * size)) or coded


def _take_out(levels: Array, steps: Array, piece: Piece, finest: dict[int, int]) -> int:
    """Divide the levels of a piece by the odd number that its steps share, and say so; give that number."""
    mine = levels[piece.at : piece.at + piece.size]
    place = kernels.odd_divisor(mine) if piece.tensor in finest else 0
    if place:
        kernels.divide(mine, 2 * place + 1)
        steps[piece.at // ALIGN : -(-(piece.at + piece.size) // ALIGN)] += 64 * place
        finest[piece.tensor] += 64 * place
    return 2 * place + 1


def _takes_back(data: bytes, sums: Array) -> bool:
    """Subtract a frame as a reader would; say whether nothing is left."""
    try:
        apply_delta(data, sums, -1)
    except CorruptionError:
        return False
    return not kernels.common_steps(sums, ALIGN, np.empty(-(-sums.size // ALIGN), np.int16))


def _share(steps: Array, pieces: Sequence[Piece]) -> dict[int, int]:
    """Give all blocks of a piece its finest step, and those of nothing but zeros the step before."""
    finest = {}
    last = 0
    for piece in pieces:
        blocks = steps[piece.at // ALIGN : -(-(piece.at + piece.size) // ALIGN)]
        needed = blocks[blocks != kernels.NO_STEP]
        if needed.size:
            finest[piece.tensor] = last = int(needed.min())
        blocks[:] = last
    # Blocks between the pieces hold zeros: any step serves, and the fewest changes are the briefest.
    gaps = np.flatnonzero(steps == kernels.NO_STEP)
    for block in gaps.tolist():
        steps[block] = steps[block - 1] if block else 0
    return finest
