"""A tensor that several writers store: which of its elements each of them has."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

#: First and behind the last index of each dimension.
Box: TypeAlias = tuple[tuple[int, int], ...]

#: Dimensions in which a tensor may be cut: what is to be looked at doubles with each of them.
MAX_CUT_DIMS: Final = 8


class Shard(NamedTuple):
    """A rectangle of a tensor.

    Attributes
    ----------
    whole
        Shape of the tensor.
    start
        First index of the shard in each dimension; its own shape says how far it goes.
    """

    whole: tuple[int, ...]
    start: tuple[int, ...]

    def box(self, shape: Sequence[int]) -> Box:
        """Return the indices that a shard of this shape has."""
        return tuple((low, low + size) for low, size in zip(self.start, shape, strict=True))

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a shard of this shape lies within the tensor."""
        if not len(self.whole) == len(self.start) == len(shape):
            return False
        ends = zip(self.start, shape, self.whole, strict=True)
        return all(low >= 0 and size >= 0 and low + size <= most for low, size, most in ends)

    def runs(self, shape: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
        """Return shape, whole and start once dimensions that go on without a gap are taken as one.

        A shard along the first dimension is a single run: one dimension is left.
        """
        extents, whole, start = list(shape), list(self.whole), list(self.start)
        while len(extents) > 1 and extents[-1] == whole[-1]:
            inner = extents.pop()
            whole.pop()
            start.pop()
            extents[-1], whole[-1], start[-1] = extents[-1] * inner, whole[-1] * inner, start[-1] * inner
        return extents, whole, start


def box_of(shape: Sequence[int]) -> Box:
    """Return the indices of all elements of a tensor."""
    return tuple((0, size) for size in shape)


def overlap(one: Box, other: Box) -> Box | None:
    """Return the indices that two boxes share; None where they share none."""
    both = tuple((max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(one, other, strict=True))
    return both if all(low < high for low, high in both) else None


def within(box: Box, outer: Box) -> tuple[slice, ...]:
    """Return where a box lies in one that it is within."""
    return tuple(slice(low - first, high - first) for (low, high), (first, _) in zip(box, outer, strict=True))


def misfit(whole: Sequence[int], boxes: Sequence[Box]) -> str | None:
    """Return what is wrong with boxes that are to be a tensor, each element in one of them; None if nothing.

    Boxes make up the whole if and only if their corners, each with its sign, add up to the corners of it:
    that is the derivative of the number of boxes that an element is in, which is to be one everywhere.
    """
    cut = [d for d in range(len(whole)) if any(box[d] != (0, whole[d]) for box in boxes)]
    if len(cut) > MAX_CUT_DIMS:
        return f"are cut in more than {MAX_CUT_DIMS} dimensions"
    if not cut:
        return None if len(boxes) == 1 else "overlap"
    found = _corners(tuple(box[d] for d in cut) for box in boxes)
    if found == _corners([tuple((0, whole[d]) for d in cut)]):
        return None
    count = sum(math.prod(high - low for low, high in box) for box in boxes)
    return "leave gaps" if count < math.prod(whole) else "overlap"


def _corners(boxes: Iterable[Box]) -> dict[tuple[int, ...], int]:
    found: Counter[tuple[int, ...]] = Counter()
    for box in boxes:
        for ends in itertools.product((0, 1), repeat=len(box)):
            corner = tuple(side[end] for side, end in zip(box, ends, strict=True))
            found[corner] += 1 - 2 * (sum(ends) % 2)
    return {corner: sign for corner, sign in found.items() if sign}
