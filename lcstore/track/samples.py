"""A fixed sample of each tensor: its update scale and its tracking error, at a cost that does not grow.

The exact previous state is not kept; what these few elements were is.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import LOSSY_DTYPES, dtype_name
from lcstore.errors import InvalidInputError
from lcstore.kernels import sample as kernels
from lcstore.layout.specs import TensorSpec
from lcstore.state.names import format_name

#: Elements of a sample: one in so many, but no fewer than the first number and no more than the second.
ONE_IN: Final = 256
LEAST, SIZE = 1024, 16_384
#: Update scales are recorded as float32; those of float64 tensors may be larger.
LARGEST: Final = float(np.finfo(np.float32).max)
#: Rows are taken to be touched one by one where this part of the neighbours of what moves do.
_TOGETHER: Final = 0.75
_STRIDE_MIX: Final = 0x9E3779B97F4A7C15


@lru_cache(maxsize=256)  # 128 KiB each; most models have a few sizes of tensors
def positions(count: int) -> Array:
    """Return where a tensor of `count` elements is sampled: everywhere if it is small, else spread over all.

    Two neighbours of each of many equal parts, at a place inside the part that a fixed mix gives, so
    that no row length beats with it. Neighbours tell rows that are not touched from elements that happen not
    to move.
    """
    if count <= LEAST:
        return np.arange(count)
    pairs = min(SIZE, max(LEAST, count // ONE_IN)) // 2
    parts = np.arange(pairs, dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = ((parts + np.uint64(1)) * np.uint64(_STRIDE_MIX)) >> np.uint64(33)
    starts = parts.astype(np.int64) * count // pairs
    lengths = (parts.astype(np.int64) + 1) * count // pairs - starts
    first = starts + (mixed.astype(np.int64) % (lengths - 1))
    return np.stack((first, first + 1), axis=1).reshape(-1)


def take(flat: Array) -> Array:
    """Return the sample of a flat tensor, as float64."""
    places = positions(flat.size)
    if flat.dtype.itemsize < 4:  # half precision: kernels know none of its dtypes
        return flat[places].astype(np.float64)
    out = np.empty(places.size)
    kernels.gather(flat, places, out)
    return out


def touched(change: Array) -> Array | None:
    """Return which sampled elements lie in rows that were touched; None unless most rows were not.

    Where less than half of all elements move, and neighbours nearly always move together, it is whole rows
    that do not move.
    """
    if 2 * np.count_nonzero(change) > change.size:
        return None
    moves = change != 0
    pairs = moves[: moves.size // 2 * 2].reshape(-1, 2)
    either, both = int(pairs.any(axis=1).sum()), int(pairs.all(axis=1).sum())
    return moves if either > 0 and both > _TOGETHER * either else None


def check_touched(spec: TensorSpec, ranges: Array, change: Array) -> None:
    """Refuse ranges that leave out anything of the sample that has changed.

    Raises
    ------
    InvalidInputError
        They do.
    """
    places = positions(spec.size)[change != 0]
    begun = np.searchsorted(ranges[:, 0], places, "right")
    if (begun == np.searchsorted(ranges[:, 1], places, "right")).any():
        raise InvalidInputError(
            f"touched leaves out elements of {format_name(spec.name)!r} that have changed since the "
            "last save; name all rows that have, or leave the tensor out of touched"
        )


def rms(values: Array) -> float:
    """Return the root mean square of ``float64[n]``; 0 for nothing. Squares neither overflow nor vanish."""
    out = np.empty(1)
    kernels.root_mean_square(values, out)
    return float(out[0])


def movement(now: Array, before: Array) -> Array:
    """Return how far each of some plain tensors of one size has moved, a row each: ``float64``.

    That is the root mean square of its sample's change. 0 of what are no floats, or not finite.
    """
    count, size = now.shape
    if dtype_name(now.dtype) not in LOSSY_DTYPES:
        return np.zeros(count)
    if size > LEAST:
        now, before = now[:, positions(size)], before[:, positions(size)]
    with np.errstate(invalid="ignore", over="ignore"):
        change = now.astype(np.float64, order="C")
        change -= before
        moved: Array = np.sqrt(np.add.reduce(change * change, axis=1) / change.shape[1])
    return np.where(moved <= LARGEST, moved, 0)


def residuals(track: Array, unit: float, now: Array, before: Array) -> tuple[float, float, float]:
    """Return sums over the sample of a tensor: the squares of what is left and of what changed; the products.

    Parameters
    ----------
    track, unit
        Its grid integers, and the unit of its grid.
    now, before
        Its sample, and that of the save before.
    """
    out = np.empty(3)
    kernels.residuals(track, positions(track.size), unit, now, before, out)
    return float(out[0]), float(out[1]), float(out[2])
