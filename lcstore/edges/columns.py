"""What an edge says of each tensor, as columns of plain bytes: field by field in docs/format/records.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Self

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import CorruptionError

#: The tensor is as the base has it.
KEEP: Final = 0
#: Add a delta.
ADD: Final = 1
#: Here is the value that readers get.
SET: Final = 2
#: Here is the exact value; the track is that, rounded to the grid (for tensors that have one).
EXACT: Final = 3
#: As `SET`, on the grid: the integers themselves are stored.
SET_GRID: Final = 4
#: As the target's own edge sets it: nothing is stored here. Only shortcuts say so.
OWN: Final = 5

#: Grid exponent of a tensor that has none: it was all zero, or is not tracked on a grid.
NO_GRID: Final = -32768

_FIELDS: Final = (
    ("op", "<u1"),
    ("grid", "<i2"),
    ("shift", "<u1"),
    ("digest", "<u8"),
    ("scale", "<f4"),
    ("moved", "<f4"),
)
#: A column that is not stored where it is all zero.
_SPARSE: Final[str] = "moved"

#: The names of the columns.
COLUMNS: Final = tuple(name for name, _ in _FIELDS)


@dataclass
class Columns:
    """One entry per tensor of the layout, in its order.

    Attributes
    ----------
    op
        ``uint8``: `KEEP`, `ADD`, `SET`, `EXACT` or `SET_GRID`; in a shortcut also `OWN`.
    grid
        ``int16``: log2 of the grid's unit, or `NO_GRID`.
    shift
        ``uint8``: the quantizer's step size in grid units, in the words of a frame's scale (where `ADD`);
        kept where the tensor is.
    digest
        ``uint64``: digest of the target's track value.
    scale
        ``float32``: the size of an update (root mean square), from the sample; 0 where not known.
    moved
        ``float32``: the root mean square of the last change over all elements where `scale` does not say it:
        where rows are touched one by one, it is that of the rows which were; after a jump it is far less, as
        it rises slowly; of what is set on a new grid it is 0. 0 elsewhere.
    """

    op: Array
    grid: Array
    shift: Array
    digest: Array
    scale: Array
    moved: Array

    @property
    def movement(self) -> Array:
        """How far each tensor moves from save to save, ``float64``: a root mean square over all elements."""
        return np.where(self.moved > 0, self.moved, self.scale).astype(np.float64)

    @classmethod
    def empty(cls, count: int) -> Self:
        """Make columns that say `KEEP` for `count` tensors."""
        columns = cls(*(np.zeros(count, dtype) for _, dtype in _FIELDS))
        columns.grid[:] = NO_GRID
        return columns

    def rows(self, first: int, last: int) -> Self:
        """Return the entries of some tensors: from `first` on, `last` excluded."""
        return type(self)(*(getattr(self, name)[first:last] for name, _ in _FIELDS))

    def but(self, **columns: Array) -> Self:
        """Return a copy with other columns in the place of those named."""
        kept = {name: getattr(self, name).copy() for name, _ in _FIELDS if name not in columns}
        return type(self)(**kept, **columns)

    def to_bytes(self) -> dict[str, bytes]:
        """Return the columns as bytes by name, little-endian."""
        stored = [field for field in _FIELDS if field[0] != _SPARSE or self.moved.any()]
        return {name: getattr(self, name).astype(dtype).tobytes() for name, dtype in stored}

    @classmethod
    def from_bytes(cls, columns: dict[str, bytes], count: int, *, key: str, shortcut: bool = False) -> Self:
        """Read the columns of a record: of a node's own edge, or of a `shortcut`.

        Raises
        ------
        CorruptionError
            A column is missing, too many, does not have `count` entries, or holds what it may not.
        """
        if columns.keys() | {_SPARSE} != set(COLUMNS):
            raise CorruptionError("the record's columns are not those of this format", key=key)
        columns = {_SPARSE: bytes(4 * count), **columns}
        arrays = []
        for name, dtype in _FIELDS:
            if len(columns[name]) != count * np.dtype(dtype).itemsize:
                raise CorruptionError(f"the record's column {name!r} does not fit {count} tensors", key=key)
            arrays.append(np.frombuffer(columns[name], dtype).copy())
        read = cls(*arrays)
        if read.op.size and int(read.op.max()) > (OWN if shortcut else SET_GRID):
            raise CorruptionError("the record's column 'op' holds an unknown operation", key=key)
        grids = read.grid[read.grid != NO_GRID]
        if grids.size and (int(grids.min()) < -1000 or int(grids.max()) > 1000):
            raise CorruptionError("the record's column 'grid' is out of range", key=key)
        return read


def joined(parts: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the columns of all parts of an edge, one after another, as bytes by name."""
    if any(_SPARSE in columns for columns in parts):
        parts = [{_SPARSE: bytes(4 * len(columns.get("op", b""))), **columns} for columns in parts]
    names = dict.fromkeys(chain.from_iterable(parts))
    return {name: b"".join(columns.get(name, b"") for columns in parts) for name in names}
