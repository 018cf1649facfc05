"""Which rows a user says have changed: checked, made ranges of elements, remembered until they are saved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError
from lcstore.staging.stage import Staged
from lcstore.state.names import Name, parse_name


class Touched:
    """Ranges of elements that were said to have changed since the head, by all saves that were tried since.

    A tensor that one of them did not name may have changed anywhere.
    """

    def __init__(self) -> None:
        self._ranges: dict[Name, Array] | None = None

    def note(self, staged: Staged) -> dict[Name, Array]:
        """Return what changed of the named tensors since the head, and remember it until a save lands."""
        before, self._ranges = self._ranges, {}
        shapes = {name: host.array.shape for name, host in staged.flat.tensors} if staged.touched else {}
        now = ranges_of(staged.touched or {}, shapes, staged.flat.ties)
        if before is not None:
            now = {name: union(now[name], before[name]) for name in now.keys() & before.keys()}
        self._ranges = now
        return now

    def forget(self) -> None:
        """Begin anew: another state is the head."""
        self._ranges = None


def ranges_of(
    touched: Mapping[str, Any],
    tensors: Mapping[Name, tuple[int, ...]],
    ties: Mapping[Name, Name] | None = None,
) -> dict[Name, Array]:
    """Return ranges of elements, ``int64[r, 2]``, rising and apart, of each tensor that is named.

    Parameters
    ----------
    touched
        By name: row numbers (along the first axis, in any order, negative ones from the end), or a mask.
    tensors
        The shapes of the state's tensors, by name.
    ties
        Further names of them, as `FlatState` has them.

    Raises
    ------
    InvalidInputError
        There is no such tensor, or no such row.
    """
    found: dict[Name, Array] = {}
    for text, rows in touched.items():
        name = parse_name(text)
        name = (ties or {}).get(name, name)
        if name not in tensors:
            raise InvalidInputError(f"touched names {text!r}, which is no tensor of the state")
        shape = tensors[name]
        ranges = _ranges(_rows(np.asarray(rows), shape, text), math.prod(shape[1:]))
        found[name] = union(found[name], ranges) if name in found else ranges
    return found


def _rows(rows: Array, shape: tuple[int, ...], text: str) -> Array:
    if not shape:
        raise InvalidInputError(f"touched names {text!r}, which has no rows")
    count = shape[0]
    if rows.dtype == np.bool_:
        if rows.shape != (count,):
            raise InvalidInputError(f"touched[{text!r}] is a mask of shape {rows.shape}, not ({count},)")
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise InvalidInputError(f"touched[{text!r}] is neither a list of row numbers nor a mask of rows")
    if rows.size and not (-count <= int(rows.min()) and int(rows.max()) < count):
        raise InvalidInputError(f"touched[{text!r}] names a row outside the {count} rows of the tensor")
    numbers = rows.astype(np.int64)
    return np.unique(np.where(numbers < 0, numbers + count, numbers))


def _ranges(rows: Array, width: int) -> Array:
    """Join rows that are neighbours."""
    if not rows.size:
        return np.empty((0, 2), np.int64)
    cuts = np.flatnonzero(np.diff(rows) > 1) + 1
    first, last = rows[np.concatenate(([0], cuts))], rows[np.concatenate((cuts - 1, [rows.size - 1]))]
    return np.stack((first, last + 1), axis=1) * width


def union(one: Array, other: Array) -> Array:
    """Return the ranges that either has, rising and apart."""
    both = np.concatenate((one, other))
    if not both.size:
        return both
    both = both[np.argsort(both[:, 0], kind="stable")]
    reached = np.maximum.accumulate(both[:, 1])
    begins = np.concatenate(([0], np.flatnonzero(both[1:, 0] > reached[:-1]) + 1))
    return np.stack((both[begins, 0], np.maximum.reduceat(both[:, 1], begins)), axis=1)
