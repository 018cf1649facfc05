"""Quantized frames of floats and integers that have no track: values to levels to bytes, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.factored import FactoredFiller
from lcstore.codec.predicted import decode_predicted
from lcstore.coders import format as f
from lcstore.coders.entropy import encode_any, encode_levels, encode_small, encode_wide
from lcstore.coders.small import Small, narrow_levels
from lcstore.coders.tables import TableCache
from lcstore.dtypes import working_dtype
from lcstore.frames.fill import (
    MANTISSA,
    Filler,
    base_unit,
    log_top,
    make_filler,
    restored,
    step_sizes,
    working,
)
from lcstore.frames.frame import Frame, Framed, build_frame, framed, parse_frame
from lcstore.frames.lossless import decode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.frames.scales import pack_scales
from lcstore.frames.sums import common_steps, to_levels
from lcstore.kernels import quantize

#: Elements that share a scale.
_BLOCK = 1 << f.BLOCK
#: log2 of the largest step size of integers.
_MOST_SHIFT = 62
#: Levels that become values at a time, in cache: whole blocks.
_SPAN = 1 << 16
#: The same of levels whose values are looked at once. So many fall out of the nearest cache, which costs
#: little; of fewer, threads spend their time waiting for Python's lock, which each part takes a few times.
_PART = 1 << 19
#: Values that a scale is estimated from, and how many of them must not be zero.
_SAMPLE, _ENOUGH = 1 << 16, 1 << 8


def encode_linear(
    values: Pieces,
    exponents: Array,
    *,
    mantissa: int = 0,
    threshold: float = 0.5,
    entropy: str = "auto",
    cache: TableCache | None = None,
) -> Framed | None:
    """Code floats as multiples of a step size per block.

    Parameters
    ----------
    values
        Floats, in parts that begin where blocks do.
    exponents
        ``int16``, one per block of ``2**f.BLOCK`` elements: log2 of the step size.
    mantissa
        256ths of their power of two, 0 to 255, that all step sizes have besides.
    threshold
        Magnitude, in step sizes, from which a value is rounded away from zero: 0.5 is to nearest.

    Returns
    -------
    Framed or None
        None where a value is not finite, too large for its step size, or becomes infinite.
    """
    room, found = Small.room(values.size), 0
    scales, tops = 1 / step_sizes(exponents, mantissa), np.zeros(exponents.size, np.int64)
    wide = np.empty(min(_SPAN, values.size), np.int64)
    for at, part in values.parts:
        for low in range(at, at + part.size, _SPAN):
            some = working(part[low - at : low - at + _SPAN])
            blocks, levels = slice(low // _BLOCK, -(-(low + some.size) // _BLOCK)), wide[: some.size]
            if quantize.linear_levels(some, scales[blocks], _BLOCK, 1.0 - threshold, levels) < 0:
                return None
            tops[blocks] = np.maximum.reduceat(np.abs(levels), np.arange(0, some.size, _BLOCK))
            if found >= 0:
                more = narrow_levels(levels, room.levels[low : low + some.size], room.escapes[found:])
                found = found + more if more >= 0 else more
    small = Small(room.levels, room.escapes[:found]) if found >= 0 else None
    return framed_linear(
        values,
        small,
        exponents,
        tops,
        mantissa=mantissa,
        threshold=threshold,
        entropy=entropy,
        cache=cache,
    )


def framed_linear(
    values: Pieces,
    small: Small | None,
    exponents: Array,
    tops: Array,
    *,
    mantissa: int = 0,
    threshold: float = 0.5,
    entropy: str = "auto",
    cache: TableCache | None = None,
) -> Framed | None:
    """Code the levels that values were rounded to, as `encode_linear` does.

    Parameters
    ----------
    values, exponents, mantissa, threshold
        As there. The threshold counts where the wide coder takes the levels, which are then made anew.
    small
        The levels; None where too many are large.
    tops
        ``int64``, one per block: the largest magnitude of its levels.

    Returns
    -------
    Framed or None
        None where a value becomes infinite.
    """
    sizes = step_sizes(exponents, mantissa)
    if not _stays_finite(tops, sizes, values.dtype):
        return None
    coded = None if small is None else encode_small(small, entropy=entropy, cache=cache)
    if coded is None:
        levels = np.empty(values.size, np.int64)
        quantize.linear_levels(working(values.whole), 1 / sizes, _BLOCK, 1.0 - threshold, levels)
        coded = encode_wide(levels, cache=cache)
    return framed(
        coded,
        count=values.size,
        dtype=values.dtype,
        quantizer=f.LINEAR,
        scales=pack_scales(exponents),
        parameter=mantissa,
    )


def _stays_finite(tops: Array, sizes: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether the largest level of each block, and so each, comes back as a finite value.

    Rounding up can leave the range of the dtype.
    """
    with np.errstate(over="ignore"):
        return bool(np.isfinite((tops * sizes).astype(working_dtype(dtype)).astype(dtype)).all())


