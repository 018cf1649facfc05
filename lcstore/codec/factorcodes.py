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
from lcstore.kernels.factored import DROP_4, DROP_8, FINE, LAST_4, LAST_8

#: Codes in an octave: step sizes are whole numbers of them, from 1 to 255.
CODES: Final = 1 << FINE
#: Bits of a pattern below those of its code that count: of values that are coded again, codes are the same.
_FINER: Final = 8
#: How far one code's chance is from that of the one before, modulo 1.
_GOLDEN: Final = (math.sqrt(5) - 1) / 2
#: What codes that are whole may be off by as they are computed.
_NEARLY: Final = 1e-6
#: A row is judged by its values in so many columns, and a column by those in so many rows.
_SAMPLE: Final = 32


class Levelling(NamedTuple):
    """How values become levels: from how many codes above a centre one is not 0, and from how many below."""

    step_size: int
    above: int
    below: int


def _off(patterns: Array, rows: Array, columns: Array, by: Levelling) -> Array:
    """Return by how many codes values come back larger than they are; 0 for zeros, and what may be larger.

    These lie between `above` and `below` under their centre. Once restored, none do.
    """
    drop, last = (DROP_4, LAST_4) if patterns.itemsize == 4 else (DROP_8, LAST_8)
    step_size, above, below = map(np.float32, by)
    centres = rows.astype(np.float32)[:, None] + columns.astype(np.float32)
    codes = (patterns >> (drop - _FINER)).astype(np.float32) * np.float32(2.0**-_FINER)
    off = np.minimum(centres, np.float32(last)) + np.float32(0.5) - codes  # a half is put behind a code
    steps = np.floor((np.abs(off) + (step_size - above + np.float32(0.5))) / step_size) * step_size
    larger = (off >= above) & (off < below)
    off += np.where(off < 0, steps, np.where(off >= below, -steps, np.float32(0)))
    return np.where(larger | (patterns == 0), np.float32(0), off)


def _mean(off: Array, patterns: Array, axis: int) -> Array:
    return np.asarray(off.sum(axis, np.float64) / np.maximum(1, np.count_nonzero(patterns, axis)))


def set_right(patterns: Array, rows: Array, columns: Array, unit: int, by: Levelling) -> tuple[Array, Array]:
    """Return codes of rows and columns, in whole units, by which values are off by nothing in the mean.

    Parameters
    ----------
    patterns
        The bits of values, ``int[r, c]``.
    rows, columns
        ``float64``: whole codes near which values lie; a single column of code 0 where columns have none.
    unit
        Of what codes become whole numbers.
    by
        How values become levels.
    """
    some = _spread(patterns.shape[1])
    by_row = patterns[:, some]
    off = _mean(_off(by_row, rows, columns[some[: columns.size]], by), by_row, 1)
    if columns.size > 1:
        some = _spread(rows.size)
        by_column = patterns[some]
        left = _off(by_column, rows[some], columns, by) - off[some, None] * (by_column != 0)
        exact = columns - _mean(left, by_column, 0)
        columns = unit * np.rint(exact / unit)
        off -= (exact - columns).mean()
    return _rounded(rows - off, unit, by_row), columns


def _rounded(codes: Array, unit: int, drawn_from: Array) -> Array:
    """Round codes to whole units, up or down by chance, the nearer the likelier: whole ones stay as they are.

    Chance is low in discrepancy, so that the mean stays as well; and drawn from the bits of values, so that
    the same ones become the same bytes on any machine.
    """
    drawn = crc32(drawn_from.tobytes()) / 2**32
    chance = (drawn + _GOLDEN * np.arange(codes.size)) % 1.0
    return np.asarray(unit * np.floor(codes / unit + _NEARLY + (1 - 2 * _NEARLY) * chance))


def _spread(size: int) -> Array:
    """Return the places of some of so many, evenly spread."""
    return np.arange(0, size, -(-size // _SAMPLE))
