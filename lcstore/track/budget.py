"""A budget of bytes: one factor for all errors, which follows what saves came to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.edges.columns import ADD, Columns
from lcstore.track import stepsizes

#: Errors stay in these bounds, in intervals, whatever they are multiplied with.
LEAST_ERROR, MOST_ERROR = 0.05, 8.0
#: How much of what is too much or too little is made up for with each save, and at most.
_GAIN: Final = 0.2
_MOST_CHANGE: Final = 1.25
#: How many saves the bytes spent are averaged over, about.
_AVERAGED: Final = 4


@dataclass(frozen=True)
class Budget:
    """Where a handle is with its budget.

    Attributes
    ----------
    factor
        What errors are multiplied with; None before it is known.
    coded
        The bytes of a delta, averaged.
    """

    factor: float | None = None
    coded: float = 0.0

    def begun(self, errors: Mapping[int, float], columns: Columns | None) -> Budget:
        """Return it with a factor: after a resume, the one that the record's step sizes tell of.

        Parameters
        ----------
        errors
            What the factor is for, by tensor of `columns`.
        columns
            Those of the last commit.
        """
        if self.factor is not None:
            return self
        known = [] if columns is None else _errors(columns)
        found = sorted(error / errors[index] for index, error in known if index in errors)
        return Budget(found[len(found) // 2] if found else 1.0)

    def after(self, aim: int, error: float, coded: int) -> Budget:
        """Return what it is after a delta of `coded` bytes, where saves are to come to `aim`."""
        if self.factor is None:
            return self
        mean = self.coded + (coded - self.coded) / _AVERAGED if self.coded else float(coded)
        change = (max(mean, 1.0) / aim) ** _GAIN
        wanted = self.factor * max(1 / _MOST_CHANGE, min(_MOST_CHANGE, change))
        return Budget(max(LEAST_ERROR / error, min(MOST_ERROR / error, wanted)), mean)


def _errors(columns: Columns) -> Iterator[tuple[int, float]]:
    """Yield tensors of a record, and the errors that their step sizes stand for."""
    for index in np.flatnonzero((columns.op == ADD) & (columns.scale > 0)).tolist():
        step, unit = int(columns.shift[index]), int(columns.grid[index])
        error = stepsizes.error_at(step, unit, float(columns.scale[index]))
        yield index, max(LEAST_ERROR, min(MOST_ERROR, error))
