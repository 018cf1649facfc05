"""What metadata of ``torch.distributed.checkpoint`` promises: tensors that shards cover, and their places.

Torch checks this where it saves, and believes it where it loads: what no shard covers is whatever the memory
held before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import CorruptionError

#: Parts of a tensor between the borders of its shards, and axes along which it is cut, at the most.
_MOST_PARTS: Final = 1 << 24
_MOST_AXES: Final = 8
#: Elements of lists that hold nothing, for all of them.
_MOST_HOLES: Final = 1 << 16


def check_plan(metadata: Any, where: str) -> None:
    """Refuse metadata whose shards leave out a part of a tensor, or whose lists are far longer than it is.

    Raises
    ------
    CorruptionError
        It was changed, or cut off.
    """
    for name, found in metadata.state_dict_metadata.items():
        chunks = getattr(found, "chunks", None)
        if chunks is not None and not _is_covered(tuple(found.size), chunks):
            raise CorruptionError(f"{where}: the shards of {name!r} are not all of it")
    paths = (metadata.planner_data or {}).values()
    if _holes(paths) > _MOST_HOLES:
        raise CorruptionError(f"{where} places what it holds in lists, nearly all of which is empty")


def _is_covered(size: Sequence[int], chunks: Sequence[Any]) -> bool:
    """Return whether boxes lie within a tensor, and leave out none of it."""
    if not size:
        return len(chunks) > 0
    shape = np.array(size, np.int64)
    first = np.array([tuple(one.offsets) for one in chunks], np.int64).reshape(-1, len(size))
    end = first + np.array([tuple(one.sizes) for one in chunks], np.int64).reshape(-1, len(size))
    if (first < 0).any() or (end < first).any() or (end > shape).any():
        return False
    if not math.prod(size):
        return True
    cut = np.flatnonzero((first > 0).any(0) | (end < shape).any(0)).tolist()
    borders = [np.unique([0, size[axis], *first[:, axis], *end[:, axis]]) for axis in cut]
    if len(cut) > _MOST_AXES or math.prod(map(len, borders)) > _MOST_PARTS:
        return False
    return len(chunks) > 0 and bool((_counts(first[:, cut], end[:, cut], borders) > 0).all())


def _counts(first: Array, end: Array, borders: Sequence[Array]) -> Array:
    """Return how many boxes there are upon each part between borders: sums of what begins and ends there."""
    counts = np.zeros([len(some) for some in borders], np.int64)
    sides = [
        [np.searchsorted(some, one[:, axis]) for one in (first, end)] for axis, some in enumerate(borders)
    ]
    for corner in product((0, 1), repeat=len(borders)):
        at = tuple(sides[axis][side] for axis, side in enumerate(corner))
        np.add.at(counts, at, -1 if sum(corner) % 2 else 1)
    for axis in range(len(borders)):
        counts = counts.cumsum(axis)
    return counts[tuple(slice(-1) for _ in borders)]


def _holes(paths: Iterable[Sequence[Any]]) -> int:
    """Return how many elements lists would have that are no place of anything."""
    longest, held = Counter[Sequence[Any]](), set[Sequence[Any]]()
    for path in paths:
        for depth, key in enumerate(path):
            if isinstance(key, int):
                longest[path[:depth]] = max(longest[path[:depth]], key + 1)
                held.add(path[: depth + 1])
    return longest.total() - len(held)
