"""Integers near zero, whatever their width: some are zero, most are levels, and few are too large for one.

Differences of bit patterns are such: most of their bits are few, some are none at all, and where a float
changed its sign it is all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.coders import format as f
from lcstore.coders.entropy import (
    Coded,
    bits_of_zeros,
    count_bits,
    encode_small,
    encode_wide,
    spread_pieces,
)
from lcstore.coders.small import Small
from lcstore.errors import CorruptionError
from lcstore.frames.bytelevels import about_lossless, frame_of_bytes, inner_bytes, raw
from lcstore.frames.decode import SPAN, Room
from lcstore.frames.fill import make_filler, restored
from lcstore.frames.frame import Frame, frame_pieces, in_parts, level_pieces, parse_frame

#: Kinds of an element: zero, a level, and an integer that no level holds.
_ZERO, _NEAR, _FAR = 0, 1, 2
#: Levels lie below this magnitude.
_MOST: Final = 1 << 61
#: A frame of kinds is tried where one element in so many is zero.
_ZEROS_AT_LEAST: Final = 64
#: Narrow coders are taken where at most one level in so many, zeros apart, is an escape, which is long.
_ESCAPED_AT_MOST: Final = 64


def encode_kinds(words: Array) -> tuple[Coded, int]:
    """Code integers.

    Parameters
    ----------
    words
        ``int8[n]``, ``int16[n]``, ``int32[n]`` or ``int64[n]``, not all zero.

    Returns
    -------
    tuple
        What goes into the frame, and its parameter: log2 of what all integers are divided by.
    """
    shift = _shift(words)
    levels = _levels(words, shift) if words.itemsize > 1 else words >> shift if shift else words
    parts: list[Sequence[Buffer]] = []
    coded = _encode_small(levels) if words.itemsize > 1 else None  # for bytes kinds are never longer
    if coded is None:
        kinds, frame = _kinds_of(levels)
        if frame is not None:
            parts.append(frame)
            if kinds is not None:
                far = words[kinds == _FAR]
                parts.append(frame_pieces(raw(far), **about_lossless(far.size, words.dtype)))
            levels = levels[levels != 0 if kinds is None else kinds == _NEAR]
        levels = _levels(levels)
        coded = encode_wide(levels)
    return in_parts(f.KINDS, [level_pieces(coded, levels), *parts]), shift


def count_kinds(words: Array) -> float:
    """Return about how many bits integers take, coded so."""
    return count_bits(_levels(words, _shift(words)))


def _shift(words: Array) -> int:
    every = int(np.bitwise_or.reduce(words, initial=0))
    return (every & -every).bit_length() - 1 if every else 0


def _levels(words: Array, shift: int = 0) -> Array:
    levels = words.astype(np.int32) if words.itemsize < 4 else words
    return levels >> shift if shift else levels


def _encode_small(levels: Array) -> Coded | None:
    """Code levels of which few are large; None where there are none of them."""
    small = Small.of(levels)
    if small is None or small.escapes.size * _ESCAPED_AT_MOST > np.count_nonzero(small.levels):
        return None
    return None if _far(small.escapes).any() else encode_small(small)


def _far(levels: Array) -> Array:
    """Return which integers are too large for a level: ``bool``."""
    out: Array = (levels >= _MOST) | (levels <= -_MOST) if levels.itemsize == 8 else np.zeros(0, bool)
    return out


def _kinds_of(levels: Array) -> tuple[Array | None, Sequence[Buffer] | None]:
    """Return the kind of each element, ``uint8``, if some are far; and the frame of kinds if it is short."""
    kinds: Array = (levels != 0).view(np.uint8)
    far = _far(levels)
    if far.any():
        kinds[far] = _FAR
        return kinds, frame_of_bytes(kinds.copy())
    if (levels.size - int(np.count_nonzero(kinds))) * _ZEROS_AT_LEAST < levels.size:
        return None, None
    frame, sample = frame_of_bytes(kinds), _levels(spread_pieces(levels))
    worth = bits_of_zeros(sample) * levels.size / sample.size
    return None, frame if 8 * sum(map(len, frame)) < worth else None


def decode_kinds(frame: Frame) -> Array:
    """Return the integers of a frame, in one dimension and in its dtype.

    Raises
    ------
    CorruptionError
        They do not decode.
    """
    parts = frame.parts
    kind = np.dtype(f"i{frame.dtype.itemsize}")
    if len(parts) == 1:
        out: Array = _decode_levels(parts[0], frame, frame.count).astype(kind, copy=False)
        return out.view(frame.dtype)
    kinds = _decode_bytes(parts[1], frame)
    near, far = kinds == _NEAR, kinds == _FAR
    if kinds.max(initial=0) > _FAR or bool(far.any()) != (len(parts) == 3):
        raise CorruptionError("the frame's kinds do not fit its parts")
    out = np.zeros(frame.count, kind)
    out[near] = _decode_levels(parts[0], frame, int(np.count_nonzero(near)))
    if len(parts) == 3:
        inner = parse_frame(parts[2], expected=int(np.count_nonzero(far)), proved=frame.proved)
        if inner.coder != f.RAW or inner.dtype != kind or inner.quantizer != f.LOSSLESS:
            raise CorruptionError("what is no level in the frame is not listed as it is")
        out[far] = np.frombuffer(inner.payload, kind)
    return out.view(frame.dtype)


def _decode_bytes(data: memoryview, frame: Frame) -> Array:
    plane = inner_bytes(parse_frame(data, expected=frame.count, proved=frame.proved), Room())
    out = np.empty(frame.count, np.uint8)
    for at in range(0, out.size, SPAN):
        part = out[at : at + SPAN]
        part[:] = plane.bytes(at, part.size)
    return out


def _decode_levels(data: memoryview, frame: Frame, count: int) -> Array:
    inner = parse_frame(data, expected=count, proved=frame.proved)
    if inner.quantizer != f.LINEAR or inner.dtype != np.dtype(f"i{max(frame.dtype.itemsize, 4)}"):
        raise CorruptionError("the frame's levels are not integers of its width")
    levels = restored(inner, make_filler(inner), np.empty(count, inner.dtype))
    return np.left_shift(levels, frame.parameter, out=levels) if frame.parameter else levels
