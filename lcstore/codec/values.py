"""Quantized frames of floats and integers that have no track: values to levels to bytes, and back."""

from __future__ import annotations

import math

import numpy as np

from lcstore.codec import format as f
from lcstore.codec.decode import spans
from lcstore.codec.entropy import encode_any, encode_levels
from lcstore.codec.exact import decode_exact
from lcstore.codec.frame import Frame, build_frame
from lcstore.codec.scales import pack_scales, unpack_scales
from lcstore.codec.tables import TableCache
from lcstore.errors import CorruptionError
from lcstore.kernels import quantize

#: Bits of mantissa, and the pattern of infinity, of the two floats that levels are made from.
_MANTISSA = {4: 23, 8: 52}
_INFINITY = {4: 0x7F800000, 8: 0x7FF0000000000000}
#: log2 of a step must stay here, so that a step and its reciprocal are normal float64 numbers.
MIN_EXPONENT, MAX_EXPONENT = -1022, 1000


def working(values: np.ndarray) -> np.ndarray:
    """Give float32 or float64 values: what narrower floats are computed in."""
    return values if values.dtype.itemsize >= 4 else values.astype(np.float32)


def encode_linear(
    values: np.ndarray,
    exponents: np.ndarray,
    *,
    block: int = f.BLOCK,
    threshold: float = 0.5,
    entropy: str = "auto",
    cache: TableCache | None = None,
) -> bytes | None:
    """Code floats as multiples of a power-of-two step per block.

    Parameters
    ----------
    values
        ``float[n]``, contiguous.
    exponents
        ``int16``, one per block of ``2**block`` elements: log2 of the step.
    threshold
        Magnitude, in steps, from which a value is rounded away from zero: 0.5 is to nearest.

    Returns
    -------
    bytes or None
        The frame; None where a value is not finite or too large for its step.
    """
    levels = np.empty(values.size, np.int64)
    scales = np.ldexp(1.0, -exponents.astype(np.int64))
    if quantize.linear_levels(working(values), scales, 1 << block, 1.0 - threshold, levels) < 0:
        return None
    return build_frame(
        encode_any(levels, entropy=entropy, cache=cache),
        count=values.size,
        dtype=values.dtype,
        quantizer=f.LINEAR,
        scales=pack_scales(exponents),
        block=block,
    )


