"""Which pieces of which tensors a chunk of a pool holds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lcstore.state.specs import PoolSpec, TensorSpec


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements ``first`` to ``first + size`` of tensor `tensor`, at ``at`` of the chunk."""

    tensor: int
    first: int
    at: int
    size: int


class PoolMap:
    """The tensors of one pool in the order of their offsets, those of size zero left out.

    Parameters
    ----------
    pool
        The pool.
    specs, inside
        All tensors of the layout, and the numbers of those that lie in the pool.
    """

    def __init__(self, pool: PoolSpec, specs: Sequence[TensorSpec], inside: Iterable[int]) -> None:
        self.pool = pool
        self.tensors = sorted((t for t in inside if specs[t].size), key=lambda t: specs[t].offset)
        self.offsets = [specs[t].offset for t in self.tensors]
        self.sizes = [specs[t].size for t in self.tensors]

    def chunks_of(self, tensors: Container[int], window: tuple[int, int] | None = None) -> list[int]:
        """Return the numbers of the chunks that hold any of `tensors`: of a window, any of its elements."""
        found: set[int] = set()
        for tensor, offset, size in zip(self.tensors, self.offsets, self.sizes, strict=True):
            low, high = window or (0, size)
            if tensor in tensors and low < high:
                first, last = (offset + low) // self.pool.chunk, (offset + high - 1) // self.pool.chunk
                found.update(range(first, last + 1))
        return sorted(found)

    def bounds(self, chunk: int) -> tuple[int, int]:
        """Return where a chunk begins and ends in the pool: the last one ends where the pool does."""
        low = chunk * self.pool.chunk
        return low, min(low + self.pool.chunk, self.pool.size)

    def pieces(self, chunk: int) -> Iterator[Piece]:
        """Yield the pieces in a chunk, in order."""
        low, high = self.bounds(chunk)
        place = max(bisect_right(self.offsets, low) - 1, 0)
        for i in range(place, len(self.tensors)):
            begin, end = max(self.offsets[i], low), min(self.offsets[i] + self.sizes[i], high)
            if self.offsets[i] >= high:
                return
            if begin < end:
                yield Piece(self.tensors[i], begin - self.offsets[i], begin - low, end - begin)
