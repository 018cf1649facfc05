"""Codes of rows and columns of second moments, such that values come back off by nothing in the mean.

What was restored is coded again soon, and has hardly changed. So whatever values are off by in the mean adds
up from restart to restart; and where each code is rounded to the nearest, what falls by less than half a unit
in between never falls.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np

from lcstore.arrays import Array
from lcstore.coders.rowsort import Part
from lcstore.kernels.factored import FINE
from lcstore.kernels.offsets import offsets
from lcstore.kernels.sample import cross

#: Codes in an octave: step sizes are whole numbers of them, from 1 to 255.
CODES: Final = 1 << FINE
#: How far one code's chance is from that of the one before, modulo 1.
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
#: What codes that are whole may be off by as they are computed.
_NEARLY: Final = 1e-6
#: A row is judged by its values in so many columns, and a column by those in so many rows. Where some are
#: zero it takes more of them, up to the second number, for as many others.
_SAMPLE: Final = (32, 512)
#: Where a column has fewer values than this, or some are zero, rows are judged by columns that are off by
#: something themselves: so all are set right once more, and again while rows of restored values move.
_MANY: Final = 64


class Levelling(NamedTuple):
    """How values become levels: from how many codes above a centre one is not 0, and from how many below."""

    step_size: int
    above: int
    below: int


def set_right(
    patterns: Array,
    part: Part,
    filled: int,
    others: int,
    rows: Array,
    columns: Array,
    unit: int,
    by: Levelling,
) -> tuple[Array, Array]:
    """Return codes of rows and columns, in whole units, by which values are off by nothing in the mean.

    Where values were restored and have hardly changed, they come back as they are.

    Parameters
    ----------
    patterns, part, filled, others
        The bits of the values of a part, of whose rows `filled` elements hold values; `others` are not zero.
    rows, columns
        ``float64``: whole codes near which values lie; a single column of code 0 where columns have none.
    unit
        Of what codes become whole numbers.
    by
        How values become levels.
    """
    least, most = _SAMPLE
    by_row, by_column = _sampled(patterns, part, filled, min(most, least * patterns.size // max(1, others)))
    few, some = _spread(rows.size, by_column.shape[1]), _spread(filled, by_row.shape[1])
    plain, left = columns.size == 1, 0.0
    columns = np.zeros(filled) if plain else columns
    for again in range(1 if plain or others == patterns.size >= _MANY * filled else 4):
        beside, off = _offsets(by_row, rows, columns[some], np.zeros(by_row.shape[1]), by)
        rows = rows - beside
        if not plain:
            wanted = columns - sum(_offsets(by_column, columns, rows[few], off[few], by))
            columns = unit * np.rint(wanted / unit)
            left = (wanted - columns).mean()
        if again and not beside.any():
            break
    return _rounded(rows - off + left, unit, crc32(by_row.sum().tobytes())), columns


def _sampled(patterns: Array, part: Part, filled: int, wanted: int) -> tuple[Array, Array]:
    """Return the bits in some columns of a part, and in some rows, each of these beside the other."""
    columns, rows = _spread(filled, wanted), _spread(part.rows, wanted)
    by_row = np.empty((part.rows, len(range(filled)[columns])), patterns.dtype)
    by_column = np.empty((part.cols, len(range(part.rows)[rows])), patterns.dtype)
    cross(patterns, part.phase, np.array([columns.step, rows.step]), by_row, by_column)
    return by_row, by_column[:filled]


def _offsets(patterns: Array, rows: Array, columns: Array, known: Array, by: Levelling) -> Array:
    """Return by how many codes each row is too high, beside where it was, and in the mean."""
    out = np.empty((2, rows.size))
    high, wide, more = (some.astype(np.float32) for some in (rows, columns, known))
    offsets(patterns.ravel(), high, wide, more, by.step_size, by.above, by.below, out[0], out[1])
    return out


def _rounded(codes: Array, unit: int, seed: int) -> Array:
    """Round codes to whole units, up or down by chance, the nearer the likelier: whole ones stay as they are.

    Chance is low in discrepancy, so that the mean stays as well.
    """
    chance = (seed / 2**32 + _GOLDEN * np.arange(codes.size)) % 1.0
    return np.asarray(unit * np.floor(codes / unit + _NEARLY + (1 - 2 * _NEARLY) * chance))


def _spread(size: int, wanted: int) -> slice:
    """Return the places of some of so many, evenly spread: the same where as many are wanted as it gives."""
    return slice(0, size, -(-size // wanted))
