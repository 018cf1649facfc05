"""Chunks of a pool to frames, and frames onto pools: where the track meets the codec."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.codec.factorcodes import CODES
from lcstore.codec.factored import encode_factored
from lcstore.codec.values import decode_values, encode_log, values_back
from lcstore.coders import format as f
from lcstore.coders.entropy import encode_levels, encode_wide
from lcstore.coders.rowsort import Part
from lcstore.coders.tables import TableCache
from lcstore.edges.algebra import ArrayName
from lcstore.edges.coarse import encode_coarse
from lcstore.edges.unbiased import rule_for
from lcstore.errors import CorruptionError
from lcstore.frames.frame import Frame, build_frame, parse_frame
from lcstore.frames.lossless import encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.frames.scales import pack_scales, unpack_scales
from lcstore.kernels.advance import ESCAPE
from lcstore.state.roles import Role

#: From so many octaves on step sizes of second moments are coarse.
_COARSE: Final = 2


@dataclass(frozen=True)
class Chunk:
    """A coded chunk: which array of the edge, which of its chunks, its bytes."""

    pool: str
    op: ArrayName
    index: int
    data: Buffer


class Valued(NamedTuple):
    """A frame of values, and what it decodes to: parts, each with the place of its first element.

    They are gone through once, one after another, since a part may be overwritten by the next.

    Attributes
    ----------
    fits
        Whether it could be coded as its role says: every bit was kept where not.
    """

    data: Buffer
    decoded: Iterable[tuple[int, Array]]
    fits: bool = True


def frame_of_levels(
    levels: Array,
    escapes: Array,
    scales: Array,
    block: int,
    integer: np.dtype,
    cache: TableCache,
    room: Array | None = None,
) -> bytes | None:
    """Make the frame of a chunk of grid deltas; None where all are zero (such a chunk is not stored).

    `scales` has one entry for each `block` elements, a power of two; `room` is as for `encode_levels`.
    """
    coded = encode_levels(levels, escapes, cache=cache, room=room)
    if coded is None:
        wide = levels.astype(integer)
        wide[levels == ESCAPE] = escapes
        coded = encode_wide(wide, cache=cache)
    if coded.coder == f.ZERO:
        return None
    return build_frame(
        coded,
        count=levels.size,
        dtype=integer,
        quantizer=f.LINEAR,
        scales=pack_scales(scales),
        block=block.bit_length() - 1,
    )


def delta_frame(data: Buffer, count: int, dtype: np.dtype, *, proved: bool = False) -> Frame:
    """Return the parsed frame of `count` grid deltas of `dtype`; `proved` as for `parse_frame`."""
    frame = parse_frame(data, expected=count, proved=proved)
    if frame.dtype != dtype or frame.quantizer != f.LINEAR or frame.parameter:
        raise CorruptionError(f"the frame does not hold deltas of a grid of {dtype}")
    return frame


def delta_scales(frame: Frame) -> Array:
    """Return the scale of each block of a frame of grid deltas, which says its step size."""
    if frame.coder == f.ZERO:
        return np.zeros(0, np.int16)
    scales = unpack_scales(frame.scales, frame.blocks)
    outside = (scales < 0) | (scales > f.MOST_STEP) | ((scales & 63) >= 8 * frame.dtype.itemsize)
    if outside.any():
        raise CorruptionError("the frame's step sizes are outside its grid")
    return scales


def frame_of_values(
    values: Pieces,
    role: Role,
    precision: float | None,
    cache: TableCache,
    parts: Sequence[Part] = (),
    *,
    fading: bool = False,
) -> Valued:
    """Make the frame of a chunk of values that have no track.

    Parameters
    ----------
    values
        The chunk, in its logical dtype, in parts that begin where blocks do.
    role, precision
        How it is coded: first moments linearly at about `precision` bits an element, second ones on a
        logarithmic scale with step sizes of `precision` octaves, everything else (and what does not fit
        these) lossless.
    parts
        Where the matrices of second moments lie in the chunk.
    fading
        Whether second moments may come back larger than they were: see `is_fading`. Step sizes of others are
        half of `precision`, at most 2 octaves.
    """
    made = None
    if precision is not None and role == "first_moment":
        made = encode_coarse(values, rule_for(precision), cache=cache)
    elif precision is not None and role == "second_moment":
        octaves = precision if fading else min(precision / 2, _COARSE)
        step = max(1, min(255, round(octaves * CODES)))
        even = not fading or precision < _COARSE
        made = encode_factored(values, parts, step, even=even, cache=cache)
        if made is None:
            made = encode_log(values.whole, max(0, min(7, math.ceil(-math.log2(precision)))), cache=cache)
    if made is None:
        if precision is not None:  # moments that do not fit: of one reading, though they change meanwhile
            values = Pieces([(at, part.copy()) for at, part in values.parts], values.size, values.dtype)
        return Valued(encode_lossless(values), values.parts, fits=precision is None)
    return Valued(made.data, values_back(made))


def values_of_frame(data: Buffer, count: int, dtype: np.dtype) -> Array:
    """Decode a frame of `count` values of `dtype`."""
    frame = parse_frame(data, expected=count)
    if frame.dtype != dtype:
        raise CorruptionError(f"the frame holds {frame.dtype}, not {dtype}")
    return decode_values(frame)
