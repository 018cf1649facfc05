"""How large an edge will be that merges others, from the sizes of those.

The variance of the levels of a delta grows with its bits per weight, b, about as 4**b - 1: small ones are
mostly zero, and of large ones each bit is a doubling. Variances add when deltas are summed, as the moves of
the weights are nearly independent from one save to the next, and the sum of the variances tells the bits of
the merged edge. For rounded Laplace values this is right to 5 % from a third of a bit per weight on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

#: Bits of the integers that weights are tracked as, nearly all of them noise after some deltas; more than the
#: weights have themselves where these are bfloat16.
GRID_BITS: Final = 26
#: No edge counts as more bits per weight than this: beyond it a name is wrong, or the edge sets everything.
MOST_BITS: Final = 64.0


@dataclass(frozen=True)
class Sizes:
    """Turns bytes of edges into *spreads*, which add up along a branch, and back.

    Parameters
    ----------
    elements
        Weights in a state, at least 1.

    Raises
    ------
    ValueError
        `elements` is out of its range.
    """

    elements: int

    def __post_init__(self) -> None:
        if self.elements < 1:
            raise ValueError(f"elements must be at least 1, not {self.elements}")

    @property
    def anchor(self) -> int:
        """The least that an anchor is counted as that merging makes: integers of the grid for all weights."""
        return self.elements * GRID_BITS // 8

    def spread(self, nbytes: int) -> float:
        """Return the spread of an edge of `nbytes`."""
        bits = min(max(nbytes, 1e-9) * 8 / self.elements, MOST_BITS)
        return math.expm1(bits * math.log(4))

    def nbytes(self, spread: float) -> int:
        """Return the bytes of an edge of that spread; 0 for none."""
        return round(math.log1p(max(spread, 0.0)) / math.log(4) * self.elements / 8)
