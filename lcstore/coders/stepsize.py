"""The step size of floats: a power of two, times one of 256 numbers from 1 to 2."""

from __future__ import annotations

import math
from typing import NamedTuple

from lcstore.kernels.quantize import LEAST_EXPONENT, MOST_EXPONENT


class StepSize(NamedTuple):
    """A step size as frames say it: ``(256 + mantissa) / 256 * 2**exponent``."""

    exponent: int
    mantissa: int = 0

    @classmethod
    def at_most(cls, value: float) -> StepSize:
        """Return the largest step size that is no more than a positive `value`; the nearest if none is."""
        fraction, power = math.frexp(min(value, 2.0**MOST_EXPONENT))
        return cls(power - 1, int(fraction * 512) - 256) if power > LEAST_EXPONENT else cls(LEAST_EXPONENT)

    @property
    def allowed(self) -> bool:
        """Return whether a frame may say it."""
        return LEAST_EXPONENT <= self.exponent <= MOST_EXPONENT

    @property
    def size(self) -> float:
        """The step size."""
        return math.ldexp(256 + self.mantissa, self.exponent - 8)
