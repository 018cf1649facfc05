"""How the levels of a grid follow from their neighbours, and which way suits a chunk: counted on a sample."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.coders.entropy import count_bits
from lcstore.kernels import neighbours

#: Axes that a frame knows, and those that interpolation goes along: others are joined to the slowest.
MOST_AXES, CUBIC_AXES = 8, 3
#: Differences along one axis, and along all of them: levels of 2**51 stay below 2**61.
MOST_ORDER, MOST_ORDERS = 3, 8
#: Magnitudes that levels stay below, by the bytes that they are computed in.
LIMITS: Final = {4: 2.0**25, 8: 2.0**51}
#: A sample is so many boxes, and one element in so many, within these bounds ...
_BOXES, _ONE_IN = 4, 16
_LEAST, _MOST = 1 << 13, 1 << 15
#: ... and is taken where a smaller one says that differences may save anything.
_GLANCE = 1 << 11
#: A prediction must save this part of the bits besides what its frame is longer; a further order, this.
_MUST_SAVE, _ORDER_MUST_SAVE = 0.02, 0.01
_MORE_BITS = 8 * 150


class Predictor(NamedTuple):
    """What a level is told from.

    Attributes
    ----------
    shape
        Lengths of the grid's axes, the fastest last. Empty where nothing is predicted.
    orders
        How often differences are taken along each axis.
    cubic
        Whether points are interpolated between known ones instead.
    """

    shape: tuple[int, ...] = ()
    orders: tuple[int, ...] = ()
    cubic: bool = False

    @property
    def passes(self) -> list[tuple[int, int]]:
        """Each sum to be taken, in order: the length of its axis, and how far apart its elements are."""
        found, inner = [], math.prod(self.shape)
        for length, order in zip(self.shape, self.orders, strict=True):
            inner //= length
            found += [(length, inner)] * order
        return found

    def lengths(self) -> Array:
        """Return the lengths of three axes, ``int64[3]``, as interpolation takes them."""
        return np.array(((1,) * CUBIC_AXES + self.shape)[-CUBIC_AXES:], np.int64)


def joined(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Return a shape without axes of length 1, the slowest ones joined where there are more than `most`."""
    axes = tuple(length for length in shape if length > 1)
    cut = max(len(axes) - most + 1, 1)
    return axes if len(axes) <= most else (math.prod(axes[:cut]), *axes[cut:])


def outside(values: Array, inverse: float, rounding: float, limit: float) -> Array:
    """Return where values have no level: as `neighbours.grid_levels` counts them."""
    with np.errstate(over="ignore", invalid="ignore"):
        inside = np.abs(values.astype(np.float64)) * inverse + rounding < limit
    return ~inside


def carried(levels: Array, special: Array, length: int, inner: int) -> None:
    """Give each special element the level of the last one before it along an axis, in place."""
    grid, gone = levels.reshape(-1, length, inner), special.reshape(-1, length, inner)
    places = np.where(gone, 0, np.arange(length)[:, None])
    np.maximum.accumulate(places, axis=1, out=places)
    grid[...] = np.take_along_axis(grid, places, axis=1)


