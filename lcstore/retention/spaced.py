"""Keeping many recent states and few old ones, at distances that grow with the age."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from lcstore.retention.base import Keep, check_number
from lcstore.retention.candidates import Candidate


@dataclass(frozen=True, slots=True, repr=False)
class LogSpaced(Keep):
    """Keep states whose ages grow by a factor of at most `base`.

    The age of a state is how many steps it lies behind the highest step there is. For a save that was ever
    made, ``a >= 1`` steps ago, a state of an age from ``a`` to ``base * a`` is kept: the recent past
    densely, the beginning always, and in all a number that grows with the logarithm of the steps (about 2
    for each doubling of the age with ``base=2``). Of a step that was saved again only the newest revision
    counts.

    Thinning as the run goes on gives the same as thinning its whole history at the end. So a state that was
    let go is never missed later. A run that was rolled back is thinned by its distance from the highest step
    until it passes that; unite with `LatestN` to keep its latest commits.

    Notes
    -----
    On level ``l`` the steps are cut into intervals of ``2**l`` from step 0 on, and the first save of an
    interval is kept while its beginning is less than ``2**l * (base + 1) / (base - 1)`` steps ago. Take a
    save of age ``a`` and the greatest ``2**l <= (base - 1) * a``, or 1 if there is none: the first save of
    its interval is still kept, and is less than ``2**l`` older. Intervals of fixed bounds are what makes
    the choice the same at all times.
    """

    base: float = 2.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", float(check_number("LogSpaced", "base", self.base, 1, 1e300)))

    def named(self, candidates: Sequence[Candidate]) -> set[str]:
        """Return the first nodes of all intervals that are young enough for their level."""
        newest = {item.step: item.node for item in candidates}
        steps = sorted(newest)
        # Exact fractions: a float would be off by many steps where steps count in trillions.
        ratio = (Fraction(self.base) + 1) / (Fraction(self.base) - 1)
        chosen: set[int] = set()
        for level in range(steps[-1].bit_length() + 1):
            chosen.update(_first_saves(steps, 1 << level, math.ceil(ratio * (1 << level))))
        return {newest[step] for step in chosen}


def _first_saves(steps: Sequence[int], width: int, too_old: int) -> list[int]:
    """Return the first of `steps` in each interval of `width` that begins less than `too_old` steps ago."""
    first = -(-(steps[-1] - too_old + 1) // width) * width
    found = []
    at = bisect_left(steps, first)
    while at < len(steps):
        found.append(steps[at])
        at = bisect_left(steps, (steps[at] // width + 1) * width, lo=at + 1)
    return found
