"""How coarse first moments are to be for some bits an element, and from where on they are not zero.

Rounding to the nearest multiple loses what is small, and what is restored is too short: at one bit, normal
values keep 0.84 of what they have along themselves. Thresholds here are those at which they keep all of it,
whatever the step size: with values ``v`` that become ``w``, the sum of ``v * w`` is that of ``v * v``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np

from lcstore.edges.coarse import Rule
from lcstore.kernels.quantize import PARTS

#: Deviations, above which a normal value does not occur.
_FAR = 9.0
#: Step sizes, in deviations, below which rounding to the nearest loses nothing, and below which the entropy
#: of levels is what it is in the limit.
_NEAREST, _FINE = 1.4, 0.5


@lru_cache
def rule_for(bits: float) -> Rule:
    """Return the rule at which levels of normal values have an entropy of `bits`, on average over blocks.

    Step sizes are powers of two, so those of blocks lie within half an octave of the one wanted.
    """
    low, high = 2.0**-15, 2.0**5
    for _ in range(40):
        middle = math.sqrt(low * high)
        steps, _ = _steps(middle)
        if sum(map(_entropy, steps[::8])) > bits * len(steps[::8]):
            low = middle
        else:
            high = middle
    steps, shifts = _steps(low)
    return Rule(np.array(shifts, np.int16), np.array([threshold_for(step) for step in steps]))


def _steps(wanted: float) -> tuple[list[float], list[int]]:
    """Return for each part of an octave the step size over the root mean square, and its shift.

    The root of the mean square ``part * 2**power`` is taken in the middle of each part.
    """
    half = PARTS // 2
    parts = range(PARTS)
    sizes = [math.sqrt((0.5 + (i % half + 0.5) / PARTS) * 2 ** (i // half)) for i in parts]
    shifts = [math.floor(math.log2(wanted * size) + 0.5) for size in sizes]
    return [2.0**shift / size for shift, size in zip(shifts, sizes, strict=True)], shifts


def threshold_for(step: float) -> float:
    """Return the threshold, in steps, at which normal values come back with what they have along themselves.

    Level ``k`` of a step of `step` deviations begins at ``(threshold + k - 1) * step``. The expectation of a
    value times what it becomes is the sum over `k` of ``2 * step * density(begin)``; it is to be 1.
    """
    if step < _NEAREST:
        return 0.5
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if 2 * step * sum(map(_density, _begins(step, middle))) > 1:
            low = middle
        else:
            high = middle
    return low


@lru_cache(maxsize=1024)  # the search for a step size meets the same powers of two again and again
def _entropy(step: float) -> float:
    """Return the entropy of the levels of normal values, in bits."""
    if step < _FINE:
        return math.log2(math.sqrt(2 * math.pi * math.e) / step)
    tails = [math.erfc(begin / math.sqrt(2)) / 2 for begin in _begins(step, threshold_for(step))] + [0.0]
    parts = [upper - lower for upper, lower in pairwise(tails)]
    some = [1 - 2 * tails[0], *parts, *parts]
    return -sum(part * math.log2(part) for part in some if part > 0)


def _begins(step: float, threshold: float) -> list[float]:
    return [(threshold + k) * step for k in range(int(_FAR / step) + 1)]


def _density(at: float) -> float:
    return math.exp(-at * at / 2) / math.sqrt(2 * math.pi)
