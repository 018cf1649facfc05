"""By how much weights outgrew the grid that they had, by the grids that records name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.report.note import Note

#: Octaves that a grid grew by since the middle of the line that are worth a note.
GROWTH: Final = 3
#: Octaves between grids from one state to the next that no slow growth makes: that uses a grid up, and the
#: next one is four octaves above.
_LEAP: Final = 5
#: States from which on a leap is no beginning.
_LEAST: Final = 4


class Growth(NamedTuple):
    """By how much a grid grew since the middle of the line, or since before it leapt.

    Attributes
    ----------
    octaves
        That much.
    step
        Where it shows. A grid has room for some growth, so that begins before.
    before
        Where the grid was chosen that it had then.
    """

    octaves: int
    step: int
    before: int

    def noted(self, mark: str) -> Note:
        """Return where it grew, and behind a mark how many times as large the largest weight was then."""
        shown = Note(f"at step {{}} at the latest{mark} ", ((self.step,),), (self.step,))
        words = "its largest weight came to {} times what it was at step {}"
        return shown + Note(words, (times(self.octaves), (self.before,)))


def times(octaves: float) -> tuple[float, float]:
    """Return by how much two numbers differ that were rounded up to powers of two: at the least and most."""
    return 2.0 ** min(octaves - 1, 1000), 2.0 ** min(octaves + 1, 1000)


def outgrown(grid: Array, steps: Sequence[int]) -> Growth:
    """Return by how much a tensor outgrew the grid that it had, by its grids and their steps."""
    known = np.flatnonzero(np.isfinite(grid))
    # So much at once is no growth from small beginnings, which is over by the middle.
    leaps = known[:-1][(np.diff(grid[known]) >= _LEAP) & (known[:-1] >= max(_LEAST, len(grid) // 8))]
    later = known[known >= min([len(grid) // 2, *leaps[:1]])]
    if not len(later):
        return Growth(0, steps[-1], steps[0])
    grown = grid[known] - grid[later[0]]
    as_before = np.flatnonzero(grown[known >= later[0]] <= 0)
    others = np.flatnonzero(grown[known < later[0]])
    chosen = known[others[-1] + 1 if len(others) else 0]
    return Growth(int(grown[-1]), steps[later[min(as_before[-1] + 1, len(later) - 1)]], steps[int(chosen)])
