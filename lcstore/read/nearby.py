"""Small tensors that are read one after another: their chunk is decoded once, and not for each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Final, TypeAlias

from lcstore.arrays import Array
from lcstore.errors import LcstoreError
from lcstore.layout.specs import MAX_CHUNK_BYTES
from lcstore.read.node import Node

#: A chunk: of which pool, and which.
Where: TypeAlias = tuple[str, int]

#: Tensors of a chunk that are read by themselves; with the next one, all that lie in it are.
_BY_THEMSELVES: Final = 2
#: A tensor is small where so many of its size make a chunk.
_SMALL: Final = 8


class Nearby:
    """The values of chunks, `most` bytes of them, whose tensors were asked for one by one. Thread-safe.

    A chunk that had to go for others does not come again.
    """

    def __init__(self, most: int = MAX_CHUNK_BYTES) -> None:
        self._most = most
        self._lock = Lock()
        self._asked: Counter[Where] = Counter()
        self._held: dict[Where, dict[int, Array]] = {}
        self._gone: set[Where] = set()

    def value(self, node: Node, tensor: int, read: Callable[[Sequence[int]], dict[int, Array]]) -> Array:
        """Return the flat values of one tensor, by its place among `Layout.wholes`."""
        where = _chunk_of(node, tensor)
        if where is None or not self._is_worth_it(where, tensor):
            return read([tensor])[tensor]
        with self._lock:
            held = self._held.get(where, {}).get(tensor)
        if held is None:
            try:
                found = read(_around(node, tensor, where))
            except LcstoreError:  # which need not be of the tensor that is asked for
                return read([tensor])[tensor]
            self._hold(where, found)
            held = found[tensor]
        return held.copy()  # it is the caller's to write to

    def _is_worth_it(self, where: Where, tensor: int) -> bool:
        with self._lock:
            self._asked[where] += 1
            lacks = where in self._gone or tensor not in self._held.get(where, {tensor})
            return not lacks and self._asked[where] > _BY_THEMSELVES

    def _hold(self, where: Where, found: dict[int, Array]) -> None:
        with self._lock:
            self._held[where] = found
            while sum(a.nbytes for held in self._held.values() for a in held.values()) > self._most:
                first = next(iter(self._held))
                del self._held[first]
                self._gone.add(first)


def _chunk_of(node: Node, tensor: int) -> Where | None:
    """Return the chunk that a small tensor lies in; None of a tensor that is not small, or has shards."""
    if node.layout.parts:
        return None
    spec = node.layout.tensors[tensor]
    pool = node.layout.pools[spec.pool]
    if not spec.size or spec.size * _SMALL > pool.chunk or pool.chunk * spec.itemsize > MAX_CHUNK_BYTES:
        return None
    return pool.name, spec.offset // pool.chunk


def _around(node: Node, tensor: int, where: Where) -> list[int]:
    """Return the tensors that are read from where one is, itself among them."""
    pool, chunk = where
    there = node.layout.maps[pool].pieces(chunk)
    whole = there.size == node.layout.places.size[there.tensor]
    alike = node.exactly[there.tensor] == node.exactly[tensor]
    found: list[int] = there.tensor[(there.tensor == tensor) | (whole & alike)].tolist()
    return found
