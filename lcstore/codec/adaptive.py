"""The adaptive coder: where the rows lie that its odds are learned from, and levels to bytes."""

from __future__ import annotations

import numpy as np

from lcstore.arrays import Array
from lcstore.codec import format as f
from lcstore.codec.entropy import Coded
from lcstore.errors import CorruptionError
from lcstore.kernels import adaptive as kernels

#: Bytes that one level may take: those that are not there are not missed.
_SPARE = 512
_FIELD = np.dtype("<u4")
_FIELDS = 3


def encode_adaptive(levels: Array, stretches: Array, most: int) -> Coded | None:
    """Code ``int32[n]`` or ``int64[n]`` levels, magnitudes below 2**61, one at a time.

    It takes 10 to 90 ns for each level, and so does decoding: ten times what the other coders need, or more.

    Parameters
    ----------
    levels
        Zero outside the stretches.
    stretches
        ``int64[r, 3]``, rising and apart, at least one: first element, size below 2**32, length of a row (1
        where there are no rows).
    most
        Bytes that table, directory and payload may have together.

    Returns
    -------
    Coded or None
        None where it would be larger than that.
    """
    rows = stretches.copy()
    rows[:, 2] = np.clip(rows[:, 2], 1, np.minimum(rows[:, 1], kernels.SEGMENT))
    directory = np.zeros(-(-levels.size // kernels.SEGMENT), np.uint32)
    most -= (rows.size + directory.size) * _FIELD.itemsize
    payload = np.empty(max(most, 0) + _SPARE, np.uint8)
    room = np.empty(kernels.SEGMENT, np.int64)
    used = kernels.encode_adaptive(levels, rows, payload, directory, room)
    if not 0 <= used <= most:
        return None
    ends = rows[:, 0] + rows[:, 1]
    table = rows.astype(_FIELD)
    table[:, 0] = rows[:, 0] - np.concatenate(([0], ends[:-1]))
    return Coded(
        f.ADAPTIVE,
        table=table.tobytes(),
        directory=directory.astype(_FIELD).tobytes(),
        payload=[payload[:used].data],
    )


def read_stretches(table: memoryview, count: int) -> Array:
    """Read where the rows of `count` elements lie: ``int64[r, 3]`` as for `encode_adaptive`.

    Raises
    ------
    CorruptionError
        Not within the elements, or with rows that there cannot be.
    """
    if not len(table) or len(table) % (_FIELDS * _FIELD.itemsize):
        raise CorruptionError(f"the frame says in {len(table)} bytes where its rows lie, which cannot be")
    stretches = np.frombuffer(table, _FIELD).reshape(-1, _FIELDS).astype(np.int64)
    sizes, rows = stretches[:, 1], stretches[:, 2]
    ends = np.cumsum(stretches[:, 0] + sizes)
    if ends[-1] > count:
        raise CorruptionError("the frame's rows end behind its elements")
    if (rows < 1).any() or (rows > np.minimum(sizes, kernels.SEGMENT)).any():
        raise CorruptionError("the frame's rows are empty or too long")
    stretches[:, 0] = ends - sizes
    return stretches
