"""Which step size of the quantizer a tensor takes: a rule of its own update scale, never of the residual.

A step size tied to the residual runs away (the residual grows with it). The update scale does not know the
step size, so the tracking error stays a fixed part of it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from lcstore.frames.scales import log2_of, scale_of, shift_of, step_size_of
from lcstore.once import once

_Row: TypeAlias = tuple[float, ...]

#: An update scale rises at most this much from save to save, and falls at once.
RISE: Final = 1.25
#: Down to this part of it an update scale counts as the same where it is seen in few rows.
STEADY: Final = 0.5
#: What a float32 can be told from its neighbour by.
_BIT: Final = 2.0**-23
#: What is left in a row stays until it is touched again, so that it adds up over rows touched long ago: where
#: rows are touched one by one, the error aimed at, in updates of a row, is this part of the usual.
IN_ROWS: Final = 0.67
#: The step size is kept while it is within so many octaves of the one wanted; the second number is for errors
#: below `FINE`, where one that is too fine costs most.
HYSTERESIS, HYSTERESIS_FINE, FINE = 0.4, 0.25, 0.6
#: Bounds of the threshold from which a delta is rounded away from zero, in step sizes.
LEAST_THRESHOLD, MOST_THRESHOLD = 0.5, 0.95
#: By so much a threshold may be wanted below the least before a coarse step size is given up.
NEAREST_MISS: Final = 0.03
#: Change of the threshold that makes up for a step size that is one octave finer than wanted.
PER_OCTAVE: Final = 0.54
#: By tracking error: step size over update scale, threshold, and distance of further thresholds, in step
#: sizes. They are near the best in a closed loop of normal updates, and interpolated in between. Thresholds
#: are a little lower, as the last hundredths of the bytes are bought with a track that lags behind.
BEST: Final = (
    (0.1, 0.346, 0.515, 1.01),
    (0.35, 1.15, 0.565, 1.1),
    (FINE, 1.77, 0.68, 1.03),
    (0.7, 2.08, 0.7, 1.0),
    (1.0, 2.98, 0.7, 1.0),
    (2.0, 6.2, 0.72, 1.0),
    (4.0, 11.2, 0.86, 1.0),
)
#: By the part of an update that goes on from save to save: the threshold at which fewest bytes give an error,
#: whichever, less a little, which costs under a hundredth of the bytes and takes a third off the lag.
TREND: Final = (
    (0.0, 0.86),
    (0.1, 0.69),
    (0.2, 0.645),
    (0.35, 0.61),
    (0.5, 0.575),
    (0.7, 0.545),
    (1.0, 0.52),
)
#: A step size that is so many octaves above the update scale says no more.
_MOST_OCTAVES: Final = 64.0
#: From this part on an update is a trend. Thresholds behind the first lie in the middle (large changes that
#: are always rounded down add up). None makes up for a step size that is finer than wanted (the track would
#: lag behind, and its error grow by more than the bytes fall), so it is kept as closely as at fine errors.
A_TREND: Final = 0.25
#: Variance of what rounding leaves, for a step size of 1 and a threshold of 1/2, and what a threshold off
#: that adds, by its square.
LEFT, OFF = 1 / 12, 0.72


@dataclass(frozen=True)
class StepSize:
    """A quantizer's step size, in the words of a frame's scale, and where it rounds.

    Attributes
    ----------
    scale
        1, 3, 5 or 7 times a power of two, four to the octave: as in :mod:`lcstore.frames.scales`.
    threshold
        From where on a delta is not zero, in step sizes.
    width
        Distance of the thresholds behind it, in step sizes.
    """

    scale: int
    threshold: float = LEAST_THRESHOLD
    width: float = 1.0

    @once
    def units(self) -> int:
        """The step size in grid units."""
        return step_size_of(self.scale)

    @property
    def gain(self) -> float:
        """What a delta is multiplied by before it is rounded down to its level."""
        return 1 / (self.width * self.units)

    @property
    def rounding(self) -> float:
        """What is added before that, so that `threshold` step sizes become one level."""
        return 1 - self.threshold / self.width

    def finer(self, octaves: int) -> StepSize:
        """Return a step size that is finer by so many octaves, or as fine as the grid."""
        shift = shift_of(self.scale)
        if octaves > shift:
            return StepSize(0)
        return replace(self, scale=self.scale - octaves) if octaves else self

    def at_rest(self) -> StepSize:
        """Return the power of two that is not below this, which rounds to nearest, and ties to zero."""
        return StepSize(math.ceil(log2_of(self.scale)), LEAST_THRESHOLD + 0.01)


def nearest(wanted: float, most: int) -> int:
    """Return the scale of the step size whose log2, above the grid's unit, is nearest to `wanted`."""
    quarters = [(math.log2(quarter), quarter) for quarter in (4, 5, 6, 7, 8)]
    bounded = max(0.0, min(wanted, float(most)))
    octave = math.floor(bounded)
    _, quarter = min((abs(log - 2 - (bounded - octave)), quarter) for log, quarter in quarters)
    if octave < 2 and (quarter << octave) & 3:  # not a whole number of units
        quarter = 8 if bounded - octave > 0.5 else 4
    shift = octave - 2
    while quarter & 1 == 0:
        quarter, shift = quarter >> 1, shift + 1
    return scale_of(quarter, shift)


