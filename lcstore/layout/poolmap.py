"""Which pieces of which tensors a chunk of a pool holds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lcstore.layout.specs import PoolSpec, TensorSpec


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements ``first`` to ``first + size`` of tensor `tensor`, at ``at`` of the chunk."""

    tensor: int
    first: int
    at: int
    size: int


def within(pieces: Sequence[Piece], low: int, high: int) -> Iterator[Piece]:
    """Yield what of some pieces, rising, lies between two elements of their chunk."""
    for i in range(bisect_right(pieces, low, key=_behind), len(pieces)):
        piece = pieces[i]
        if piece.at >= high:
            return
        begin, end = max(piece.at, low), min(piece.at + piece.size, high)
        yield Piece(piece.tensor, piece.first + begin - piece.at, begin, end - begin)


def _behind(piece: Piece) -> int:
    return piece.at + piece.size


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
        self._places = {tensor: place for place, tensor in enumerate(self.tensors)}

    def chunks_of(self, tensors: Iterable[int], window: tuple[int, int] | None = None) -> list[int]:
        """Return the numbers of the chunks that hold any of `tensors`: of a window, any of its elements."""
        found: set[int] = set()
        for place in self._inside(tensors):
            low, high = window or (0, self.sizes[place])
            if low < high:
                offset = self.offsets[place]
                first, last = (offset + low) // self.pool.chunk, (offset + high - 1) // self.pool.chunk
                found.update(range(first, last + 1))
        return sorted(found)

    def _inside(self, tensors: Iterable[int]) -> Iterator[int]:
        """Yield the places of those of some tensors that lie in the pool."""
        return (self._places[tensor] for tensor in tensors if tensor in self._places)

    def bounds(self, chunk: int) -> tuple[int, int]:
        """Return where a chunk begins and ends in the pool: the last one ends where the pool does."""
        low = chunk * self.pool.chunk
        return low, min(low + self.pool.chunk, self.pool.size)

    def pieces(self, chunk: int, of: Collection[int] | None = None) -> Iterator[Piece]:
        """Yield the pieces in a chunk, in order: those of some tensors, or all."""
        low, high = self.bounds(chunk)
        first = max(bisect_right(self.offsets, low) - 1, 0)
        last = bisect_left(self.offsets, high)
        few = of is not None and len(of) < last - first
        for i in sorted(self._inside(of or ())) if few else range(first, last):
            begin, end = max(self.offsets[i], low), min(self.offsets[i] + self.sizes[i], high)
            if begin < end and (of is None or few or self.tensors[i] in of):
                yield Piece(self.tensors[i], begin - self.offsets[i], begin - low, end - begin)
