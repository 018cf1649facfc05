"""No row is ruined: rows too small for their tensor's step size get a finer one, and the worst is looked for.

The relative error of a row is ``|u - u~| / |u|``, of the 2-norms. Rows are what the first axis counts; a
tensor of one dimension, or of rows of one element, is one row. What a row needs follows from its own size
alone, never from the residual that is coded: an element is off by no more than its threshold, so a step size
that is small beside a row cannot do it much harm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import working_dtype
from lcstore.edges import grid
from lcstore.kernels import rows as kernels
from lcstore.layout.specs import TensorSpec
from lcstore.track.stepsizes import StepSize
from lcstore.track.steptable import OWN_THRESHOLD, Needs

#: Every row is looked at once in so many saves: tensors take turns, and rows of those with more elements ...
TURNS: Final = 8
SPLIT: Final = 1 << 20
#: ... but with every save where a row comes so near to what it may be off by: it may shrink before its turn.
NEAR: Final = 0.75
#: In a row of `n` elements, rounding errors spread evenly below a threshold `t` have a mean square of
#: ``t**2 / 3``, give or take ``SPREAD * t**2 / sqrt(n)``, five standard deviations. Of up to five
#: elements all may be off by the whole of `t`.
SPREAD: Final = 1.5
#: The worst error is looked for in the tensors whose turn it is and in so many that come nearest to the
#: bound: in so many elements of the smallest rows of each, and of other rows in turn.
ENDANGERED: Final = 2
SEEN: Final = 2048
#: Wider rows are looked at in so many of their elements.
_WIDE: Final = 4096
#: Grids (log2) on which the squares of float32 neither overflow nor vanish.
_EASY: Final = range(-60, 20)


@dataclass(frozen=True, eq=False)
class Norms:
    """What is known of the rows of one tensor.

    Attributes
    ----------
    grid, width
        log2 of the unit that sizes are in, and elements of a row.
    size
        ``float32``, per row: root mean square; 0 for rows that the grid cannot hold well enough, NaN for
        those not looked at yet.
    least
        ``float32``, per row: the size that step sizes are made for; infinite where they need not care.
    bottom
        The smallest of these.
    smallest
        Some of the smallest rows.
    complete
        Whether every row has been looked at.
    """

    grid: int
    width: int
    size: Array
    least: Array
    bottom: float
    smallest: Array
    complete: bool

    @classmethod
    def unknown(cls, unit: int, rows: int, width: int) -> Norms:
        """Return what is known of rows that nobody has looked at."""
        size, least = np.full(rows, np.nan, np.float32), np.full(rows, np.inf, np.float32)
        return cls(unit, width, size, least, math.inf, np.zeros(0, np.int64), False)

    def fits(self, unit: int, rows: int, width: int) -> bool:
        """Return whether it is about so many rows, on that grid."""
        return (self.grid, self.size.size, self.width) == (unit, rows, width)


class Watched(NamedTuple):
    """What looking at the rows of a tensor has found.

    Attributes
    ----------
    norms
        What is known of them now.
    needs
        What they ask of step sizes; None where the tensor's usual one serves all.
    risk
        How near the smallest comes to its bound, at the usual step size: 1 is there.
    """

    norms: Norms
    needs: Needs | None
    risk: float


def watch(
    flat: Array,
    spec: TensorSpec,
    unit: int,
    step: StepSize,
    bound: float,
    *,
    known: Norms | None,
    turn: int,
    ranges: Array | None,
) -> Watched:
    """Look at rows of a tensor that is added to.

    Parameters
    ----------
    flat, spec, unit
        Its elements, its place, and log2 of its grid's unit.
    step
        Its usual step size.
    bound
        The relative error that rows may have.
    known
        What was known of its rows.
    turn
        0 to 7: at 0 it is the tensor's turn; of large tensors each turn is that of some rows.
    ranges
        ``int64[r, 2]``: only these elements have changed.
    """
    rows, width = matrix_of(spec)
    norms = known if known is not None and known.fits(unit, rows, width) else Norms.unknown(unit, rows, width)
    usual = worst(step, width)
    most = usual * step.units / bound
    norms, gone = _look(flat, spec, norms, bound, turn, ranges, whole=most > NEAR * norms.bottom)
    risk = most / max(norms.bottom, 2.0**-100)
    if not gone and risk <= 1:
        return Watched(norms, None, risk)
    own = worst(StepSize(0, OWN_THRESHOLD), width)
    needs = Needs(norms.least.astype(np.float64) * bound, width, usual, own)
    if gone:  # what is left of them comes in now, and then no more
        least = np.where(norms.least == 0, np.float32(np.inf), norms.least)
        norms = replace(norms, least=least, bottom=float(least.min()))
    return Watched(norms, needs, risk)


def _look(
    flat: Array, spec: TensorSpec, held: Norms, bound: float, turn: int, ranges: Array | None, *, whole: bool
) -> tuple[Norms, int]:
    """Measure all rows or those whose turn it is; return also how many have come to nothing meanwhile."""
    rows = held.size.size
    which: Array | slice = slice(0, rows)
    if ranges is not None:
        which = _rows_of(ranges, held.width)
    elif held.complete and not whole and spec.size > SPLIT:
        which = slice(turn * rows // TURNS, (turn + 1) * rows // TURNS)
    elif held.complete and not whole and turn:
        return held, 0
    size, least = held.size.copy(), held.least.copy()
    some, of_some = size[which], least[which]
    matrix = flat.reshape(rows, held.width)[which]
    ahead = not whole and ranges is None
    gone = _note(matrix, held.grid, spec.dtype, 0.5 / bound, ahead, some, of_some)
    size[which], least[which] = some, of_some
    smallest = held.smallest
    if turn == 0 or not held.complete:
        count = max(1, SEEN // held.width)
        smallest = np.argpartition(least, count - 1)[:count] if count < rows else np.arange(rows)
    complete, bottom = held.complete or ranges is None, float(least.min())
    return Norms(held.grid, held.width, size, least, bottom, smallest, complete), gone


def endangered(risks: Mapping[int, float], saves: int) -> list[int]:
    """Return the tensors that the worst row is looked for in: those whose turn it is, and those most at risk.

    Parameters
    ----------
    risks
        By tensor: how near its smallest row comes to its bound.
    saves
        Saves so far.
    """
    nearest = sorted(risks, key=lambda index: (-risks[index], index))[:ENDANGERED]
    return sorted({*nearest, *(index for index in risks if turn_of(index, saves) == 0)})


def turn_of(index: int, saves: int) -> int:
    """Return whose turn it is in a tensor: 0 its own."""
    return (saves + index) % TURNS


def worst_row(flat: Array, held: Array, spec: TensorSpec, norms: Norms, saves: int) -> float:
    """Return the largest relative error of some rows of a tensor.

    Looked at are `SEEN` elements of the smallest rows, and of rows in turn. Rows that the grid cannot hold to
    the bound are left out.

    Parameters
    ----------
    flat, held
        Its elements, and the grid integers that readers have of them.
    spec, norms
        Its place, and what is known of its rows.
    saves
        Saves so far.
    """
    rows, width = norms.size.size, norms.width
    some = max(1, SEEN // width)
    if 2 * some < rows:
        in_turn = (saves * some + np.arange(some)) % rows
        which = np.concatenate((norms.smallest, in_turn))
    else:
        which = np.arange(rows)
    which = which[norms.size[which] > 0]
    if flat.dtype != working_dtype(flat.dtype):  # only these rows are converted
        flat = grid.as_working(flat.reshape(rows, width)[which].reshape(-1), spec.dtype)
        held, which = held.reshape(rows, width)[which].reshape(-1), np.arange(which.size)
    errors = np.zeros(which.size)
    kernels.misses(flat, held, width, which, width // _WIDE | 1, 2.0**-norms.grid, errors)
    return float(errors.max(initial=0.0))


def matrix_of(spec: TensorSpec) -> tuple[int, int]:
    """Return how many rows a tensor has, and how many elements a row: a column is one row, as a vector is."""
    size = spec.size
    rows = spec.shape[0] if len(spec.shape) > 1 and size > spec.shape[0] else 1
    return rows, size // rows


def worst(step: StepSize, width: int) -> float:
    """Return the largest root mean square of what a row is off by after it was coded, in step sizes.

    Deltas of more than a step size are off by a part of themselves besides where thresholds lie further apart
    than that: a row that changes by more than its own size within a save may be off by a tenth of that.
    """
    return step.threshold * math.sqrt(min(1.0, 1 / 3 + SPREAD / math.sqrt(width)))


def _rows_of(ranges: Array, width: int) -> Array:
    """Return the rows that ranges of elements lie in."""
    first, last = ranges[:, 0] // width, (ranges[:, 1] - 1) // width
    counts = last - first + 1
    inside = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    found: Array = np.unique(np.repeat(first, counts) + inside)
    return found


def _note(rows: Array, unit: int, dtype: str, floor: float, ahead: bool, size: Array, least: Array) -> int:
    """Take note of the sizes of rows, as `note_sizes` does.

    Below the floor, in grid units, half a unit of the grid is more than the error allowed.
    """
    values = grid.as_working(rows, dtype)
    kind = values.dtype.type
    with np.errstate(over="ignore", invalid="ignore"):  # of what is off its grid
        if unit not in _EASY:
            values, unit = values * kind(2.0**-unit), 0
        means = np.einsum("ij,ij->i", values, values) / kind(rows.shape[1])
    return int(kernels.note_sizes(means, kind(2.0**-unit), floor, ahead, size, least))
