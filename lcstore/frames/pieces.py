"""The values of a chunk where they lie: in one array or in several, with zeros between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.coders.scratch import scratch_array
from lcstore.once import once


class Pieces:
    """Values of one chunk. To lay them together first would take as much memory again, and a pass over it.

    Parameters
    ----------
    parts
        Each with the place of its first element, in rising order; they do not overlap.
    count
        Elements of the chunk: what is in no part is zero.
    dtype
        Of the chunk. Parts of another one are converted.

    Attributes
    ----------
    given
        The parts as they were given.
    parts
        The same, contiguous and writeable: kernels would be compiled anew for what is not.
    size, dtype
        Of the chunk.
    """

    def __init__(self, parts: Iterable[tuple[int, Array]], count: int, dtype: np.dtype[Any]) -> None:
        self.given = [*parts]
        self.parts = [(at, _ready(values, dtype)) for at, values in self.given]
        self._starts = [at for at, _ in self.parts]
        self.size = count
        self.dtype = dtype

    @classmethod
    def of(cls, values: Array) -> Pieces:
        """Return the values of one array."""
        return cls([(0, values)], values.size, values.dtype)

    @once
    def whole(self) -> Array:
        """The values as one array; a part that is the whole chunk is given as it is."""
        if len(self.parts) == 1 and self.parts[0][1].size == self.size:
            return self.parts[0][1]
        out = scratch_array(self.size, self.dtype)
        for at, values in self.parts:
            out[at : at + values.size] = values
        return out

    def moved(self, places: Array, count: int) -> Pieces:
        """Return the same parts at other places of a chunk of `count` elements."""
        parts = zip(places.tolist(), (values for _, values in self.parts), strict=True)
        return Pieces(parts, count, self.dtype)

    def between(self, low: int, high: int) -> Array:
        """Return the elements ``low:high``, without a copy where one part has them all."""
        place = bisect_right(self._starts, low) - 1
        if place >= 0:
            at, values = self.parts[place]
            if high <= at + values.size:
                return values[low - at : high - at]
        return self.whole[low:high]

    def blocks(self) -> Iterable[tuple[int, Array]]:
        """The values with their places, for one pass."""
        return self.parts

    def any_bit(self) -> bool:
        """Return whether any bit is set: most chunks show one at once, and are not read to the end."""
        patterns = [values.view(np.uint8) for _, values in self.parts]
        return any(some[:4096].any() for some in patterns) or any(some.any() for some in patterns)


def _ready(values: Array, dtype: np.dtype[Any]) -> Array:
    ready = values.dtype == dtype and values.flags.writeable and values.flags.c_contiguous
    return values if ready else values.astype(dtype, order="C")
