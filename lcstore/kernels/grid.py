"""Tensors on their integer grid: onto it, back from it, and deltas added to it.

A tracked value is an integer `n` that stands for ``n * 2**g``. Additions wrap, so any order of any deltas
gives the same integers.
"""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.compiling.ints import wrap_add, wrap_mul
from lcstore.compiling.jit import kernel
from lcstore.compiling.status import OK
from lcstore.kernels.scales import step_size_of

#: Elements that are worked on at a time: state, track and levels of one run stay in the first-level cache.
RUN = 1024
#: The smallest normal bfloat16, and a float64 whose last place is that of the subnormal ones.
_NORMAL, _SUBNORMAL_STEPS = 2.0**-126, 1.5 * 2.0 ** (52 - 133)


@kernel
def add_levels(
    levels: Array, places: Array, escapes: Array, scales: Array, block: int, sign: int, track: Array
) -> int:
    """Add levels times their step sizes to the track.

    Parameters
    ----------
    levels
        ``int8[n]`` or ``int64[n]``; escaped places hold zero.
    places, escapes
        ``int64[m]``: where levels are escaped, below n, and these levels.
    scales
        ``int16``, one per block, as in a frame; the first block begins with ``levels[0]``.
    block
        Elements per block.
    sign
        1 to apply, -1 to take back.
    track
        ``int32[n]`` or ``int64[n]``, changed in place.
    """
    n = levels.size
    kind = track.dtype.type
    for b in range((n + block - 1) // block):
        low = b * block
        factor = kind(np.int64(sign) * step_size_of(scales[b]))
        for i in range(np.uint64(low), np.uint64(min(low + block, n))):
            track[i] = wrap_add(track[i], wrap_mul(kind(levels[i]), factor))
    for e in range(places.size):
        factor = kind(np.int64(sign) * step_size_of(scales[places[e] // block]))
        track[places[e]] = wrap_add(track[places[e]], wrap_mul(kind(escapes[e]), factor))
    return OK


@kernel
def to_grids(values: Array, at: Array, size: Array, inverses: Array, limit: float, track: Array) -> int:
    """Round pieces of `values`, each to a grid of its own, to the same places of `track`.

    Parameters
    ----------
    values, limit
        What is not finite, or beyond the limit on its grid, does not fit.
    at, size, inverses
        ``int64[pieces]``: where each begins, and how many it has; and ``2**-g`` of its grid.
    track
        Filled with ``rint(values * 2**-g)`` where pieces lie.

    Returns
    -------
    int
        How many pieces were rounded before one that has a value outside its grid.
    """
    for p in range(at.size):
        low, high, inverse = at[p], at[p] + size[p], inverses[p]
        piece, here, bad = values[low:high], track[low:high], np.int32(0)
        for i in range(piece.size):
            scaled = piece[i] * inverse
            bad = np.int32(bad | np.int32(not (abs(scaled) <= limit)))
            here[i] = track.dtype.type(np.rint(scaled))
        if bad != 0:
            return p
    return at.size


@kernel
def is_at(values: Array, inverse: float, limit: float, track: Array) -> bool:
    """Return whether ``rint(values * 2**-g)`` is the track; reads no further than the run where it is not.

    What is not finite, or beyond `limit` on the grid, is not.
    """
    kind = track.dtype.type
    for low in range(0, values.size, RUN):
        high = min(low + RUN, values.size)
        state, grid = values[low:high], track[low:high]
        other = np.int32(0)
        for i in range(high - low):
            scaled = state[i] * inverse
            outside = np.int32(not (abs(scaled) <= limit))
            other = np.int32(other | outside | np.int32(kind(np.rint(scaled)) != grid[i]))
        if other != 0:
            return False
    return True


@kernel
def from_grids(track: Array, at: Array, size: Array, scales: Array, out: Array) -> int:
    """Fill the values that pieces of the track stand for, rounded once to the dtype of `out`.

    Parameters
    ----------
    track
        ``int32[n]`` or ``int64[n]``.
    at, size, scales
        Where each piece begins (``int64[pieces]``), how many it has, and the unit of its grid (``float64``).
    out
        ``float32`` or ``float64``: filled, one piece behind another.
    """
    done = 0
    for p in range(at.size):
        piece, here, scale = track[at[p] : at[p] + size[p]], out[done : done + size[p]], scales[p]
        for i in range(piece.size):
            here[i] = out.dtype.type(np.float64(piece[i]) * scale)
        done += size[p]
    return OK


@kernel
def from_grids_bfloat16(track: Array, at: Array, size: Array, scales: Array, out: Array) -> int:
    """As `from_grids`, to bfloat16 bit patterns (``uint16``), rounded to nearest with ties to even."""
    buffer = np.empty(1, np.float64)
    bits = buffer.view(np.uint64)
    single = np.empty(1, np.float32)
    pattern = single.view(np.uint32)
    drop = np.uint64(45)
    half = np.uint64((1 << 44) - 1)
    done = 0
    for p in range(at.size):
        piece, here, scale = track[at[p] : at[p] + size[p]], out[done : done + size[p]], scales[p]
        fine = scale < _NORMAL
        for i in range(piece.size):
            value = np.float64(piece[i]) * scale
            if fine and abs(value) < _NORMAL:
                # Below the normal numbers the last place stays where it is: adding rounds to it.
                value = np.copysign((value + _SUBNORMAL_STEPS) - _SUBNORMAL_STEPS, value)
            buffer[0] = value
            odd = (bits[0] >> drop) & np.uint64(1)
            bits[0] = ((bits[0] + half + odd) >> drop) << drop
            single[0] = np.float32(buffer[0])
            here[i] = np.uint16(pattern[0] >> np.uint32(16))
        done += size[p]
    return OK


@kernel
def largest_pattern(patterns: Array, mask: int, out: Array) -> int:
    """Find the largest of the bit patterns of floats, without their signs: that of the largest magnitude.

    Parameters
    ----------
    patterns
        ``uint16[n]``, ``uint32[n]`` or ``uint64[n]``.
    mask
        All bits but the sign.
    out
        Of the same dtype, ``[1]``: filled. Infinity and NaN are larger than every number.
    """
    kind = patterns.dtype.type
    top, some = kind(0), kind(mask)
    for i in range(patterns.size):
        top = max(top, kind(patterns[i] & some))
    out[0] = top
    return OK
