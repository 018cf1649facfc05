"""First moments at few bits an element: coarse, each block with its own step size and threshold."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.values import framed_linear
from lcstore.coders import format as f
from lcstore.coders.small import Small
from lcstore.coders.tables import TableCache
from lcstore.frames.fill import working
from lcstore.frames.frame import Framed
from lcstore.frames.pieces import Pieces
from lcstore.kernels import quantize

_BLOCK = 1 << f.BLOCK


class Rule(NamedTuple):
    """How blocks are rounded, by where in its octave their root mean square lies; see the kernel.

    Attributes
    ----------
    shifts
        ``int16[quantize.PARTS]``: log2 of the step size over that of the octave's beginning.
    thresholds
        ``float64[quantize.PARTS]``: magnitude, in step sizes, from which a level is not 0.
    """

    shifts: Array
    thresholds: Array


def encode_coarse(values: Pieces, rule: Rule, *, cache: TableCache | None = None) -> Framed | None:
    """Code floats by a rule, every block of ``2**f.BLOCK`` elements by its own root mean square.

    Returns
    -------
    Framed or None
        None where a value is not finite, or would come back infinite.
    """
    room, found = Small.room(values.size), 0
    exponents, tops = (np.zeros(-(-values.size // _BLOCK), dtype) for dtype in (np.int16, np.int64))
    for at, part in values.parts:
        wide = working(part)
        here, blocks = slice(at, at + part.size), slice(at // _BLOCK, -(-(at + part.size) // _BLOCK))
        into = exponents[blocks], room.levels[here], room.escapes[found:], tops[blocks]
        more = quantize.coarse_levels(
            *(wide, wide.view(f"i{wide.itemsize}"), _BLOCK, rule.shifts, 1 - rule.thresholds), *into
        )
        if more < 0:
            return None
        found += more
    small = Small(room.levels, room.escapes[:found]) if found <= room.escapes.size else None
    return framed_linear(values, small, exponents, tops, cache=cache)
