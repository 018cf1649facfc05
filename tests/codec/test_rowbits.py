"""Bits of many short arrays, counted together: the same as counted one by one."""

import ml_dtypes
import numpy as np
import pytest

from lcstore.edges.rowbits import count_kinds_by_row, count_planes_by_row
from lcstore.frames.bykind import count_kinds
from lcstore.frames.lossless import count_planes

DTYPES = (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.int16, np.uint32, np.int64)


def rows(dtype, size):
    """Rows of bytes at random, of zeros, of many zeros, and of one byte over and over."""
    made = np.random.default_rng(size).integers(0, 256, (8, size * np.dtype(dtype).itemsize), np.uint8)
    made[2:4] = 0
    made[4:6][made[4:6] < 200] = 0
    made[6:] = made[6:, :1]
    return made.view(dtype)


@pytest.mark.parametrize("size", [1, 2, 16, 100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_counted_as_each_is_by_itself(dtype, size):
    values = rows(dtype, size)
    words = values.view(f"i{values.itemsize}")
    assert count_planes_by_row(values) == pytest.approx([count_planes(row) for row in values], rel=1e-12)
    for shift in (0, 3, 8 * values.itemsize - 1):
        moves = words << shift
        assert count_kinds_by_row(moves) == pytest.approx([count_kinds(row) for row in moves], rel=1e-12)


def test_what_takes_no_bits_takes_exactly_none():
    same = np.full((3, 16), 1.5, np.float32)
    assert count_planes_by_row(same).tolist() == count_kinds_by_row(np.zeros((3, 16), np.int32)).tolist()
