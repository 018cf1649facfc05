"""Frames of grids: levels told by their neighbours, and values that have no level listed besides."""

from __future__ import annotations

import math
import struct
from typing import Any, Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.predictors import (
    CUBIC_AXES,
    LIMITS,
    MOST_AXES,
    MOST_ORDER,
    MOST_ORDERS,
    Predictor,
    carried,
    outside,
)
from lcstore.coders import format as f
from lcstore.coders.entropy import encode_any
from lcstore.coders.stepsize import StepSize
from lcstore.coders.tables import TableCache
from lcstore.dtypes import LOSSY_DTYPES, working_dtype
from lcstore.errors import CorruptionError
from lcstore.frames.fill import Filler, make_filler, restored, working
from lcstore.frames.frame import Frame, build_frame, in_parts, level_pieces, parse_frame
from lcstore.frames.lossless import decode_lossless, encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.kernels import neighbours, quantize

#: Exponent of the step size, whether points are interpolated, axes, special values.
_FIXED: Final = struct.Struct("<hBBB")
_MOST_SPECIAL: Final = 255
_PARTS: Final = 1 << neighbours.PARTS
_BYTE: Final = np.dtype(np.uint8)
#: What levels may be, and those of float64.
_LEVELS: Final = ((np.int32,), (np.int32, np.int64))
#: Levels that become values at a time, in cache.
_SPAN: Final = 1 << 16


class _Special(NamedTuple):
    """Values that have no level.

    Attributes
    ----------
    gone
        ``bool[n]``: which elements they are.
    patterns
        The bits of each that differs.
    kinds
        ``uint8[n]``: 1 more than the place of an element's own in `patterns`, or 0.
    """

    gone: Array
    patterns: Array
    kinds: Array


def encode_predicted(
    values: Array,
    step: StepSize,
    predictor: Predictor,
    *,
    rounding: float = 0.5,
    bound: float = math.inf,
    entropy: str = "auto",
    cache: TableCache | None = None,
) -> bytes | None:
    """Code floats as multiples of one step size, or between them, each told by its neighbours.

    Parameters
    ----------
    values
        ``float[n]``, contiguous, at least one.
    step, predictor
        The step size, and how levels are told.
    rounding
        Part of a step size added to a magnitude before it is cut. Interpolation rounds to nearest.
    bound
        Distance within which each value must come back that is not special; those come back exactly.

    Returns
    -------
    bytes or None
        None where a value would come back farther away or as infinity, or where more than 255 different ones
        are not finite, or too large for the step size.
    """
    wide = working(values)
    levels, bad = _levels(wide, step.size, rounding)
    special, size, known = None, step.size, levels
    if bad:
        special = _special(values, outside(wide, 1 / size, rounding, LIMITS[levels.itemsize]))
        if special is None:
            return None
    if predictor.cubic:
        size /= _PARTS
        limit = 2 * _PARTS * LIMITS[levels.itemsize]  # only what is listed may be without a level
        known = np.empty_like(levels)
        if special is not None:
            wide = np.where(special.gone, np.float32(np.nan), wide)
        neighbours.interpolate(wide, True, 1 / size, limit, predictor.lengths(), known, levels)
    if not _comes_back(values, _values_of(known, size, values.dtype), special, bound):
        return None
    _take_differences(levels, predictor, special)
    return _build(values, step, predictor, levels, special, entropy, cache)


def _levels(wide: Array, step_size: float, rounding: float) -> tuple[Array, int]:
    """Return levels, and how many values have none. Those of float64 may take more than four bytes."""
    for size in (4, 8):
        levels = np.empty(wide.size, f"i{size}")
        bad = neighbours.grid_levels(wide, 1 / step_size, rounding, LIMITS[size], levels)
        if wide.itemsize == 4 or bad == 0 or bad == np.count_nonzero(~np.isfinite(wide)):
            break
    return levels, int(bad)


def _special(values: Array, gone: Array) -> _Special | None:
    patterns, places = np.unique(values[gone].view(f"u{values.itemsize}"), return_inverse=True)
    if patterns.size > _MOST_SPECIAL:
        return None
    kinds = np.zeros(values.size, _BYTE)
    kinds[gone] = places + 1
    return _Special(gone, patterns, kinds)


def _values_of(levels: Array, step_size: float, dtype: np.dtype[Any]) -> Array:
    out = np.empty(levels.size, dtype)
    steps = np.full(_SPAN >> f.BLOCK, step_size)
    fill = Filler(quantize.linear_values, steps, f.BLOCK, working_dtype(dtype), dtype)
    for low in range(0, levels.size, _SPAN):
        fill.run(0, levels[low : low + _SPAN], out[low : low + _SPAN])
    return out


def _comes_back(values: Array, back: Array, special: _Special | None, bound: float) -> bool:
    wide = working(back)
    if not np.isfinite(wide).all():
        return False
    if bound == math.inf:
        return True
    if special is not None:
        back[special.gone] = values[special.gone]
    worst = np.zeros(1)
    quantize.linear_errors(working(values), working(back), worst)
    return bool(worst[0] <= bound)


def _take_differences(levels: Array, predictor: Predictor, special: _Special | None) -> None:
    """Take the differences that sums will be of. Special elements change nothing, and are zero between."""
    passes = predictor.passes[::-1]
    if special is not None and passes:
        carried(levels, special.gone, *passes[0])
    for length, inner in passes:
        neighbours.difference(_unsigned(levels), length, inner)
        if special is not None:
            levels[special.gone] = 0


