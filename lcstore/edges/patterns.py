"""Bit patterns of plain values as integers modulo 2^w: differences add up in any order, and both ways."""

from __future__ import annotations

from typing import Final

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.dtypes import pattern_dtype
from lcstore.edges.frames import values_of_frame
from lcstore.edges.rowbits import count_kinds_by_row, count_planes_by_row
from lcstore.errors import CorruptionError
from lcstore.frames.bykind import count_kinds
from lcstore.frames.lossless import count_planes, encode_lossless, sample_of
from lcstore.frames.pieces import Pieces

#: A delta has to save this part of what setting the values takes.
_MUST_SAVE: Final = 0.02
#: How much more a delta counts where elements are single bytes: it has to save half.
_OF_BYTES: Final = 2


def patterns(values: Array) -> Array:
    """Return plain values as the integers that their bits are, in place.

    Raises
    ------
    CorruptionError
        Nothing can be added to values of such a dtype: an edge that says so cannot be.
    """
    kind = pattern_dtype(values.dtype)
    if kind is None:
        raise CorruptionError(f"values of {values.dtype} have no deltas")
    return values.view(kind)


def saved_by_delta(values: Array, held: Array, cost: float) -> float:
    """Return how many bytes adding to a plain tensor saves beside setting it, by a sample: 0 or more.

    Parameters
    ----------
    values, held
        The tensor, flat, and what readers have of it.
    cost
        What a byte that is added counts.
    """
    if pattern_dtype(values.dtype) is None:
        return 0.0
    now, before = sample_of(values), sample_of(held)
    moves = patterns(now) - patterns(before)
    saved = (1 - _MUST_SAVE) * count_planes(now) - _weighed(cost, values) * count_kinds(moves)
    return max(0.0, saved / 8 * values.size / now.size)


def saved_by_deltas(values: Array, held: Array, cost: float) -> Array:
    """Return what `saved_by_delta` does for each of many small tensors of one size: ``float64``, per row."""
    if pattern_dtype(values.dtype) is None:
        return np.zeros(len(values))
    moves = patterns(values) - patterns(held)
    cost = _weighed(cost, values)
    saved: Array = (1 - _MUST_SAVE) * count_planes_by_row(values) - cost * count_kinds_by_row(moves)
    return np.maximum(saved / 8, 0.0)


def _weighed(cost: float, values: Array) -> float:
    """Return what a byte of a delta counts beside a byte that is set: a narrow element decodes no quicker."""
    return cost if values.itemsize > 1 else _OF_BYTES * cost


def frame_of_patterns(moves: Array) -> Buffer | None:
    """Make the frame of a chunk of differences; None where all are zero (such a chunk is not stored)."""
    return encode_lossless(Pieces.of(moves)) if moves.any() else None


def decode_patterns(data: Buffer, size: int, dtype: np.dtype) -> Array:
    """Return the differences of a chunk of plain values, in the dtype of the values."""
    moves = values_of_frame(data, size, patterns(np.empty(0, dtype)).dtype)
    return moves.view(dtype)