def encode_integers(values: np.ndarray, *, entropy: str = "auto", cache: TableCache | None = None) -> bytes | None:
    """Code ``int32`` or ``int64`` values exactly, a common power of two per block taken out.

    Returns
    -------
    bytes or None
        None where a value is too large for a level.
    """
    blocks = -(-values.size // (1 << f.BLOCK))
    shifts = np.zeros(blocks, np.int16)
    quantize.common_shifts(values, 1 << f.BLOCK, shifts)
    levels = values.astype(np.int64) >> np.repeat(shifts, 1 << f.BLOCK)[: values.size]
    if levels.size and (levels.max() >= quantize.MOST or levels.min() <= -quantize.MOST):
        return None
    return build_frame(
        encode_any(levels, entropy=entropy, cache=cache),
        count=values.size,
        dtype=values.dtype,
        quantizer=f.LINEAR,
        scales=pack_scales(shifts),
        block=f.BLOCK,
    )


def encode_log(
    values: np.ndarray,
    mantissa: int,
    *,
    block: int = f.BLOCK,
    entropy: str = "auto",
    cache: TableCache | None = None,
) -> bytes | None:
    """Code values that are not negative on a logarithmic scale of ``2**mantissa`` levels an octave.

    The relative error is at most ``2**-(mantissa + 1)``, and zero stays the only value that becomes zero.

    Returns
    -------
    bytes or None
        None where a value is negative or not finite.
    """
    wide = working(values)
    patterns = wide.view(f"i{wide.itemsize}")
    drop = _MANTISSA[wide.itemsize] - mantissa
    levels = np.empty(values.size, np.int64)
    bases = np.zeros(-(-values.size // (1 << block)), np.int64)
    if quantize.log_levels(patterns, drop, _INFINITY[wide.itemsize], 1 << block, bases, levels) < 0:
        return None
    return build_frame(
        encode_any(levels, entropy=entropy, cache=cache),
        count=values.size,
        dtype=values.dtype,
        quantizer=f.LOG,
        scales=pack_scales(bases.astype(np.int16)),
        block=block,
        parameter=mantissa,
    )


def encode_exponent(
    values: np.ndarray, bits: int, *, entropy: str = "symbol", cache: TableCache | None = None
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
    mantissa = _MANTISSA[wide.itemsize]
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
    ends = np.stack((lows[chosen], highs[chosen])) | (chosen.astype(np.uint64) << np.uint64(mantissa)).astype(np.int64)
    floats = ends.astype(np.uint64).astype(patterns.dtype).view(wide.dtype).astype(np.float64)
    table = np.concatenate(([0.0], floats.mean(axis=0))).astype(wide.dtype)
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
        block=f.BLOCK,
        parameter=bits,
    )


def _promote(counts: np.ndarray, half: int, keep: int) -> np.ndarray:
    """Give the `keep` used buckets of the largest exponents, positive before negative; never the subnormals'."""
    used = np.flatnonzero(counts)
    used = used[(used % half) != 0]
    order = np.lexsort((used // half, -(used % half)))
    return np.sort(used[order[:keep]])


def decode_values(frame: Frame, low: int = 0, high: int | None = None) -> np.ndarray:
    """Give elements ``low:high`` of a frame in their dtype.

    Raises
    ------
    CorruptionError
        The frame does not decode.
    """
    high = frame.count if high is None else high
    if frame.quantizer == f.EXACT:
        return decode_exact(frame)[low:high]
    wide = np.dtype(np.float32) if frame.dtype.itemsize < 4 else frame.dtype
    fill = _filler(frame, wide)
    first = (low >> f.SEGMENT) << f.SEGMENT  # a multiple of every block and segment
    out = np.zeros(high - first, wide) if frame.quantizer != f.LOG else _log_zeros(frame, first, high, wide)
    for span in spans(frame, low, high):
        begin = span.start - first
        count = min(span.levels.size, out.size - begin)
        fill(span.start, span.levels[:count], out[begin : begin + count])
        near = span.places < count
        for place, value in zip(span.places[near].tolist(), span.values[near].tolist(), strict=True):
            one = np.array([value], np.int64)
            fill(span.start + place, one, out[begin + place : begin + place + 1])
    return out[low - first :].astype(frame.dtype, copy=False)


def _filler(frame: Frame, wide: np.dtype):  # type: ignore[no-untyped-def]
    """Make the function that turns levels from some element on into values."""
    block = 1 << frame.block
    if frame.quantizer == f.EXPONENT:
        table = np.frombuffer(frame.scales, wide) if len(frame.scales) % wide.itemsize == 0 else np.empty(0)
        if frame.dtype.kind not in "fV" or not 2 <= table.size <= 128:
            raise CorruptionError("the frame's bucket values are malformed")

        def fill_table(start: int, levels: np.ndarray, out: np.ndarray) -> None:
            _check(quantize.table_values(levels, table, out))

        return fill_table
    scales = unpack_scales(frame.scales, frame.blocks)
    if frame.quantizer == f.LOG:
        return _log_filler(frame, scales, wide)
    if frame.dtype.kind == "i" and frame.dtype.itemsize >= 4:
        if scales.size and (scales.min() < 0 or scales.max() > 62):
            raise CorruptionError("the frame's shifts are out of range")

        def fill_integers(start: int, levels: np.ndarray, out: np.ndarray) -> None:
            quantize.integer_values(levels, scales[start // block :][: -(-levels.size // block)], block, out)

        return fill_integers
    if frame.dtype.kind not in "fV" or frame.dtype.itemsize < 2:
        raise CorruptionError(f"a linear frame cannot hold {frame.dtype}")
    if scales.size and (scales.min() < MIN_EXPONENT or scales.max() > MAX_EXPONENT):
        raise CorruptionError("the frame's steps are out of range")
    steps = np.ldexp(1.0, scales.astype(np.int64))

    def fill_linear(start: int, levels: np.ndarray, out: np.ndarray) -> None:
        quantize.linear_values(levels, steps[start // block :][: -(-levels.size // block)], block, out)

    return fill_linear


def _log_filler(frame: Frame, scales: np.ndarray, wide: np.dtype):  # type: ignore[no-untyped-def]
    if frame.dtype.kind not in "fV" or frame.parameter > 7:
        raise CorruptionError("a logarithmic frame's parameter is out of range")
    block = 1 << frame.block
    bases = scales.astype(np.int64)
    drop = _MANTISSA[wide.itemsize] - frame.parameter
    top = _INFINITY[wide.itemsize]

    def fill_log(start: int, levels: np.ndarray, out: np.ndarray) -> None:
        part = bases[start // block :][: -(-levels.size // block)]
        _check(quantize.log_values(levels, drop, top, block, part, out.view(f"i{wide.itemsize}")))

    return fill_log


def _log_zeros(frame: Frame, first: int, high: int, wide: np.dtype) -> np.ndarray:
    """Give what levels of zero stand for: each block's base."""
    out = np.empty(high - first, wide)
    if frame.coder == f.ZERO and out.size:
        _filler(frame, wide)(first, np.zeros(out.size, np.int8), out)
    return out


def _check(status: int) -> None:
    if status < 0:
        raise CorruptionError("a level of the frame stands for no value")


def robust_scale(values: np.ndarray) -> float:
    """Estimate the typical magnitude: the standard deviation of a normal with the same median magnitude.

    An outlier does not move it, and zeros do not count.
    """
    sample = values if values.size <= 1 << 16 else values[:: values.size >> 16]
    sizes = np.abs(sample[sample != 0].astype(np.float64))
    sizes = sizes[np.isfinite(sizes)]
    return float(np.median(sizes)) / 0.6745 if sizes.size else 0.0


def exponent_for(scale: float, bits: float) -> int:
    """Give log2 of the step at which normal values of deviation `scale` take about `bits` bits.

    Their entropy is ``log2(scale / step * sqrt(2 pi e))``.
    """
    if scale <= 0:
        return 0
    exponent = math.floor(math.log2(scale) + math.log2(math.sqrt(2 * math.pi * math.e)) - bits + 0.5)
    return max(MIN_EXPONENT, min(MAX_EXPONENT, exponent))