def _take_sums(levels: Array, predictor: Predictor, gone: Array | None) -> None:
    left = len(predictor.passes)
    for length, inner in predictor.passes:
        left -= 1
        if gone is None or left == 0:
            neighbours.integrate(_unsigned(levels), length, inner)
        else:
            neighbours.integrate_around(_unsigned(levels), gone, length, inner)


def _unsigned(levels: Array) -> Array:
    return levels.view(f"u{levels.itemsize}")


def _build(
    values: Array,
    step: StepSize,
    predictor: Predictor,
    levels: Array,
    special: _Special | None,
    entropy: str,
    cache: TableCache | None,
) -> bytes:
    patterns = np.empty(0, _BYTE) if special is None else special.patterns
    about = [
        _FIXED.pack(step.exponent, predictor.cubic, len(predictor.shape), patterns.size),
        np.array(predictor.shape, "<u8").tobytes(),
        bytes(predictor.orders),
        patterns.astype(patterns.dtype.newbyteorder("<")).tobytes(),
    ]
    levels = levels if special is None else levels[~special.gone]
    frames = [level_pieces(encode_any(levels, entropy=entropy, cache=cache), levels)]
    if special is not None:
        changes = special.kinds.copy()
        changes[1:] ^= special.kinds[:-1]
        frames.append([encode_lossless(Pieces.of(changes))])
    return build_frame(
        in_parts(f.PLANES, frames),
        count=values.size,
        dtype=values.dtype,
        quantizer=f.PREDICTED,
        scales=b"".join(about),
        parameter=step.mantissa,
    )


def decode_predicted(frame: Frame) -> Array:
    """Return the values of a frame of a grid, in one dimension.

    Raises
    ------
    CorruptionError
        The frame does not decode.
    """
    step, predictor, patterns = _parse(frame)
    kinds = _kinds(frame, patterns.size)
    gone = None if kinds is None else kinds != 0
    levels = _decode_levels(frame, gone)
    size = step.size
    if predictor.cubic:
        size /= _PARTS
        nothing = np.empty(0, working_dtype(frame.dtype))
        neighbours.interpolate(nothing, False, 0.0, 0.0, predictor.lengths(), levels, levels)
    else:
        _take_sums(levels, predictor, gone)
    out = _values_of(levels, size, frame.dtype)
    if kinds is not None:
        out[gone] = patterns[kinds[gone] - 1]
    return out


def _parse(frame: Frame) -> tuple[StepSize, Predictor, Array]:
    """Return the step size, the predictor, and the special values."""
    data = bytes(frame.scales)
    if len(data) < _FIXED.size:
        raise CorruptionError("the frame does not say what its grid is")
    exponent, cubic, axes, special = _FIXED.unpack_from(data)
    step, rest = StepSize(exponent, frame.parameter), data[_FIXED.size :]
    if not step.allowed or frame.dtype.name not in LOSSY_DTYPES:
        raise CorruptionError(f"a frame of a grid cannot hold {frame.dtype} in steps of 2**{exponent}")
    if axes > MOST_AXES or cubic > 1 or len(rest) != 9 * axes + special * frame.dtype.itemsize:
        raise CorruptionError("the frame's grid is not as long as it says")
    shape = tuple(np.frombuffer(rest, "<u8", axes).tolist())
    orders = tuple(rest[8 * axes : 9 * axes])
    if axes and math.prod(shape) != frame.count:
        raise CorruptionError("the frame's axes do not fit its elements")
    if max(orders, default=0) > MOST_ORDER or sum(orders) > MOST_ORDERS:
        raise CorruptionError("the frame's orders are not allowed")
    if cubic and (any(orders) or not 0 < axes <= CUBIC_AXES):
        raise CorruptionError("the frame's axes cannot be interpolated along")
    patterns = np.frombuffer(rest[9 * axes :], f"<u{frame.dtype.itemsize}").astype(f"u{frame.dtype.itemsize}")
    return step, Predictor(shape, orders, bool(cubic)), patterns.view(frame.dtype)


def _kinds(frame: Frame, special: int) -> Array | None:
    """Return for each element 0, or 1 more than the place of its special value; None if there are none."""
    parts = frame.parts
    if len(parts) != 1 + (special > 0):
        raise CorruptionError("the frame's special values do not fit its parts")
    if not special:
        return None
    inner = parse_frame(parts[1], expected=frame.count)
    if inner.dtype != _BYTE or inner.quantizer != f.LOSSLESS:
        raise CorruptionError("the frame's special values are not listed as bytes")
    kinds: Array = np.bitwise_xor.accumulate(decode_lossless(inner))
    if kinds.max() > special:
        raise CorruptionError("an element of the frame is a special value that there is not")
    return kinds


def _decode_levels(frame: Frame, gone: Array | None) -> Array:
    left = frame.count - (0 if gone is None else int(np.count_nonzero(gone)))
    inner = parse_frame(frame.parts[0], expected=left)
    if inner.quantizer != f.LINEAR or inner.dtype not in _LEVELS[frame.dtype.itemsize == 8]:
        raise CorruptionError("the frame's levels are not integers")
    coded = restored(inner, make_filler(inner), np.empty(left, inner.dtype))
    if gone is None:
        return coded
    levels = np.zeros(frame.count, coded.dtype)
    levels[~gone] = coded
    return levels
