"""Values to levels and back, against their twins."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.compiling.status import RANGE
from lcstore.kernels import quantize

FLOATS = st.sampled_from([np.float32, np.float64])
SIZES = st.sampled_from([0, 1, 31, 32, 33, 100])
INFINITY = {4: 0x7F800000, 8: 0x7FF0000000000000}
MANTISSA = {4: 23, 8: 52}


def floats(dtype, **limits):
    return npst.arrays(dtype, SIZES, elements=st.floats(width=8 * np.dtype(dtype).itemsize, **limits))


@given(
    FLOATS.flatmap(floats),
    st.lists(st.integers(-1000, 1022), min_size=4, max_size=4),
    st.sampled_from([0.5, 0.3, 0.0]),
)
def test_linear_levels_are_their_twin(values, exponents, rounding):
    scales = np.ldexp(1.0, np.array(exponents[: -(-values.size // 32)], np.int64))
    levels = np.zeros(values.size, np.int64)
    status = quantize.linear_levels(values, scales, 32, rounding, levels)
    wanted = twins.linear_levels(values, scales, 32, rounding)
    assert status == wanted[0]
    np.testing.assert_array_equal(levels, wanted[1])


@given(
    npst.arrays(st.sampled_from([np.int8, np.int64]), SIZES),
    st.lists(st.integers(-1022, 1000), min_size=4, max_size=4),
)
def test_linear_and_integer_values_are_their_twins(levels, exponents):
    steps = np.ldexp(1.0, np.array(exponents[: -(-levels.size // 32)], np.int64))
    shifts = np.array([e % 63 for e in exponents[: steps.size]], np.int16)
    for dtype in (np.float32, np.float64):
        out = np.zeros(levels.size, dtype)
        quantize.linear_values(levels, steps, 32, out)
        np.testing.assert_array_equal(out, twins.linear_values(levels, steps, 32, dtype))
    for dtype in (np.int32, np.int64):
        out = np.zeros(levels.size, dtype)
        quantize.integer_values(levels, shifts, 32, out)
        np.testing.assert_array_equal(out, twins.integer_values(levels, shifts, 32, dtype))


@given(
    FLOATS.flatmap(lambda t: floats(t, min_value=0)), st.integers(0, 7), st.sampled_from([None, -1.0, np.nan])
)
def test_log_levels_are_their_twin_and_come_back(values, kept, special):
    if special is not None and values.size:
        values = values.copy()
        values[values.size // 2] = special
    values = values + values.dtype.type(0)  # no negative zero
    patterns = values.view(f"i{values.itemsize}")
    drop, top = MANTISSA[values.itemsize] - kept, INFINITY[values.itemsize]
    bases, levels = np.zeros(-(-values.size // 32), np.int64), np.zeros(values.size, np.int64)
    status = quantize.log_levels(patterns, drop, top, 32, bases, levels)
    wanted = twins.log_levels(patterns, drop, top, 32)
    assert status == (RANGE if wanted is None else 0)
    if wanted is None:
        return
    np.testing.assert_array_equal(bases, wanted[0])
    np.testing.assert_array_equal(levels, wanted[1])
    out = np.zeros(values.size, patterns.dtype)
    assert quantize.log_values(levels, drop, top, 32, bases, out) == 0
    np.testing.assert_array_equal(out, twins.log_values(levels, drop, top, 32, bases, patterns.dtype)[1])
    back = out.view(values.dtype)
    np.testing.assert_array_equal(back == 0, values == 0)
    normal = values >= np.finfo(values.dtype).tiny
    with np.errstate(over="ignore"):
        error = np.abs(back[normal] / values[normal].astype(np.float64) - 1)
    assert np.all(error <= 2.0 ** -(kept + 1))


@given(st.lists(st.integers(-300, 600), min_size=1, max_size=40))
def test_log_values_outside_are_refused(levels):
    array, bases = np.array(levels, np.int64), np.full(2, 40, np.int64)
    out = np.zeros(array.size, np.int32)
    status = quantize.log_values(array, 23, INFINITY[4], 32, bases, out)
    wanted = twins.log_values(levels, 23, INFINITY[4], 32, bases, np.int32)
    assert status == wanted[0]
    np.testing.assert_array_equal(out, wanted[1])


@given(FLOATS.flatmap(floats))
def test_bucket_statistics_are_their_twin(values):
    mantissa = MANTISSA[values.itemsize]
    patterns = values.view(f"u{values.itemsize}")
    buckets = 1 << (8 * values.itemsize - mantissa)
    found = [np.zeros(buckets, np.int64) for _ in range(3)]
    quantize.bucket_statistics(patterns, mantissa, *found)
    for one, wanted in zip(found, twins.bucket_statistics(patterns, mantissa, buckets), strict=True):
        np.testing.assert_array_equal(one, wanted)
    ids = np.random.default_rng(0).integers(-128, 128, buckets).astype(np.int8)
    levels = np.zeros(values.size, np.int8)
    quantize.bucket_levels(patterns, mantissa, ids, levels)
    np.testing.assert_array_equal(levels, ids[(patterns >> patterns.dtype.type(mantissa)).astype(np.int64)])


@given(npst.arrays(st.sampled_from([np.int8, np.int64]), SIZES), st.integers(1, 128))
def test_table_values_refuse_levels_outside(levels, size):
    table = np.arange(size, dtype=np.float32) + 1
    out = np.zeros(levels.size, np.float32)
    inside = (levels >= 0) & (levels < size)
    assert quantize.table_values(levels, table, out) == (0 if inside.all() else RANGE)
    np.testing.assert_array_equal(out, table[np.where(inside, levels, 0)])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_linear_errors_find_the_worst(dtype):
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=1000).astype(dtype), rng.normal(size=1000).astype(dtype)
    out = np.zeros(1)
    quantize.linear_errors(a, b, out)
    assert out[0] == np.abs(a.astype(np.float64) - b.astype(np.float64)).max()
