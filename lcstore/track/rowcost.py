"""What it costs to keep every row, and how much of that is paid where nobody has given a bound.

In tables of which few rows are touched, most rows may be small beside the changes of the others. To keep them
all would take several times the bytes, and nothing was found to be better for it: losses are the same. So a
bound that follows from the policy is doubled until it costs little, or dropped. One that was given is kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.frames.scales import pack_scales
from lcstore.track import samples
from lcstore.track.stepsizes import StepSize
from lcstore.track.steptable import Needs, StepTable, make_table

#: The most that rows may add to the bits of a tensor, and less than that before more of them are kept again.
MOST: Final = 1.25
LESS: Final = 1.15
#: The bound is doubled so many times before it is dropped.
_DOUBLED: Final = 3
#: A change of `x` step sizes takes about ``log2(1 + BITS * x**2) / 2`` bits, over all that is coded so.
_BITS: Final = 20.0


def table_within(
    usual: StepSize, count: int, finer: Array | None, needs: Needs, change: Array, doubled: int
) -> tuple[StepTable, int]:
    """Return the step sizes of a tensor that meet as much of what its rows need as costs little.

    Parameters
    ----------
    usual, count, finer, needs
        As for `make_table`.
    change
        ``float64``, in units of the grid: how far the elements of the sample have moved.
    doubled
        How many times the bound was doubled with the save before.

    Returns
    -------
    StepTable, int
        The table; and how many times the bound was doubled for it.
    """
    plain = make_table(usual, count, finer, None)
    least = _bits(plain, count, change)
    for times in range(max(doubled - 1, 0), _DOUBLED + 1):
        table = make_table(usual, count, finer, replace(needs, allowed=needs.allowed * 2.0**times))
        if _bits(table, count, change) <= least * (LESS if times < doubled else MOST):
            return table, times
    if needs.allowed.all():
        return plain, _DOUBLED + 1
    # Rows that have come to nothing come back so once, whatever it costs: they ask for it once.
    gone = replace(needs, allowed=np.where(needs.allowed == 0, 0.0, np.inf))
    return make_table(usual, count, finer, gone), _DOUBLED + 1


def _bits(table: StepTable, count: int, change: Array) -> float:
    """Return about how many bits the changes of a tensor take on its step sizes, and these themselves."""
    units = np.array([step.units for step in table.sizes], np.float64)
    if len(table.sizes) == 1:
        steps, said = units[:1], 0
    else:
        steps = units[table.which[samples.positions(count) // table.block]]
        said = 8 * len(pack_scales(table.which.astype(np.int16)))
    levels = change / np.maximum(steps, 1.0)
    return 0.5 * float(np.log2(1 + _BITS * levels * levels).sum()) * count / change.size + said
