"""Levels to values: what each quantizer's levels stand for, computed the same on every machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.coders import format as f
from lcstore.dtypes import LOSSY_DTYPES, clear, to_float16, working_dtype
from lcstore.errors import CorruptionError
from lcstore.frames.decode import Levels, Span
from lcstore.frames.frame import Frame
from lcstore.frames.scales import unpack_scales
from lcstore.kernels import quantize

#: Bits of mantissa, and the pattern of infinity, of the two floats that levels are made from.
MANTISSA = {4: 23, 8: 52}
_INFINITY = {4: 0x7F800000, 8: 0x7FF0000000000000}
#: float16 is computed in float32, where this pattern (65536) is the first that it does not hold.
_INFINITY_OF_HALF = 0x47800000
MOST_MANTISSA = 7
_Fill: TypeAlias = Callable[[Array, Array, int, Array], int]


def working(values: Array) -> Array:
    """Return values in their `working_dtype`."""
    with np.errstate(invalid="ignore"):  # a NaN may be a signalling one
        return values.astype(working_dtype(values.dtype), copy=False)


def log_top(dtype: np.dtype[Any]) -> int:
    """Return the pattern, in the working dtype, that values must stay below to be finite in `dtype`."""
    return _INFINITY_OF_HALF if dtype == np.float16 else _INFINITY[working_dtype(dtype).itemsize]


def base_unit(wide: np.dtype[Any], mantissa: int) -> int:
    """Return log2 of what a base is counted in: float64 has more codes than a 16-bit scale can tell apart."""
    return max(mantissa - 4, 0) if wide.itemsize == 8 else 0


@dataclass(frozen=True)
class Filler:
    """Turns levels into values: `fill` is given levels, the scale of each block, the block and the output."""

    fill: _Fill
    scales: Array
    block: int
    wide: np.dtype[Any]
    dtype: np.dtype[Any]

    def in_order(self, span: Span) -> Span:
        """Return levels as they are: where their elements are."""
        return span

    def run(self, start: int, levels: Array, out: Array) -> None:
        """Fill `out` with the values of neighbours; `start` begins a block."""
        first = start >> self.block
        scales = self.scales[first : first - (-levels.size >> self.block)]
        same = self.wide == self.dtype
        values = out if same else np.empty(levels.size, self.wide)
        self._fill(levels, scales, 1 << self.block, values)
        if not same:
            out[:] = self._narrow(values)

    def few(self, places: Array, levels: Array) -> Array:
        """Return the values of scattered elements."""
        values = np.empty(levels.size, self.wide)
        self._fill(levels, self.scales[places >> self.block] if self.scales.size else self.scales, 1, values)
        return self._narrow(values)

    def _narrow(self, values: Array) -> Array:
        if self.dtype == np.float16:
            return to_float16(values)
        with np.errstate(over="ignore"):  # as the kernels do; nothing that was coded becomes infinite
            return values.astype(self.dtype, copy=False)

    def _fill(self, levels: Array, scales: Array, block: int, out: Array) -> None:
        if self.fill(levels, scales, block, out) < 0:
            raise CorruptionError("a level of the frame stands for no value")


def make_filler(frame: Frame) -> Filler:
    """Choose how levels become values, and check the scales."""
    dtype = frame.dtype
    integers = dtype.kind == "i" and dtype.itemsize >= 4
    if not integers and dtype.name not in LOSSY_DTYPES:
        raise CorruptionError(f"a quantized frame cannot hold {dtype}")
    wide = working_dtype(dtype)
    if frame.quantizer == f.LINEAR:
        fill, scales = _linear_fill(frame, unpack_scales(frame.scales, frame.blocks), integers)
    elif integers:
        raise CorruptionError(f"a frame of this quantizer cannot hold {dtype}")
    elif frame.quantizer == f.LOG:
        fill, scales = _log_fill(frame, unpack_scales(frame.scales, frame.blocks), wide)
    else:
        fill, scales = _table_fill(frame, wide), np.empty(0)
    return Filler(fill, scales, frame.block, wide, dtype)


def _linear_fill(frame: Frame, scales: Array, integers: bool) -> tuple[_Fill, Array]:
    if not integers:
        return quantize.linear_values, step_sizes(scales, frame.parameter)
    if frame.parameter or ((scales < 0) | (scales > f.MOST_STEP) | (scales & 63 == 63)).any():
        raise CorruptionError("the frame's step sizes are out of range")
    return quantize.integer_values, scales


def step_sizes(exponents: Array, mantissa: int) -> Array:
    """Return the step sizes of floats, ``float64``, of the scales of blocks, ``int16``."""
    least, most = quantize.LEAST_EXPONENT, quantize.MOST_EXPONENT
    if exponents.size and not least <= exponents.min() <= exponents.max() <= most:
        raise CorruptionError("the frame's step sizes are out of range")
    return np.ldexp(256.0 + mantissa, exponents.astype(np.int64) - 8)


def _log_fill(frame: Frame, scales: Array, wide: np.dtype[Any]) -> tuple[_Fill, Array]:
    mantissa = frame.parameter
    if mantissa > MOST_MANTISSA or (scales.size and scales.min() < 0):
        raise CorruptionError("a logarithmic frame's parameter or bases are out of range")
    drop = MANTISSA[wide.itemsize] - mantissa
    top = log_top(frame.dtype)

    def fill(levels: Array, bases: Array, block: int, out: Array) -> int:
        return quantize.log_values(levels, drop, top, block, bases, out.view(f"i{wide.itemsize}"))

    return fill, scales.astype(np.int64) << base_unit(wide, mantissa)


def _table_fill(frame: Frame, wide: np.dtype[Any]) -> _Fill:
    data = bytes(frame.scales)
    table = np.frombuffer(data, wide).copy() if len(data) % wide.itemsize == 0 else np.empty(0)
    if not 1 <= table.size <= 128 or not np.isfinite(table).all() or any(data[: wide.itemsize]):
        raise CorruptionError("the frame's bucket values are malformed")

    def fill(levels: Array, _scales: Array, _block: int, out: Array) -> int:
        return quantize.table_values(levels, table, out)

    return fill


class Filling(Protocol):
    """Turns levels into values."""

    def in_order(self, span: Span) -> Span:
        """Return levels where their elements are, of a frame that may have them in another order."""

    def run(self, start: int, levels: Array, out: Array) -> None:
        """Fill `out` with the values of neighbours."""

    def few(self, places: Array, levels: Array) -> Array:
        """Return the values of scattered elements."""


def restored(frame: Frame, fill: Filling, out: Array) -> Array:
    """Fill `out` with the values of a frame of levels, in its dtype, and return it.

    Raises
    ------
    CorruptionError
        The frame does not decode.
    """
    if frame.coder == f.ZERO:
        clear(out)
    coded = _zero_spans(frame) if frame.coder == f.ZERO else Levels(frame).spans(0, out.size)
    for span in map(fill.in_order, coded):
        here = out[span.start : span.start + span.levels.size]
        fill.run(span.start, span.levels, here)
        if span.places.size:
            here[span.places] = fill.few(span.start + span.places, span.values)
    return out


def _zero_spans(frame: Frame) -> Iterator[Span]:
    """Yield levels of zero: on logarithmic scales they stand for more than zero."""
    if frame.quantizer in (f.LOG, *f.OF_MATRICES):
        for start in range(0, frame.count, 1 << f.SEGMENT):
            levels = np.zeros(min(frame.count - start, 1 << f.SEGMENT), np.int8)
            yield Span(start, levels, np.empty(0, np.int64), np.empty(0, np.int64))