def best(error: float, trend: float = 0.0) -> tuple[float, float, float]:
    """Return step size over update scale, threshold and width for a tracking error.

    Parameters
    ----------
    error
        The tracking error aimed at, in intervals.
    trend
        Which part of an update goes on from save to save, 0 to 1. A wide zero saves the bytes of what noise
        undoes by itself; where nothing is undone it only makes the track lag behind.
    """
    ratio, threshold, width = _of_noise(error)
    lower = min(threshold, _threshold_of(trend))
    part = min(1.0, trend / A_TREND)
    before, after = (LEFT + OFF * (at - LEAST_THRESHOLD) ** 2 for at in (threshold, lower))
    of_noise, of_trend = ratio * math.sqrt(before / after), error / math.sqrt(after)
    ratio = math.pow(of_noise, 1 - part) * math.pow(of_trend, part)
    return ratio, lower, width + part * (1 - width)


def _around(rows: Sequence[_Row], value: float, column: int = 0) -> tuple[_Row, _Row]:
    """Return the rows whose `column` is next to a value: one of them twice where it is beyond them all."""
    place = bisect_left(rows, value, key=lambda row: row[column])
    return rows[max(place - 1, 0)], rows[min(place, len(rows) - 1)]


def _threshold_of(trend: float) -> float:
    (x0, y0), (x1, y1) = _around(TREND, trend)
    return y0 if x1 == x0 else y0 + (trend - x0) / (x1 - x0) * (y1 - y0)


@lru_cache(maxsize=64)  # most tensors have one error
def _of_noise(error: float) -> tuple[float, float, float]:
    low, high = _around(BEST, error)
    if low is high:
        return low[1] * error / low[0], low[2], low[3]
    part = math.log(error / low[0]) / math.log(high[0] / low[0])
    ratio = low[1] * math.pow(high[1] / low[1], part)
    return ratio, low[2] + part * (high[2] - low[2]), low[3] + part * (high[3] - low[3])


def error_of(ratio: float) -> float:
    """Return the tracking error at a step size of `ratio` update scales: the inverse of `best`."""
    low, high = _around(BEST, ratio, 1)
    if low is high:
        return low[0] * ratio / low[1]
    return low[0] * math.pow(high[0] / low[0], math.log(ratio / low[1]) / math.log(high[1] / low[1]))


def error_at(scale: int, grid: int, update: float) -> float:
    """Return the tracking error that a recorded step size stands for.

    Parameters
    ----------
    scale, grid
        The step size, above 2 to the power `grid`.
    update
        The update scale, above 0.
    """
    return error_of(2.0 ** min(log2_of(scale) + grid - math.log2(update), _MOST_OCTAVES))


def follow(previous: float, now: float, *, rows: bool = False, before: float = 0.0) -> float:
    """Return the update scale, from that of the save before and what is seen now: 0 where nothing moved.

    It rises to what it was `before` at once, where it fell for a save or two.

    Where few `rows` are touched, few of them are sampled: a scale that is no less than half is the same. Each
    fall would let in a part of what is left in every row.
    """
    if now <= 0 or (rows and previous * STEADY <= now <= previous):
        return previous
    return now if previous <= 0 else unlike(min(now, max(previous * RISE, before)), previous)


def unlike(now: float, previous: float) -> float:
    """Return how far something moved; a bit of float32 less than before, where it is the same as before.

    A record that says the same as the one before, to the bit, says that nothing moved.
    """
    return previous * (1 - _BIT) if abs(now - previous) <= previous * _BIT else now


def choose_step_size(
    update: float, error: float, grid: int, previous: int | None, most: int, trend: float = 0.0
) -> StepSize:
    """Choose the step size for a tensor.

    Parameters
    ----------
    update
        Its update scale, in its own unit.
    error
        Tracking error aimed at, in intervals.
    grid
        log2 of its grid's unit.
    previous
        The scale of its step size of the save before.
    most
        Most octaves of a step size above the grid's unit.
    trend
        Which part of its update goes on from save to save.
    """
    if update <= 0:
        return StepSize(0)
    ratio, threshold, width = best(error, trend)
    wanted = math.log2(ratio * update) - grid
    scale = previous
    # One finer than wanted may have a wider zero, a coarser one a narrower, down to rounding to nearest.
    finest = HYSTERESIS if error >= FINE and trend < A_TREND else HYSTERESIS_FINE
    coarsest = min(finest, (threshold + NEAREST_MISS - LEAST_THRESHOLD) / PER_OCTAVE)
    if scale is None or not -coarsest <= wanted - log2_of(scale) <= finest or shift_of(scale) > most:
        scale = nearest(wanted, most)
    threshold += PER_OCTAVE * (1 - min(1.0, trend / A_TREND)) * (wanted - log2_of(scale))
    return StepSize(scale, max(LEAST_THRESHOLD, min(MOST_THRESHOLD, threshold)), width)
