"""When weights that have a grid are set exactly, on a new one: no delta leads to what they have become."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.edges import grid
from lcstore.layout.specs import TensorSpec
from lcstore.track import samples

#: Octaves by which the largest weight may fall below what its grid was chosen for: the first number where
#: a finer step size than the grid's unit is wanted, or what is left is little beside the way to it. On the
#: grid of an explosion other weights are all zero.
FALLEN: Final = 2
_FALLEN_FAR: Final = 8
#: Weights that moved so many times as far as they are large come back from an explosion. Who moves by less
#: than so many octaves above the grid's unit, a thousandth of what it is for, does not.
_COMES_BACK: Final = 4
_LEAST_WAY: Final = 16
#: More than one element in so many is zero, and not for readers: weights are pruned. What a delta leaves of
#: them is no more than its error, but a mask that is made of them would be full. In training none is zero.
_PRUNED: Final = 16

#: Weights of which less than this part is left are drawn anew, in another order, or of another sign. What
#: training adds to, be it as much again, has all of them; what decays has its direction.
_LEFT: Final = 0.28
#: Weights that are so many times as large as before, or more, grow or explode. Most leave their grid.
_GROWN: Final = 16


def is_replaced(now: Array, before: Array, change: Array) -> bool:
    """Return whether weights, or those rows that move, have nothing of those before: by samples, and change.

    What a delta leaves of how far they moved would be as large as they are: a mix of the old and the new.
    Lengths say how much is left: ``<now, before>``, over the square of before, or over both lengths where now
    is the smaller one.
    """
    moves = change != 0
    if not moves.all():
        now, before, change = now[moves], before[moves], change[moves]
    size, was = samples.rms(now), samples.rms(before)
    if not 0 < size < _GROWN * was:
        return False
    small, large = min(size, was) / max(size, was), max(size, was)
    return samples.rms(change) > large * math.sqrt(1 + small * small - 2 * _LEFT * small * (was / large))


def fall_of(moved: float, now: Array, unit: int, *, leaps: bool) -> int | None:
    """Return by how many octaves weights may fall before they are set anew, by how far they moved.

    A delta is off by a part of how far they moved. Where they `leap` or rest, its step sizes tell nothing.
    None: however far, as a delta is right for them.
    """
    if moved > math.ldexp(1.0, unit + _LEAST_WAY) and moved > _COMES_BACK * samples.rms(now):
        return FALLEN
    return _FALLEN_FAR if leaps else None


def has_fallen(spec: TensorSpec, flat: Array, now: Array, unit: int, octaves: int | None) -> bool:
    """Return whether a grid chosen for weights as they are now would be finer by so many octaves.

    All of them are looked at only where none in the sample says no.
    """
    if octaves is None:
        return False
    sampled = grid.exponent_of(float(np.abs(now).max(initial=0)), spec.dtype)
    if sampled is not None and sampled > unit - octaves:
        return False
    finer = grid.exponent_of(grid.largest(flat), spec.dtype)
    return finer is not None and finer <= unit - octaves


def is_pruned(now: Array, track: Array) -> bool:
    """Return whether weights have become zero that are not zero for readers: by the sample, and the track."""
    zero = now == 0
    if np.count_nonzero(zero) * _PRUNED <= zero.size:
        return False
    has = track[samples.positions(track.size)[zero]]
    return bool(np.count_nonzero(has) * _PRUNED > zero.size)
