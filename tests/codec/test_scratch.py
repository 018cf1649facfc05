"""Scratch memory: zeros, in large pages from the first byte on."""

from __future__ import annotations

import numpy as np
import pytest

from lcstore.coders import scratch


@pytest.mark.parametrize("size", [0, 1, 1 << 18, 1 << 20, (5 << 20) + 3])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_scratch_is_zeros_that_can_be_written_to(size, dtype):
    made = scratch.scratch_array(size, dtype)
    assert (made.size, made.dtype) == (size, dtype)
    assert not made.any()
    made[:] = 1
    assert made.sum(dtype=np.int64) == size


@pytest.mark.skipif(scratch._LARGE_PAGES is None, reason="the system has no large pages")
@pytest.mark.parametrize("nbytes", [1 << 20, (15 << 20) + 4096])
def test_large_scratch_begins_with_a_large_page(nbytes):
    assert scratch.scratch_array(nbytes, np.uint8).ctypes.data % (2 << 20) == 0
