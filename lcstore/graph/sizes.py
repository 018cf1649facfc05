"""How large an edge will be that merges others, from the sizes of those.

The levels of a delta look like rounded Laplace values. Their number of bits tells their variance; variances
add when deltas are summed (the moves of the weights are nearly independent from one save to the next), and
the sum of the variances tells the bits of the merged edge.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

#: Bits of the integers that weights are tracked as, nearly all of them noise after some deltas; more than the
#: weights have themselves where these are bfloat16.
GRID_BITS: Final = 26
#: No edge counts as more bits per weight than this: beyond it a name is wrong, or the edge sets everything.
MOST_BITS: Final = 64.0


def _entropy(p: float) -> float:
    return -p * math.log2(p) - (1 - p) * math.log2(1 - p) if 0 < p < 1 else 0.0


def _rounded_laplace(scale: float) -> tuple[float, float]:
    """Return bits per value and log2 of the variance, for a standard deviation of `scale` before rounding."""
    decay = math.sqrt(2) / scale
    again, nonzero = math.exp(-decay), math.exp(-decay / 2)
    bits = _entropy(nonzero) + nonzero * (1 + _entropy(again) / (1 - again))
    return bits, math.log2(nonzero * (1 + again) / (1 - again) ** 2)


_CURVE = [_rounded_laplace(2 ** (i / 8)) for i in range(-32, 81)]
_BITS = [bits for bits, _ in _CURVE]
_LOG_VARIANCE = [log_variance for _, log_variance in _CURVE]


def _log_variance(bits: float) -> float:
    """Return log2 of the variance of levels of so many bits; above the table a bit is two doublings."""
    bits = min(bits, MOST_BITS)
    if bits <= _BITS[0]:
        # Nearly all zero: as many bits, as many ones.
        return _LOG_VARIANCE[0] + math.log2(max(bits, 1e-12) / _BITS[0])
    if bits >= _BITS[-1]:
        return _LOG_VARIANCE[-1] + 2 * (bits - _BITS[-1])
    return _between(_BITS, _LOG_VARIANCE, bits)


def _bits(log_variance: float) -> float:
    if log_variance <= _LOG_VARIANCE[0]:
        return _BITS[0] * 2 ** (log_variance - _LOG_VARIANCE[0])
    if log_variance >= _LOG_VARIANCE[-1]:
        return _BITS[-1] + (log_variance - _LOG_VARIANCE[-1]) / 2
    return _between(_LOG_VARIANCE, _BITS, log_variance)


def _between(xs: list[float], ys: list[float], x: float) -> float:
    i = bisect_left(xs, x)
    part = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
    return ys[i - 1] + part * (ys[i] - ys[i - 1])


@dataclass(frozen=True)
class Sizes:
    """Turns bytes of edges into *spreads*, which add up along a lineage, and back.

    Parameters
    ----------
    elements
        Weights in a state, at least 1.
    drift
        How a distance grows with the number of saves: 0.5 where every save moves the weights in a new
        direction, towards 1 where they keep going the same way.

    Raises
    ------
    ValueError
        A parameter is out of its range.
    """

    elements: int
    drift: float = 0.5

    def __post_init__(self) -> None:
        if self.elements < 1:
            raise ValueError(f"elements must be at least 1, not {self.elements}")
        if not 0.5 <= self.drift <= 1:
            raise ValueError(f"drift must be between 0.5 and 1, not {self.drift}")

    @property
    def anchor(self) -> int:
        """The least that an anchor is counted as that merging makes: integers of the grid for all weights."""
        return self.elements * GRID_BITS // 8

    def spread(self, nbytes: int) -> float:
        """Return the spread of an edge of `nbytes`."""
        return math.pow(2.0, _log_variance(nbytes * 8 / self.elements) / (2 * self.drift))

    def nbytes(self, spread: float) -> int:
        """Return the bytes of an edge of that spread; 0 for none."""
        if spread <= 0:
            return 0
        return round(_bits(2 * self.drift * math.log2(spread)) * self.elements / 8)
