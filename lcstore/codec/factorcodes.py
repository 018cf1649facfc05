"""Rounding the codes of rows and columns of second moments: off by nothing in the mean."""

from __future__ import annotations

from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.kernels.factored import FINE

#: Codes in an octave: step sizes are whole numbers of them, from 1 to 255.
CODES: Final = 1 << FINE
#: By the last four bits of a code: how many codes its value lies above what the logarithm gives. That is half
#: a code, as values are cut to their codes, and what a straight line from octave to octave misses.
_ABOVE: Final = CODES * np.log2(1 + (np.arange(CODES) + 0.5) / CODES) - np.arange(CODES)
#: The same of the sum of a code, by row, and another one, by column.
_OF_SUMS: Final = np.array([np.roll(_ABOVE, -at) for at in range(CODES)])
#: How often codes are moved until they are off by nothing in the mean: what a code is off by changes with it.
_ROUNDS: Final = 3


def rounded(codes: Array, unit: int, counts: Array, others: Array) -> Array:
    """Round codes to whole units, such that values of centres are off by nothing in the mean.

    Moments are often the same as what was restored last, but for a little. So whatever they are off by in the
    mean adds up from restart to restart; and where each code is rounded to the nearest, what falls by less
    than half a unit in between never falls.

    Parameters
    ----------
    codes
        Those of rows or columns, ``float64[n]``.
    unit
        Of what they become whole numbers.
    counts
        Which of them have values that are not zero.
    others
        What is added to each: the codes of all columns, or rows, in whole units.
    """
    near = unit * np.rint(codes / unit)
    if not counts.any() or not others.size:
        return near
    beside = np.bincount(others.astype(np.int64) % CODES, minlength=CODES) / others.size
    above, exact, made = _OF_SUMS @ beside, codes[counts], near[counts]
    for _ in range(_ROUNDS):
        off = exact - made - above[made.astype(np.int64) % CODES]
        lacking = round(float(off.sum()) / unit)
        if not lacking:
            break
        sign = unit if lacking > 0 else -unit
        each, more = divmod(abs(lacking), made.size)
        made += sign * each
        made[np.argpartition(-sign * off, more)[:more]] += sign
    near[counts] = made
    return near
