"""Samples and sums over them against their twins, and at the ends of what floats can hold."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from lcstore.kernels import sample


def some(seed, size, exponent):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) * 2.0**exponent
    return np.where(rng.random(size) < 0.2, 0.0, values)


SIZES = st.sampled_from([0, 1, 3, 4, 5, 64, 1000])
EXPONENTS = st.sampled_from([-1070, -600, -40, 0, 300, 1020])


@given(st.integers(0, 1 << 30), SIZES, EXPONENTS)
def test_the_root_mean_square_is_its_twin_and_neither_overflows_nor_vanishes(seed, size, exponent):
    values, out = some(seed, size, exponent), np.full(1, np.nan)
    assert sample.root_mean_square(values, out) == 0
    assert out[0] == twins.root_mean_square(values)
    assert np.isfinite(out[0])
    assert (out[0] > 0) == values.any()


@given(st.integers(0, 1 << 30), SIZES, st.sampled_from([np.int32, np.int64]))
def test_residuals_are_their_twin(seed, size, kind):
    rng = np.random.default_rng(seed)
    track, places = rng.integers(-(1 << 26), 1 << 26, 1200, kind), rng.integers(0, 1200, size)
    now, before, unit = some(seed, size, 0), some(seed + 1, size, -3), 2.0**-24
    left, moved, out = now - track[places] * unit, now - before, np.full(3, np.nan)
    assert sample.residuals(track, places, unit, now, before, out) == 0
    assert out.tolist() == [twins.in_order(v) for v in (left * left, moved * moved, left * moved)]


@given(st.integers(0, 1 << 30), st.lists(st.integers(1, 70), min_size=1, max_size=9), EXPONENTS)
def test_shares_are_their_twin(seed, sizes, exponent):
    change = some(seed, sum(sizes), exponent)
    change[-1] = 2.0**exponent
    starts = np.cumsum([0, *sizes[:-1]])
    held = np.random.default_rng(seed).random(len(sizes))
    top = twins.root_mean_square(change)
    below, wanted = twins.shares(change, starts, top, 0.8, 0.25, held)
    assert sample.shares(change, starts, top, 0.8, 0.25, held) == below
    np.testing.assert_array_equal(held, wanted)


@given(st.integers(0, 1 << 30), SIZES, EXPONENTS)
def test_the_mean_of_changes_is_its_twin(seed, size, exponent):
    change, mean, scale = some(seed, size, exponent), some(seed + 1, size, 0), 2.0**exponent
    moved, out = np.full(size, np.nan), np.full(1, np.nan)
    assert sample.follow_mean(change, scale, 0.25, mean, moved, out) == 0
    one = change / scale
    np.testing.assert_array_equal(moved, mean + 0.25 * (one - mean))
    assert out[0] == twins.in_order(mean * one)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.int64])
def test_what_is_gathered_is_what_lies_there(kind):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(500) * 1e6).astype(kind)
    places, out = rng.integers(0, 500, 77), np.zeros(77)
    assert sample.gather(values, places, out) == 0
    np.testing.assert_array_equal(out, values[places].astype(np.float64))


@given(st.integers(0, 1 << 30), st.integers(1, 40), st.integers(1, 300), st.data())
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_columns_and_rows_are_taken_as_their_twin_takes_them(kind, seed, cols, size, data):
    phase, apart = data.draw(st.integers(0, cols - 1)), data.draw(st.tuples(*[st.integers(1, 50)] * 2))
    values, rows = np.random.default_rng(seed).integers(-9, 9, size, kind), -(-(phase + size) // cols)
    places, of_rows = range(0, cols, apart[0]), range(0, rows, apart[1])
    by_row, by_column = np.full((rows, len(places)), 77, kind), np.full((cols, len(of_rows)), 77, kind)
    assert sample.cross(values, phase, np.array(apart), by_row, by_column) == 0
    wanted = twins.cross(values, cols, phase, rows, places, of_rows)
    np.testing.assert_array_equal(by_row, wanted[0])
    np.testing.assert_array_equal(by_column, wanted[1])