def choose(values: Array, shape: tuple[int, ...], step_size: float, *, between: bool) -> Predictor:
    """Choose how to predict a chunk.

    Parameters
    ----------
    values
        ``float32[n]`` or ``float64[n]``.
    shape
        Of the grid that they are, in the order of memory.
    step_size
        That the levels will have.
    between
        Whether values may be interpolated: they then lie within half a step size, but are no multiples of it.

    Returns
    -------
    Predictor
        An empty one where the sample says that prediction saves too little.
    """
    axes = joined(shape, MOST_AXES)
    if not axes:
        return Predictor()
    grid = values.reshape(axes)
    _, _, orders = _orders(_boxes(grid, _GLANCE), axes, step_size, 1)
    if not any(orders):
        return Predictor()
    boxes = _boxes(grid, min(max(grid.size // _ONE_IN, _LEAST), _MOST))
    plain, best, orders = _orders(boxes, axes, step_size, MOST_ORDERS)
    found = Predictor(axes, orders)
    if between:
        cost = _cost(_interpolated(boxes, step_size))
        if cost < best:
            few = joined(axes, CUBIC_AXES)
            best, found = cost, Predictor(few, (0,) * len(few), cubic=True)
    worth = plain * (1 - _MUST_SAVE) - _MORE_BITS / values.size
    return found if best < worth else Predictor()


def _boxes(grid: Array, size: int) -> Array:
    """Return boxes of about `size` elements in all from all over a grid; or all of it, if that is less."""
    if grid.size <= size:
        return grid[None]
    room = size / _BOXES
    edges = [0] * grid.ndim
    for done, axis in enumerate(np.argsort(grid.shape, kind="stable")):
        edges[axis] = min(grid.shape[axis], max(round(room ** (1 / (grid.ndim - done))), 2))
        room /= edges[axis]
    places = [
        [
            slice(at := (length - edge) * (2 * ((box + axis) % _BOXES) + 1) // (2 * _BOXES), at + edge)
            for axis, (length, edge) in enumerate(zip(grid.shape, edges, strict=True))
        ]
        for box in range(_BOXES)
    ]
    return np.stack([grid[tuple(place)] for place in places])


def _levels_of(boxes: Array, step_size: float) -> Array:
    """Return the levels of boxes; those of special values are as the ones before them."""
    levels, flat = np.empty(boxes.size, np.int64), boxes.reshape(-1)
    rule = 1 / step_size, 0.5, LIMITS[8]
    if neighbours.grid_levels(flat, *rule, levels):
        carried(levels, outside(flat, *rule), boxes.size, 1)
    return levels.reshape(boxes.shape)


def _interpolated(boxes: Array, step_size: float) -> Array:
    """Return the levels of boxes that are left over, but near their edges, where cubics do not reach."""
    known, levels = np.empty(boxes[0].size, np.int64), np.empty(boxes.shape, np.int64)
    fine = 2.0**neighbours.PARTS
    rule = True, fine / step_size, fine * LIMITS[8], Predictor(joined(boxes.shape[1:], CUBIC_AXES)).lengths()
    for box, into in zip(boxes, levels, strict=True):
        neighbours.interpolate(box.reshape(-1), *rule, known, into.reshape(-1))
    inside = [slice(1, length - 3) if length > 8 else slice(None) for length in boxes.shape[1:]]
    return levels[(slice(None), *inside)]


def _orders(
    boxes: Array, axes: tuple[int, ...], step_size: float, most: int
) -> tuple[float, float, tuple[int, ...]]:
    """Take differences along the axis that saves most, again and again, while that saves.

    Returns
    -------
    tuple
        Bits of a level without any, bits with them, and how many they are along each axis.
    """
    levels = _levels_of(boxes, step_size)
    plain = cost = _cost(levels)
    orders = [0] * len(axes)
    while sum(orders) < most:
        trials = []
        for axis, edge in enumerate(levels.shape[1:]):
            if orders[axis] < MOST_ORDER and edge > 1:
                trial = _differences(levels, axis + 1, boxes.shape[axis + 1] == axes[axis])
                trials.append((_cost(trial), axis, trial))
        least, axis, trial = min(trials, key=lambda t: t[0], default=(cost, 0, levels))
        if least >= cost * (1 - _ORDER_MUST_SAVE):
            break
        cost, levels = least, trial
        orders[axis] += 1
    return plain, cost, tuple(orders)


def _differences(levels: Array, axis: int, whole: bool) -> Array:
    """Return differences along an axis. The first element has none where the box is cut out of the grid."""
    return np.diff(levels, axis=axis, prepend=0) if whole else np.diff(levels, axis=axis)


def _cost(levels: Array) -> float:
    """Return the bits that a level takes."""
    return count_bits(np.ascontiguousarray(levels).reshape(-1)) / levels.size
