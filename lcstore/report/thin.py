"""Fewer points than there are, chosen so that nothing that stands out is lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

T = TypeVar("T")


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Return at most so many items, evenly spread; the first and the last are among them."""
    if len(items) <= most:
        return list(items)
    if most < 2:
        return list(items[-most:]) if most else []
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def peaks(items: Sequence[T], value: Callable[[T], float], most: int) -> list[T]:
    """Return at most so many items: of each of many equal parts the one of least value and the one of most.

    So a spike is seen however many items there are. NaN counts as neither.
    """
    if len(items) <= most:
        return list(items)
    chosen: list[T] = []
    for part in bins(items, max(most // 2, 1)):
        finite = [place for place, item in enumerate(part) if math.isfinite(value(item))] or [0]
        ends = {min(finite, key=lambda at: value(part[at])), max(finite, key=lambda at: value(part[at]))}
        chosen += [part[place] for place in sorted(ends)]
    return chosen


def bins(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Return the items in at most so many parts of nearly equal length."""
    count = min(len(items), most)
    edges = [place * len(items) // count for place in range(count + 1)] if count else []
    return [items[low:high] for low, high in pairwise(edges)]
