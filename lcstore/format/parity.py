"""Parity: which objects of an edge each parity covers, and the bytes of one. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.arrays import Buffer
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef

#: Chunks that one parity covers, at the most.
COVERED: Final = 16
#: One part in so many is kept free, for a longer byte string to come.
_SPARE: Final = 16


class Xor:
    """The bitwise exclusive or of byte strings, each taken to end in as many zeros as it lacks."""

    def __init__(self) -> None:
        self._sum = np.zeros(0, np.uint8)
        self._nbytes = 0

    def add(self, data: Buffer) -> None:
        """Take a byte string in; taken twice, it is out again."""
        new = np.frombuffer(data, np.uint8)
        if new.size > self._sum.size:
            # Frames of one array are about as long as each other: with some room to spare, they all fit.
            more = np.zeros(new.size + new.size // _SPARE, np.uint8)
            more[: self._nbytes] = self._sum[: self._nbytes]
            self._sum = more
        here = self._sum[: new.size]
        np.bitwise_xor(here, new, out=here)
        self._nbytes = max(self._nbytes, new.size)

    def value(self, nbytes: int | None = None) -> memoryview:
        """Return the first bytes of it, or all; nothing is taken in any more."""
        return self._sum[: self._nbytes][:nbytes].data


@dataclass(frozen=True, slots=True)
class Family:
    """A parity, and the chunks that it covers: any one of them is the exclusive or of all others."""

    parity: ObjectRef
    chunks: tuple[ObjectRef, ...]

    def others(self, key: str) -> list[ObjectRef]:
        """Return what one of them is rebuilt from."""
        return [ref for ref in (self.parity, *self.chunks) if ref.key != key]


def families(refs: Iterable[ObjectRef]) -> dict[str, Family]:
    """Return by key the family of each object that has one, given those of an edge in the record's order."""
    chunks: defaultdict[str, list[ObjectRef]] = defaultdict(list)
    parities: list[tuple[str, int, ObjectRef]] = []
    for ref in refs:
        name, array = keys.parse_data_key(ref.key), ref.key.rpartition("/")[0]
        if name.chunk is not None:
            chunks[array].append(ref)
        elif name.parity is not None:
            parities.append((array, name.parity, ref))
    found: dict[str, Family] = {}
    for array, number, ref in parities:
        covered = tuple(chunks[array][COVERED * number : COVERED * (number + 1)])
        if covered:
            found |= dict.fromkeys([ref.key, *(chunk.key for chunk in covered)], Family(ref, covered))
    return found


def beyond_repair(refs: Sequence[ObjectRef], there: Collection[str]) -> str | None:
    """Return the key of a chunk of an array that is missing and cannot be rebuilt; None where there is none.

    Parameters
    ----------
    refs
        The objects of the array, in the record's order. One that is parity is missed by nobody who reads.
    there
        The keys that are there.
    """
    missing = [ref.key for ref in refs if ref.key not in there]
    if not missing:
        return None
    family = families(refs)
    for key in missing:
        others = family[key].others(key) if key in family else ()
        rebuilds = bool(others) and all(ref.key in there for ref in others)
        if not rebuilds and not keys.is_parity(key):
            return key
    return None
