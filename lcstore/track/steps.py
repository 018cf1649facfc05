"""Which step of the quantizer a tensor takes: a rule of its own update scale, never of the residual coded.

A step tied to the residual runs away (the residual grows with the step). The update scale does not know the
step, so the tracking error stays a fixed part of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Tracking error, in intervals, per ratio of step to update scale (closed loop, measured on real training).
ERROR_PER_RATIO: Final = 0.32
#: An update scale rises at most this much from save to save, and falls at once.
RISE: Final = 1.25
#: The step is kept while it is within this many octaves of the one wanted.
HYSTERESIS: Final = 0.7
#: Bounds of the threshold from which a delta is rounded away from zero, in steps.
LEAST_THRESHOLD, USUAL_THRESHOLD, MOST_THRESHOLD = 0.5, 0.72, 0.9


@dataclass(frozen=True)
class Step:
    """A quantizer's step of ``2**shift`` grid units, its threshold in steps, and the scale it stands on."""

    shift: int
    threshold: float
    scale: float

    @property
    def rounding(self) -> int:
        """Grid units to add before the shift, so that `threshold` steps become one."""
        return (1 << self.shift) - max(1, round(self.threshold * (1 << self.shift)))


def follow(previous: float, now: float) -> float:
    """Return the update scale to work with, from that of the save before and what is seen now."""
    if now <= 0:
        return previous / 2  # frozen: let what is left of the residual in, a bit at a time
    return now if previous <= 0 else min(now, previous * RISE)


def choose_step(scale: float, error: float, grid: int, previous_shift: int | None, most: int) -> Step:
    """Choose the step for a tensor.

    Parameters
    ----------
    scale
        Its update scale, in its own unit.
    error
        Tracking error aimed at, in intervals.
    grid
        log2 of its grid's unit.
    previous_shift
        That of the save before.
    most
        Largest shift allowed.
    """
    if scale <= 0:
        return Step(0, LEAST_THRESHOLD, scale)
    wanted = math.log2(error / ERROR_PER_RATIO * scale) - grid
    shift = round(wanted)
    if previous_shift is not None and abs(previous_shift - wanted) <= HYSTERESIS:
        shift = previous_shift
    shift = max(0, min(shift, most))
    # A step finer than wanted may have a wider zero, a coarser one a narrower: the same error, fewer bits.
    threshold = USUAL_THRESHOLD + 0.2 * (wanted - shift)
    return Step(shift, max(LEAST_THRESHOLD, min(MOST_THRESHOLD, threshold)), scale)
