"""Levels of matrices, each row in the order of its columns: those that are alike lie side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.coders import format as f
from lcstore.coders.entropy import Coded, encode_small, spread_pieces
from lcstore.coders.small import Small
from lcstore.coders.tables import TableCache
from lcstore.kernels import factored as kernels
from lcstore.once import once

#: Rows are sorted where more than one value in so many is zero: zeros lie in columns of their own.
_WORTH_IT: Final = 128


class Part(NamedTuple):
    """A part of a chunk that lies in one matrix.

    Attributes
    ----------
    at, size
        Where it begins in the chunk, and how many elements it has: at least one.
    cols
        Length of a row of the matrix.
    phase
        Where in a row it begins.
    """

    at: int
    size: int
    cols: int
    phase: int

    @property
    def rows(self) -> int:
        """Rows that it touches."""
        return -(-(self.phase + self.size) // self.cols)


@dataclass(frozen=True, eq=False)
class Matrix:
    """A part of a frame, with the codes of its rows and columns."""

    part: Part
    rows: Array
    columns: Array

    @once
    def _order(self) -> Array:
        return np.argsort(self.columns, kind="stable").astype(np.uint32)

    @once
    def _places(self) -> Array:
        return np.argsort(self._order).astype(np.uint32)

    def sort(self, levels: Array, start: int = 0, *, back: bool = False) -> None:
        """Sort the levels of its rows, or put them back, in place.

        Parameters
        ----------
        levels
            ``int8``: those of elements from `start` on, where a segment begins. Only rows are sorted that lie
            whole in the part and in one segment.
        """
        at, size, cols, phase = self.part
        row = at - phase - start
        first = row + -(-(max(at - start, 0) - row) // cols) * cols
        here = levels[: max(at + size - start, 0)]
        kernels.arrange_rows(here, first, self._places if back else self._order, 1 << f.SEGMENT)


def encode_sorted(
    small: Small | None, matrices: Sequence[Matrix], cache: TableCache | None
) -> tuple[Coded | None, bool]:
    """Code the levels of a frame, with rows sorted where that pays, and return whether it does.

    None, not sorted, where there are none or the wide coder is to take them.
    """
    if small is None:
        return None, False
    some = spread_pieces(small.levels)
    zeros = int(np.count_nonzero(some == kernels.ZERO))
    if small.escapes.size or _WORTH_IT * zeros <= some.size:
        return encode_small(small, cache=cache), False
    levels = small.levels.copy()
    for matrix in matrices:
        matrix.sort(levels)
    coded = encode_small(small._replace(levels=levels), cache=cache)
    return (None, False) if coded is None else (replace(coded, small=small), True)
