"""Values that others may change meanwhile: what is stored and what is tracked are of one reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.coders.scratch import scratch_array
from lcstore.frames.pieces import Pieces
from lcstore.once import once

#: Elements that are read, and then gone through several times, at a time.
IN_CACHE: Final = 1 << 17


class ReadOnce(Pieces):
    """Values of one chunk, each of which is read once: in blocks, copied to where they stay in cache.

    Parameters
    ----------
    given
        The parts, each with its place, as `Pieces` takes them. They may be read-only.
    count, dtype
        Of the chunk.
    seen
        Is called for each block, with the number of its part, its place there, and its values.
    """

    def __init__(
        self,
        given: Sequence[tuple[int, Array]],
        count: int,
        dtype: np.dtype[Any],
        seen: Callable[[int, int, Array], None],
    ) -> None:
        super().__init__((), count, dtype)
        self.given = [*given]
        self._seen = seen
        self._is_read = False

    @once
    def whole(self) -> Array:
        """A copy of all of them."""
        out = scratch_array(self.size, self.dtype)
        for at, values in self._read():
            out[at : at + values.size] = values
        return out

    def moved(self, places: Array, count: int) -> Pieces:
        """Return the same parts at other places; of these values, no more is read here."""
        if "whole" in vars(self):
            read = [(at, self.whole[at : at + part.size]) for at, part in self.given]
            return Pieces(read, self.size, self.dtype).moved(places, count)
        self._is_read = True
        parts = zip(places.tolist(), (part for _, part in self.given), strict=True)
        return ReadOnce([*parts], count, self.dtype, self._seen)

    def blocks(self) -> Iterator[tuple[int, Array]]:
        """Yield the values with their places; a block is valid until the next one."""
        return self._read() if "whole" not in vars(self) else iter([(0, self.whole)])

    def any_bit(self) -> bool:
        """Return whether any bit is set; where none shows at once, all are read now."""
        if "whole" not in vars(self) and any(_bytes(part[:1024]).any() for _, part in self.given):
            return True
        return bool(_bytes(self.whole).any())

    def _read(self) -> Iterator[tuple[int, Array]]:
        assert not self._is_read, "values that may have changed are read again"
        self._is_read = True
        room = np.empty(min(IN_CACHE, self.size), self.dtype)
        for number, (at, part) in enumerate(self.given):
            for low in range(0, part.size, IN_CACHE):
                block = room[: min(IN_CACHE, part.size - low)]
                block[:] = part[low : low + block.size]
                self._seen(number, low, block)
                yield at + low, block


def _bytes(values: Array) -> Array:
    return values.view(np.uint8)
