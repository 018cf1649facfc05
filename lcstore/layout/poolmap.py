"""Which pieces of which tensors a chunk of a pool holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from lcstore.arrays import Array
from lcstore.layout.specs import PoolSpec, TensorSpec
from lcstore.once import once


class Piece(NamedTuple):
    """Elements ``first`` to ``first + size`` of tensor `tensor`, at ``at`` of the chunk."""

    tensor: int
    first: int
    at: int
    size: int


def pieces_of(tensor: int, spec: TensorSpec, chunk: int) -> Iterator[tuple[int, Piece]]:
    """Yield the pieces of one tensor, each with the number of its chunk; chunks have so many elements."""
    first, size = 0, spec.size
    while first < size:
        number, at = divmod(spec.offset + first, chunk)
        piece = Piece(tensor, first, at, min(size - first, chunk - at))
        yield number, piece
        first += piece.size


@dataclass(frozen=True, slots=True, eq=False)
class PieceColumns:
    """Pieces of one chunk (or pool) in the order in which they lie: an ``int64`` column for each field.

    None of them is empty. States may have very many tensors, so all that can be is done with whole columns.
    """

    tensor: Array
    first: Array
    at: Array
    size: Array

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> Self:
        """Return pieces of one chunk, given in any order."""
        rows = np.array(sorted(pieces, key=lambda piece: piece.at), np.int64).reshape(-1, 4)
        return cls(*np.ascontiguousarray(rows.T))

    def __len__(self) -> int:
        return self.tensor.size

    def __iter__(self) -> Iterator[Piece]:
        return map(Piece, *(column.tolist() for column in (self.tensor, self.first, self.at, self.size)))

    def where(self, which: Array | slice) -> Self:
        """Return those that an index or a mask chooses, in their order."""
        return type(self)(self.tensor[which], self.first[which], self.at[which], self.size[which])

    def within(self, low: int, high: int) -> Self:
        """Return what lies between two elements, cut to that."""
        begin, end = np.searchsorted(self.at, (low, high)).tolist()
        if low < high and begin and self.at[begin - 1] + self.size[begin - 1] > low:
            begin -= 1
        some = self.where(slice(begin, max(begin, end)))
        at = np.maximum(some.at, low)
        size = np.minimum(some.at + some.size, high) - at
        return type(self)(some.tensor, some.first + (at - some.at), at, size)

    def moved(self, by: int) -> Self:
        """Return them at other places."""
        return type(self)(self.tensor, self.first, self.at + by, self.size)

    @property
    def span(self) -> tuple[int, int]:
        """Where the first begins, and where the last ends; there has to be one."""
        return int(self.at[0]), int(self.at[-1] + self.size[-1])

    def runs(self) -> list[tuple[int, int]]:
        """Return where pieces lie, first and behind the last element: those that touch are one run."""
        ends = self.at + self.size
        apart = np.flatnonzero(self.at[1:] > ends[:-1])
        first = np.concatenate((self.at[:1], self.at[1:][apart]))
        last = np.concatenate((ends[:-1][apart], ends[-1:]))
        return [*zip(first.tolist(), last.tolist(), strict=True)]


class Places(NamedTuple):
    """Where the tensors of a layout lie: ``int64``, per tensor; in elements, and pools by their places."""

    pool: Array
    offset: Array
    size: Array

    @classmethod
    def of(cls, tensors: Sequence[TensorSpec], pools: Mapping[str, PoolSpec]) -> Self:
        """Return the places of the tensors of a layout."""
        numbers = {name: number for number, name in enumerate(pools)}
        columns = (
            [numbers[spec.pool] for spec in tensors],
            [spec.offset for spec in tensors],
            [spec.size for spec in tensors],
        )
        return cls(*(np.array(column, np.int64) for column in columns))

    def maps(self, pools: Mapping[str, PoolSpec]) -> dict[str, PoolMap]:
        """Return what lies in each of the pools, by its name."""
        order = np.lexsort((self.offset, self.pool))
        order = order[self.size[order] > 0]
        every = PieceColumns(order, np.zeros_like(order), self.offset[order], self.size[order])
        bounds = np.searchsorted(self.pool[order], np.arange(len(pools) + 1)).tolist()
        return {
            pool.name: PoolMap(pool, every.where(slice(*bounds[number : number + 2])))
            for number, pool in enumerate(pools.values())
        }


class PoolMap:
    """The tensors of one pool in the order of their offsets, those of size zero left out."""

    def __init__(self, pool: PoolSpec, lies: PieceColumns) -> None:
        self.pool = pool
        self.lies = lies

    @property
    def tensors(self) -> list[int]:
        """The numbers of the tensors."""
        found: list[int] = self.lies.tensor.tolist()
        return found

    def some(self, tensors: Iterable[int]) -> PieceColumns:
        """Return those of some tensors that lie in the pool, as pieces of it."""
        wanted = np.array(tensors if isinstance(tensors, np.ndarray) else [*tensors], np.int64)
        order, known = self._by_number
        low, high = (np.searchsorted(known, wanted, side) for side in ("left", "right"))
        rows = np.unique(order[low[low < high]])
        return self.lies if rows.size == known.size else self.lies.where(rows)

    @once
    def _by_number(self) -> tuple[Array, Array]:
        """The rows of the tensors in the order of their numbers, and these."""
        order = np.argsort(self.lies.tensor, kind="stable")
        return order, self.lies.tensor[order]

    def chunks_of(self, tensors: Iterable[int], window: tuple[int, int] | None = None) -> list[int]:
        """Return the numbers of the chunks that hold any of `tensors`: of a window, any of its elements."""
        return self.chunks_with(self.some(tensors), window)

    def chunks_with(self, some: PieceColumns, window: tuple[int, int] | None = None) -> list[int]:
        """Return the numbers of the chunks that hold any of some tensors, as pieces of the pool."""
        low, high = (0, some.size) if window is None else window
        firsts = ((some.at + low) // self.pool.chunk).tolist()
        lasts = ((some.at + high - 1) // self.pool.chunk).tolist()
        found: set[int] = set()
        for first, last in {*zip(firsts, lasts, strict=True)} if window is None or low < high else ():
            found.update(range(first, last + 1))
        return sorted(found)

    def bounds(self, chunk: int) -> tuple[int, int]:
        """Return where a chunk begins and ends in the pool: the last one ends where the pool does."""
        low = chunk * self.pool.chunk
        return low, min(low + self.pool.chunk, self.pool.size)

    def pieces(self, chunk: int, of: Iterable[int] | None = None) -> PieceColumns:
        """Return the pieces in a chunk: those of some tensors, or all."""
        return self.cut(chunk, self.lies if of is None else self.some(of))

    def cut(self, chunk: int, some: PieceColumns) -> PieceColumns:
        """Return as pieces of a chunk what it holds of pieces of the pool."""
        low, high = self.bounds(chunk)
        return some.within(low, high).moved(-low)
