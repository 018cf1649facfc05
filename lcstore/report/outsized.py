"""Weights that began far larger than others alike, as by a wrong initialisation: by the grids of records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.report.growth import times
from lcstore.report.note import Note

#: Tensors from which on those alike tell what is usual.
_ALIKE: Final = 4
#: Octaves by which one is 32 times as large at the least: largest weights are rounded up to powers of two.
_LARGER: Final = 6
#: Octaves within which the others have to be.
_WITHIN: Final = 2
#: Octaves by which it has to be larger still: the others grow as they train.
_STILL: Final = 3


def outsized(alike: Iterable[Sequence[int]], grid: Array, steps: Sequence[int]) -> dict[int, Note]:
    """Return what is to be said of tensors that have been far larger than others alike since the first state.

    Nothing is said of one that is far smaller: so is one that began as zeros, once it has trained a little.

    Parameters
    ----------
    alike
        The rows of tensors that are built alike.
    grid, steps
        As of `Course`.
    """
    found = {}
    for rows in alike:
        known = [row for row in rows if np.isfinite(grid[row, 0])]  # zeros have no grid
        if len(known) < _ALIKE:
            continue
        largest = max(known, key=lambda row: float(grid[row, 0]))
        others = np.array([grid[row, 0] for row in known if row != largest])
        middle = float(np.sort(others)[len(others) // 2])
        octaves = float(grid[largest, 0]) - middle
        if octaves >= _LARGER and np.ptp(others) <= _WITHIN and _is_still(largest, known, grid):
            said = f"has had larger weights than others alike since step {steps[0]}: its largest was "
            found[largest] = Note(f"{said}{{}} times theirs then", (times(octaves),), (steps[0],))
    return found


def _is_still(largest: int, alike: Sequence[int], grid: Array) -> bool:
    """Return whether the largest of tensors that are alike is far larger in the end, too."""
    last = {row: float(grid[row][np.isfinite(grid[row])][-1]) for row in alike}
    return last.pop(largest) - float(np.median([*last.values()])) >= _STILL
