"""Steps of sums: as their twin finds them, and dividing by them loses nothing."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from lcstore.bitkernels import wide
from lcstore.coders.small import narrow_levels
from lcstore.frames import sums

SIZES = st.sampled_from([0, 1, 31, 32, 33, 100])


def some_sums(seed, size, dtype, step, zeros):
    """Give multiples of a power of two, some blocks of them zero, over the whole range."""
    rng = np.random.default_rng(seed)
    bits = 8 * np.dtype(dtype).itemsize
    values = rng.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1, size, dtype=np.int64)
    values >>= rng.integers(0, bits, size)
    values = ((values >> step) << step).astype(dtype)
    for low in range(0, size, 32):
        if rng.random() < zeros:
            values[low : low + 32] = 0
    return values


@given(
    seed=st.integers(0, 1 << 30),
    size=SIZES,
    dtype=st.sampled_from([np.int32, np.int64]),
    step=st.integers(0, 31),
    zeros=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_common_steps_are_their_twin_and_lose_nothing(seed, size, dtype, step, zeros):
    values = some_sums(seed, size, dtype, step, zeros)
    steps = sums.common_steps(values, 32)
    np.testing.assert_array_equal(steps, twins.common_steps(values, 32))
    divided, usable = values.copy(), np.maximum(steps, 0)
    sums.to_levels(divided, 32, usable)
    np.testing.assert_array_equal(divided, values >> np.repeat(usable, 32)[:size].astype(dtype))
    assert all((divided[32 * b : 32 * b + 32] & 1).any() for b in np.flatnonzero(steps >= 0))
    sums.from_levels(divided, 32, usable)
    np.testing.assert_array_equal(divided, values)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_the_least_integer_has_a_step(dtype):
    least = np.array([np.iinfo(dtype).min], dtype)
    steps = sums.common_steps(least, 1024)
    assert steps.tolist() == [8 * least.itemsize - 1]
    sums.to_levels(least, 1024, steps)
    assert least[0] == -1


@given(seed=st.integers(0, 1 << 30), size=SIZES, step=st.integers(0, 31))
def test_narrow_integers_are_coded_like_wide_ones(seed, size, step):
    values = some_sums(seed, size, np.int32, step, 0.3)
    results = []
    for levels in (values, values.astype(np.int64)):
        counts, codes = np.zeros(256, np.int64), np.arange(256, dtype=np.uint32) | np.uint32(8 << 16)
        wide.count_wide(levels, counts)
        payload, directory = np.zeros(20 * size + 8, np.uint8), np.zeros((-(-size // 32), 2), np.uint16)
        used = wide.encode_wide(levels, 32, codes, payload, directory)
        narrow, escapes = np.zeros(size, np.int8), np.zeros(size, np.int64)
        found = narrow_levels(levels, narrow, escapes)
        results.append((counts, payload[:used], directory, narrow, escapes[:found]))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [1, 100, 70_000])
def test_an_odd_number_is_found_that_divides_all(dtype, size):
    values = np.random.default_rng(0).integers(-(2**20), 2**20, size).astype(dtype)
    values[-1] = 2 * 3**2 * 5 * 7 + 1 if size > 1 else 1
    for place, odd in enumerate((1, 3, 5, 7)):
        assert sums.odd_divisor(values * dtype(odd)) == place
    last = np.full(size, 105, dtype)
    last[-1] = 30
    assert sums.odd_divisor(last) == 2
