"""Bit patterns of plain values as integers modulo 2^w: differences add up in any order, and both ways."""

from __future__ import annotations

from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import pattern_dtype
from lcstore.codec.lossless import count_lossless, encode_lossless, sample_of
from lcstore.edges.frames import values_of_frame
from lcstore.errors import CorruptionError

#: A delta has to save this part of what setting the values takes.
_MUST_SAVE: Final = 0.02


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


def part_of_delta(values: Array, held: Array) -> float:
    """Return what part of the coded values coded differences take, counted on a sample; 1: as much, or more.

    Parameters
    ----------
    values, held
        A flat plain tensor, and what readers have of it.
    """
    if pattern_dtype(values.dtype) is None:
        return 1.0
    now, before = sample_of(values), sample_of(held)
    whole = count_lossless(now) * (1 - _MUST_SAVE)
    return count_lossless(patterns(now) - patterns(before)) / whole if whole > 0 else 1.0


def frame_of_patterns(moves: Array) -> bytes | None:
    """Make the frame of a chunk of differences; None where all are zero (such a chunk is not stored)."""
    return encode_lossless(moves) if moves.any() else None


def decode_patterns(data: bytes, size: int, dtype: np.dtype) -> Array:
    """Return the differences of a chunk of plain values, in the dtype of the values."""
    moves = values_of_frame(data, size, patterns(np.empty(0, dtype)).dtype)
    return moves.view(dtype)


def apply_patterns(data: bytes, values: Array, sign: int = 1) -> None:
    """Add a frame of differences to a chunk of plain values, or take it back with `sign` -1.

    Raises
    ------
    CorruptionError
        It is not such a frame, or does not decode.
    """
    words = patterns(values)
    moves = values_of_frame(data, words.size, words.dtype)
    (np.add if sign > 0 else np.subtract)(words, moves, out=words)
