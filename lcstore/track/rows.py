"""No row is ruined: rows too small for their tensor's step get a finer one, and the worst row is looked for.

The relative error of a row is ``|u - u~| / |u|``, of the 2-norms. Rows are what the first axis counts; a
tensor of one dimension, or of rows of one element, is one row. What a row needs follows from its own size
alone, never from the residual that is coded: an element is off by no more than its step's threshold, so a
step that is small beside a row cannot do it much harm.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels import rows as kernels
from lcstore.state.layout import ALIGN
from lcstore.state.names import Name
from lcstore.state.specs import TensorSpec
from lcstore.track import grid
from lcstore.track.blocksteps import OWN_THRESHOLD, choose_blocks
from lcstore.track.columns import EXACT
from lcstore.track.steps import Step

if TYPE_CHECKING:
    from lcstore.track.draft import Draft

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


@dataclass(frozen=True)
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
        ``float32``, per row: the size that steps are made for; infinite where they need not care.
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


@dataclass
class RowWatch:
    """What a handle knows of the rows of its tensors. None of it is needed to read anything back."""

    _norms: dict[Name, Norms] = field(default_factory=dict)
    _saves: int = 0

    def copy(self) -> RowWatch:
        """Return one that can go on while this one stays."""
        return replace(self, _norms=dict(self._norms))

    def keep_only(self, paths: Container[Name]) -> None:
        """Forget tensors that are gone."""
        self._norms = {path: norms for path, norms in self._norms.items() if path in paths}

    def watch(self, draft: Draft) -> None:
        """Look at rows of the tensors that are added to, and give those finer steps that need them."""
        self._saves += 1
        for index in np.flatnonzero(draft.columns.op == EXACT).tolist():
            self._norms.pop(draft.layout.tensors[index].name, None)  # set anew: its rows may be any
        risks = []
        for index, step in draft.steps.items():
            spec = draft.layout.tensors[index]
            bound = draft.policy.row_error_of(spec.name, draft.errors[index])
            if bound is None:
                self._norms.pop(spec.name, None)
                continue
            norms = self._held(draft, index)
            usual = worst(step, norms.width)
            most = usual * step.units / bound
            norms, gone = self._look(draft, index, norms, bound, whole=most > NEAR * norms.bottom)
            self._norms[spec.name] = norms
            risk = most / max(norms.bottom, 2.0**-100)
            if gone or risk > 1:
                octaves = draft.finer.get(index)
                if octaves is None:
                    octaves = np.zeros(-(-spec.size // ALIGN), np.int16)
                allowed = norms.least.astype(np.float64) * bound
                own = worst(Step(0, OWN_THRESHOLD), norms.width)
                found = choose_blocks(step, octaves, allowed, norms.width, spec.size, (usual, own))
                if found is not None:
                    draft.by_row[index] = found
            if gone:  # what is left of them comes in now, and then no more
                norms.least[norms.least == 0] = np.inf
                bottom = float(norms.least.min())
                self._norms[spec.name] = replace(norms, bottom=bottom)
            risks.append((-risk, index))
        draft.looked = {index for _, index in sorted(risks)[:ENDANGERED]}
        draft.looked |= {index for _, index in risks if self._turn(index) == 0}

    def _turn(self, index: int) -> int:
        return (self._saves + index) % TURNS

    def _held(self, draft: Draft, index: int) -> Norms:
        """Return what is known of the rows of a tensor."""
        spec, unit = draft.layout.tensors[index], int(draft.columns.grid[index])
        rows, width = matrix_of(spec)
        held = self._norms.get(spec.name)
        if held is None or held.grid != unit or (held.size.size, held.width) != (rows, width):
            return Norms.unknown(unit, rows, width)
        return held

    def _look(self, draft: Draft, index: int, held: Norms, bound: float, *, whole: bool) -> tuple[Norms, int]:
        """Measure all rows or those whose turn it is; say how many have come to nothing meanwhile."""
        spec, turn, rows = draft.layout.tensors[index], self._turn(index), held.size.size
        which: Array | slice = slice(0, rows)
        ranges = draft.touched.get(index)
        if ranges is not None:
            which = _rows_of(ranges, held.width)
        elif held.complete and not whole and spec.size > SPLIT:
            which = slice(turn * rows // TURNS, (turn + 1) * rows // TURNS)
        elif held.complete and not whole and turn:
            return held, 0
        size, least = held.size.copy(), held.least.copy()
        some, of_some = size[which], least[which]
        matrix = draft.arrays[index].reshape(rows, held.width)[which]
        ahead = not whole and ranges is None
        gone = _note(matrix, held.grid, spec.dtype, 0.5 / bound, ahead, some, of_some)
        size[which], least[which] = some, of_some
        smallest = held.smallest
        if turn == 0 or not held.complete:
            count = max(1, SEEN // held.width)
            smallest = np.argpartition(least, count - 1)[:count] if count < rows else np.arange(rows)
        complete, bottom = held.complete or ranges is None, float(least.min())
        return Norms(held.grid, held.width, size, least, bottom, smallest, complete), gone

    def worst(self, draft: Draft) -> tuple[float, Name] | None:
        """Return the largest relative error of the rows looked at for it, and the tensor that it is in.

        Looked at are the tensors whose turn it is, and the few with the smallest rows beside their step: in
        each `SEEN` elements of the smallest rows, and of rows in turn. Rows that the grid cannot hold to the
        bound are left out. None where no tensor is watched.
        """
        found: tuple[float, Name] | None = None
        for index in sorted(draft.looked):
            path = draft.layout.tensors[index].name
            error = self._worst_of(draft, index, self._norms[path])
            if found is None or error > found[0]:
                found = error, path
        return found

    def _worst_of(self, draft: Draft, index: int, norms: Norms) -> float:
        spec = draft.layout.tensors[index]
        rows, width = norms.size.size, norms.width
        some = max(1, SEEN // width)
        if 2 * some < rows:
            in_turn = (self._saves * some + np.arange(some)) % rows
            which = np.concatenate((norms.smallest, in_turn))
        else:
            which = np.arange(rows)
        which = which[norms.size[which] > 0]
        state = draft.arrays[index]
        held = draft.pools[spec.pool][spec.offset : spec.offset + spec.size]
        if state.dtype != grid.working_dtype(spec.dtype):  # only these rows are converted
            state = grid.as_working(state.reshape(rows, width)[which].reshape(-1), spec.dtype)
            held, which = held.reshape(rows, width)[which].reshape(-1), np.arange(which.size)
        errors = np.zeros(which.size)
        kernels.misses(state, held, width, which, width // _WIDE | 1, 2.0**-norms.grid, errors)
        return float(errors.max(initial=0.0))


def matrix_of(spec: TensorSpec) -> tuple[int, int]:
    """Return how many rows a tensor has, and how many elements a row: a column is one row, as a vector is."""
    rows = spec.shape[0] if len(spec.shape) > 1 and spec.size > spec.shape[0] else 1
    return rows, spec.size // rows


def worst(step: Step, width: int) -> float:
    """Return the largest root mean square of what a row is off by after it was coded, in steps.

    Deltas of more than a step are off by a part of themselves besides where thresholds lie further apart
    than a step: a row that changes by more than its own size within a save may be off by a tenth of that.
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
