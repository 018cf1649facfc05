"""Code tables: how their lengths are written, and a cache that reuses one while it stays near the optimum.

The paper caches its code tables because the statistics of deltas hardly move between checkpoints
(LC-Checkpoint, ICML 2020, "Huffman code table caching"). Here a frame always carries its table (at most 128
bytes), so a cache saves time only, never correctness.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lcstore.arrays import Array
from lcstore.bitkernels import huffman
from lcstore.errors import CorruptionError
from lcstore.once import once

SYMBOLS = 256
_SIZE = huffman.TABLE_SIZE
#: Bytes of a table: two lengths each, and runs are written only where they are shorter.
_MOST_BYTES = SYMBOLS // 2


@dataclass(frozen=True)
class CodeTable:
    """Code lengths and codes of up to 256 symbols."""

    lengths: Array
    codes: Array

    @classmethod
    def from_lengths(cls, lengths: Array) -> CodeTable:
        """Assign the canonical codes; `CorruptionError` unless they make a complete prefix code."""
        codes = np.zeros(SYMBOLS, np.uint32)
        if huffman.assign_codes(lengths, codes) != 0:
            raise CorruptionError("the code table is not a complete prefix code")
        return cls(lengths, codes)

    @classmethod
    def from_counts(cls, counts: Array) -> CodeTable:
        """Build the optimal table for ``int64[256]`` `counts`, at least one of which is not zero."""
        lengths = np.zeros(SYMBOLS, np.uint8)
        if huffman.code_lengths(counts, lengths) < 0:
            raise CorruptionError("no symbol to code")
        return cls.from_lengths(lengths)

    def bits(self, counts: Array) -> float:
        """Return the bits that `counts` symbols take; infinity where one has no code."""
        bits = huffman.code_bits(counts, self.lengths)
        return float(bits) if bits >= 0 else math.inf

    def lookup(self, values: Array, out: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Expand to look-up tables, in `out`: what each window decodes to, and how many bits it takes."""
        table, sizes = out or (np.empty(_SIZE, values.dtype), np.empty(_SIZE, np.uint8))
        huffman.fill_table(self.codes, values, table, sizes)
        return table, sizes

    def joined(self, values: Array, per: int, out: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Expand to the tables of `join_codes`, in `out`; `per` low bytes of its value are a symbol's."""
        joined, moves = out or (np.empty((_SIZE, 2), np.uint64), np.empty(_SIZE, np.uint16))
        huffman.join_codes(*self.lookup(values), per, joined, moves)
        return joined, moves

    def to_bytes(self) -> bytes:
        """Write the lengths in nibbles: 0 to 12 a length, 13 a run of zeros, 14 a repeat of the last one."""
        return self._written

    @once
    def _written(self) -> bytes:
        out = np.zeros(_MOST_BYTES, np.uint8)
        return out[: huffman.write_lengths(self.lengths, out)].tobytes()

    @classmethod
    def from_bytes(cls, data: memoryview) -> CodeTable:
        """Read what `to_bytes` wrote; `CorruptionError` for anything else."""
        if len(data) > _MOST_BYTES:
            raise CorruptionError(f"the code table has {len(data)} bytes; it cannot have so many")
        return cls._read(bytes(data))

    @classmethod
    @lru_cache(maxsize=512)  # frames of a path, or saved one after another, often have the same
    def _read(cls, data: bytes) -> CodeTable:
        raw = np.frombuffer(data, np.uint8)
        nibbles = np.stack((raw & 15, raw >> 4), axis=1).reshape(-1).tolist()
        lengths: list[int] = []
        at = 0
        while at < len(nibbles):
            value = nibbles[at]
            if value <= huffman.MAX_BITS:
                lengths.append(value)
                at += 1
            elif value == huffman.ZEROS and at + 2 < len(nibbles):
                lengths += [0] * (3 + nibbles[at + 1] + 16 * nibbles[at + 2])
                at += 3
            elif value == huffman.REPEAT and at + 1 < len(nibbles) and lengths:
                lengths += [lengths[-1]] * (3 + nibbles[at + 1])
                at += 2
            else:
                raise CorruptionError("the code table is malformed")
            if len(lengths) > SYMBOLS + 1:
                raise CorruptionError("the code table has too many symbols")
        if any(lengths[SYMBOLS:]):
            raise CorruptionError("the code table has too many symbols")
        lengths = lengths[:SYMBOLS]
        return cls.from_lengths(np.array(lengths + [0] * (SYMBOLS - len(lengths)), np.uint8))


def optimal_bits(counts: Array) -> tuple[int, int]:
    """Return the bits that ``int64[256]`` `counts` take by their optimal table, and its symbols.

    It is what `CodeTable.from_counts` tells, for those who need no codes.
    """
    lengths = np.empty(SYMBOLS, np.uint8)
    symbols = huffman.code_lengths(counts, lengths)
    if symbols < 0:
        raise CorruptionError("no symbol to code")
    return int(huffman.code_bits(counts, lengths)), int(symbols)


class TableCache:
    """Keeps the last table of each coder, and gives it again while it codes nearly as well. Thread-safe."""

    #: A table is used again while it costs at most this much more, relatively, than any prefix code must.
    SLACK = 0.005

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[object, CodeTable] = {}

    def table(self, coder: object, counts: Array) -> CodeTable:
        """Return a table for `counts`: the last one of `coder` if it still serves, else a new one."""
        bound = np.empty(1)
        huffman.entropy(counts, bound)
        with self._lock:
            cached = self._tables.get(coder)
        if cached is not None and cached.bits(counts) <= (1 + self.SLACK) * float(bound[0]):
            return cached
        table = CodeTable.from_counts(counts)
        with self._lock:
            self._tables[coder] = table
        return table