def encode_integers(values: Array, *, entropy: str = "auto", cache: TableCache | None = None) -> bytes | None:
    """Code ``int32`` or ``int64`` values without loss, a common power of two per block taken out.

    Returns
    -------
    bytes or None
        None where a value is too large for a level.
    """
    shifts = np.clip(common_steps(values, _BLOCK), 0, _MOST_SHIFT)
    levels = values.astype(np.int64)
    to_levels(levels, _BLOCK, shifts)
    if levels.size and (levels.max() >= quantize.MOST or levels.min() <= -quantize.MOST):
        return None
    return build_frame(
        encode_any(levels, entropy=entropy, cache=cache),
        count=values.size,
        dtype=values.dtype,
        quantizer=f.LINEAR,
        scales=pack_scales(shifts),
    )


def encode_log(
    values: Array,
    mantissa: int,
    *,
    entropy: str = "auto",
    cache: TableCache | None = None,
) -> Framed | None:
    """Code values that are not negative on a logarithmic scale of ``2**mantissa`` levels an octave.

    The relative error of normal values is at most ``2**-(mantissa + 1)``, and zero stays the only value that
    becomes zero.

    Returns
    -------
    Framed or None
        None where a value is negative or not finite.
    """
    wide = working(values)
    patterns = wide.view(f"i{wide.itemsize}")
    drop = MANTISSA[wide.itemsize] - mantissa
    levels = np.empty(values.size, np.int64)
    bases = np.zeros(-(-values.size // _BLOCK), np.int64)
    if quantize.log_levels(patterns, drop, log_top(values.dtype), _BLOCK, bases, levels) < 0:
        return None
    unit = base_unit(wide.dtype, mantissa)
    if unit:
        rest = bases & ((1 << unit) - 1)
        levels += np.repeat(rest, _BLOCK)[: levels.size]
        bases >>= unit
    return framed(
        encode_any(levels, entropy=entropy, cache=cache),
        count=values.size,
        dtype=values.dtype,
        quantizer=f.LOG,
        scales=pack_scales(bases.astype(np.int16)),
        parameter=mantissa,
    )


def encode_exponent(
    values: Array, bits: int, *, entropy: str = "symbol", cache: TableCache | None = None
) -> bytes | None:
    """Code values by sign and exponent: the paper's own scheme.

    The ``2**bits - 1`` buckets of the largest exponents are promoted; each stands for the middle of its
    smallest and largest value, and everything else for zero (LC-Checkpoint, ICML 2020, sections 3.2, 3.3).

    Returns
    -------
    bytes or None
        None where a value is not finite.
    """
    wide = working(values)
    mantissa = MANTISSA[wide.itemsize]
    patterns = wide.view(f"u{wide.itemsize}")
    buckets = 1 << (8 * wide.itemsize - mantissa)
    counts, lows, highs = (np.zeros(buckets, np.int64) for _ in range(3))
    quantize.bucket_statistics(patterns, mantissa, counts, lows, highs)
    half = buckets // 2
    if counts[half - 1] or counts[buckets - 1]:
        return None  # the largest exponent is that of infinity and NaN
    chosen = _promote(counts, half, (1 << bits) - 1)
    ids = np.zeros(buckets, np.int8)
    ids[chosen] = np.arange(1, chosen.size + 1)
    top_bits = chosen.astype(np.uint64) << np.uint64(mantissa)
    ends = np.stack((lows[chosen], highs[chosen])).astype(np.uint64) | top_bits
    low, high = ends.astype(patterns.dtype).view(wide.dtype).astype(np.float64)
    table = np.concatenate(([0.0], low + (high - low) / 2)).astype(wide.dtype)
    levels = np.empty(values.size, np.int8)
    quantize.bucket_levels(patterns, mantissa, ids, levels)
    coded = encode_levels(levels, np.empty(0, np.int64), entropy=entropy, cache=cache)
    if coded is None:
        return None
    return build_frame(
        coded,
        count=values.size,
        dtype=values.dtype,
        quantizer=f.EXPONENT,
        scales=table.tobytes(),
        parameter=bits,
    )


def _promote(counts: Array, half: int, keep: int) -> Array:
    """Return the `keep` used buckets of the largest exponents, positive before negative; no subnormals."""
    used = np.flatnonzero(counts)
    used = used[(used % half) != 0]
    order = np.lexsort((used // half, -(used % half)))
    return np.sort(used[order[:keep]])


def decode_values(frame: Frame) -> Array:
    """Return the elements of a frame in their dtype; errors as for `decode_into`."""
    if frame.quantizer == f.PREDICTED:
        return decode_predicted(frame)
    out = np.empty(frame.count, frame.dtype)
    decode_into(frame, out)
    return out


def decode_into(frame: Frame, out: Array) -> None:
    """Fill `out`, contiguous, with the values of a frame of its dtype and size.

    Raises
    ------
    CorruptionError
        The frame does not decode; `out` may then be filled in part.
    """
    if frame.quantizer == f.LOSSLESS:
        decode_lossless(frame, out)
    elif frame.quantizer == f.PREDICTED:
        out[:] = decode_predicted(frame)
    else:
        restored(frame, _filler(frame), out)


def values_back(made: Framed) -> Iterator[tuple[int, Array]]:
    """Yield what `decode_values` gives of a frame just made, in parts, without decoding its levels.

    Each part comes with the place of its first element. It is overwritten by the next.
    """
    frame, small = parse_frame(made.data), made.small
    if small is None or frame.coder == f.ZERO:
        yield 0, decode_values(frame)
        return
    fill, places = _filler(frame), small.places()
    room = np.empty(min(_PART, frame.count), frame.dtype)
    for low in range(0, frame.count, _PART):
        levels = small.levels[low : low + _PART]
        far = slice(*np.searchsorted(places, (low, low + levels.size))) if places.size else slice(0)
        here = places[far] - low
        if here.size:
            levels = levels.copy()
            levels[here] = 0  # these may stand for no value where they are
        part = room[: levels.size]
        fill.run(low, levels, part)
        if here.size:
            part[here] = fill.few(places[far], small.escapes[far])
        yield low, part


def _filler(frame: Frame) -> Filler | FactoredFiller:
    return FactoredFiller(frame) if frame.quantizer in f.OF_MATRICES else make_filler(frame)


def robust_scale(values: Array) -> float:
    """Estimate the typical magnitude: the standard deviation of a normal with the same median magnitude.

    An outlier does not move it, and zeros do not count.
    """
    sizes = _sizes(values if values.size <= _SAMPLE else values[:: values.size // _SAMPLE])
    if sizes.size < _ENOUGH and values.size > _SAMPLE:
        sizes = _sizes(values)
    return float(np.median(sizes)) / 0.6745 if sizes.size else 0.0


def _sizes(values: Array) -> Array:
    """Return the magnitudes of finite values that are not zero, cut to what a step size can be."""
    wide = working(values)
    sizes: Array = np.abs(wide[np.isfinite(wide) & (wide != 0)].astype(np.float64))
    np.minimum(sizes, 2.0**quantize.MOST_EXPONENT, out=sizes)
    return sizes


def exponent_for(scale: float, bits: float) -> int:
    """Return log2 of the step size at which normal values of deviation `scale` take about `bits` bits.

    Their entropy is ``log2(scale / step_size * sqrt(2 pi e))``.
    """
    if scale <= 0:
        return 0
    exponent = math.floor(math.log2(scale) + math.log2(math.sqrt(2 * math.pi * math.e)) - bits + 0.5)
    return max(quantize.LEAST_EXPONENT, min(quantize.MOST_EXPONENT, exponent))
