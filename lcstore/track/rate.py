"""What a handle remembers about the rate of its saves: how long tensors were still, and the budget's share.

None of it is needed to read anything back. A handle that resumes begins with what the record says, the update
scales and the steps, and with nothing of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.sample import follow_mean, shares
from lcstore.state.layout import ALIGN
from lcstore.state.names import Name
from lcstore.track import samples, steps
from lcstore.track.columns import ADD, Columns
from lcstore.track.rows import RowWatch

#: Parts of a tensor, of whole blocks, that may have finer steps than the rest.
PARTS: Final = 256
#: Elements of the sample that a part has at least.
SAMPLED: Final = 64
#: A part whose own update scale is less than this part of the tensor's has a finer step ...
FINER_BELOW: Final = 1 / 4
#: ... by at most so many octaves.
MOST_FINER: Final = 10
#: The part's scale, as a share of the tensor's, falls by this much a save: rows touched now and then stay.
HOLD: Final = 0.8
#: How much of what is too much or too little for a budget is made up for with each save, and at most.
_GAIN: Final = 0.2
_MOST_CHANGE: Final = 1.25
#: How many saves the bytes spent are averaged over, about.
_AVERAGED: Final = 4
#: The mean change of a tensor takes in so much of each.
_TAKEN: Final = 1 / 4
#: After how many saves the residual of rows outside the sample is let in.
_LET_IN: Final = 32
#: Octaves that lead from any step to the grid's unit.
_GRID: Final = 64
#: The error itself stays in these bounds.
LEAST_ERROR, MOST_ERROR = 0.05, 8.0


@dataclass
class Rate:
    """Of one handle.

    Attributes
    ----------
    factor
        What the policy's errors are multiplied with, to keep to its budget; None before it is known.
    rows
        What is known of the rows of tensors.
    """

    factor: float | None = None
    rows: RowWatch = field(default_factory=RowWatch)
    _still: dict[Name, int] = field(default_factory=dict)
    _calm: dict[Name, int] = field(default_factory=dict)
    _coded: float = 0.0
    _shares: dict[Name, Array] = field(default_factory=dict)
    _means: dict[Name, tuple[int, Array]] = field(default_factory=dict)

    def copy(self) -> Rate:
        """Return one that can go on while this one stays."""
        return replace(
            self,
            rows=self.rows.copy(),
            _still=dict(self._still),
            _calm=dict(self._calm),
            _shares=dict(self._shares),
            _means=dict(self._means),
        )

    def forget_budget(self) -> None:
        """Begin anew with what was spent: another budget, or another error to multiply, is aimed at."""
        self.factor, self._coded = None, 0.0

    def keep_only(self, paths: Container[Name]) -> None:
        """Forget tensors that are gone."""
        for known in (self._still, self._calm, self._shares, self._means):
            for path in [path for path in known if path not in paths]:
                del known[path]
        self.rows.keep_only(paths)

    def rest(self, path: Name, count: int, *, flushed: bool) -> Array:
        """Return for each block of a tensor that is still by how many octaves its step is finer.

        Every other block is halved with each save, so that what is left of the residual comes in at less
        than a bit per element. Where nothing is left in the sample, rows outside it are being touched: they
        take the usual step, and all is let in now and then.
        """
        blocks = np.arange(-(-count // ALIGN))
        if flushed:
            self._calm[path] = calm = self._calm.get(path, 0) + 1
            return np.full(blocks.size, 0 if calm % _LET_IN else _GRID, np.int16)
        self._still[path] = still = self._still.get(path, 0) + 1
        return ((still + blocks % 2) // 2).astype(np.int16)

    def moves(self, path: Name) -> None:
        """Take note that a tensor moves."""
        self._still[path] = 0

    def trend(self, path: Name, change: Array, moved: float) -> float:
        """Return which part of a tensor's change goes on from save to save, 0 to 1; 0 before it is known.

        It is how far the mean of the changes before, in which noise averages out, leads to this one. It never
        asks what the track has of them.

        Parameters
        ----------
        path
            Of the tensor.
        change, moved
            What its sample changed by since the last save, and the root mean square of that.
        """
        if not 0 < moved < math.inf:  # a mean that took in what overflows would never be a number again
            return 0.0
        seen, mean = self._means.get(path, (0, change))
        if not seen or mean.size != change.size:
            seen, mean = 0, np.zeros_like(change)
        after, out = np.empty_like(mean), np.empty(1)
        follow_mean(change, moved, _TAKEN, mean, after, out)
        self._means[path] = (seen + 1, after)
        full = 1 - (1 - _TAKEN) ** seen  # what a mean of so few has come to, of changes that are all alike
        return max(0.0, min(1.0, float(out[0]) / (full * change.size))) if seen else 0.0

    def finer(self, path: Name, change: Array, moved: float, count: int) -> Array | None:
        """Return for each block of a tensor by how many octaves its step is finer, if any is.

        Parameters
        ----------
        path
            Of the tensor.
        change, moved
            What its sample changed by since the last save, and the root mean square of that.
        count
            Its elements.
        """
        part_of_block, starts = _parts(count, change.size)
        held = self._shares.get(path)
        held = np.ones(starts.size) if held is None or held.size != starts.size else held.copy()
        self._shares[path] = held
        if moved > 0 and shares(change, starts, moved, HOLD, FINER_BELOW, held) == 0:
            return None
        if held.min() >= FINER_BELOW:
            return None
        octaves = np.ceil(np.log2(FINER_BELOW / np.maximum(held, 2.0**-MOST_FINER * FINER_BELOW)))
        return np.maximum(octaves, 0).astype(np.int16)[part_of_block]

    def errors_times(self, budget: int | None, error: float, columns: Columns | None) -> float:
        """Return what to multiply errors with; after a resume, by the steps that the record tells of."""
        if budget is None:
            return 1.0
        if self.factor is None:
            self.factor = _factor_of(columns, error)
        return self.factor

    def spent(self, budget: int | None, error: float, coded: int) -> None:
        """Take note of the bytes of a committed delta."""
        if budget is None or self.factor is None:
            return
        self._coded += (coded - self._coded) / _AVERAGED if self._coded else coded
        change = (max(self._coded, 1.0) / budget) ** _GAIN
        wanted = self.factor * max(1 / _MOST_CHANGE, min(_MOST_CHANGE, change))
        self.factor = max(LEAST_ERROR / error, min(MOST_ERROR / error, wanted))


@lru_cache(maxsize=256)
def _parts(count: int, sampled: int) -> tuple[Array, Array]:
    """Return the part that each block of a tensor lies in, and where each part's sample begins."""
    blocks = -(-count // ALIGN)
    parts = min(PARTS, blocks, -(-sampled // SAMPLED))
    part_of_block = np.arange(blocks) * parts // blocks
    used, starts = np.unique(part_of_block[samples.positions(count) // ALIGN], return_index=True)
    # A short last block may hold no element of the sample: it goes with the part before.
    part_of_block = np.maximum(np.searchsorted(used, part_of_block, "right") - 1, 0)
    return part_of_block, starts


def _factor_of(columns: Columns | None, error: float) -> float:
    """Estimate from a record's columns what its errors were multiplied with; 1 where they do not say."""
    if columns is None:
        return 1.0
    found = sorted(_errors(columns))
    return found[len(found) // 2] / error if found else 1.0


def _errors(columns: Columns) -> Iterator[float]:
    for index in np.flatnonzero((columns.op == ADD) & (columns.scale > 0)).tolist():
        step = steps.log2_of(int(columns.shift[index])) + int(columns.grid[index])
        error = steps.error_of(2.0 ** min(step - math.log2(float(columns.scale[index])), 64))
        if LEAST_ERROR <= error <= MOST_ERROR:
            yield error
