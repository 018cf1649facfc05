"""Values to levels at few bits each, against their twin."""

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
SIZES = st.sampled_from([0, 1, 95, 96, 97, 200])
BLOCK = 96


@st.composite
def floats(draw):
    """Values of all sizes, or normal ones of one size for each block, some of them zero."""
    dtype = draw(FLOATS)
    if draw(st.booleans()):
        width = 8 * np.dtype(dtype).itemsize
        return draw(npst.arrays(dtype, SIZES, elements=st.floats(width=width)))
    rng, size = np.random.default_rng(draw(st.integers(0, 99))), draw(SIZES)
    low, high = {np.float32: (-149, 120), np.float64: (-1074, 1000)}[dtype]
    power = draw(st.integers(low, high))
    if draw(st.booleans()):  # all about as large: a coarse step would have all of them be zero
        values = np.ldexp(rng.uniform(1, draw(st.sampled_from([1.0, 1.1, 2.0])), size), power)
        return (values * rng.choice([-1, 1], size)).astype(dtype)
    values = np.ldexp(rng.standard_normal(size) * rng.integers(0, 2, size), power + rng.integers(0, 4))
    return values.astype(dtype)


@given(floats(), st.integers(-14, 5), st.integers(0, 99), st.sampled_from([0, 1, 300]))
def test_coarse_levels_are_their_twin(values, shift, seed, room):
    rng = np.random.default_rng(seed)
    shifts = (shift + rng.integers(0, 2, quantize.PARTS)).astype(np.int16)
    roundings = rng.uniform(0, 1, quantize.PARTS)
    blocks = -(-values.size // BLOCK)
    exponents, tops = np.full(blocks, 77, np.int16), np.full(blocks, 77, np.int64)
    narrow, escapes = np.full(values.size, 77, np.int8), np.zeros(room, np.int64)
    patterns = values.view(f"i{values.itemsize}")
    into = exponents, narrow, escapes, tops
    found = quantize.coarse_levels(values, patterns, BLOCK, shifts, roundings, *into)
    wanted = twins.coarse_levels(values, BLOCK, shifts, roundings)
    if wanted is None:
        assert found == RANGE
        return
    levels = wanted[0]
    large = levels[np.abs(levels) > 127]
    assert found == large.size
    np.testing.assert_array_equal(exponents, wanted[1])
    np.testing.assert_array_equal(tops, wanted[2])
    np.testing.assert_array_equal(escapes[:found], large[:room])
    if found <= room:
        np.testing.assert_array_equal(narrow, np.where(np.abs(levels) > 127, -128, levels))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_not_finite_is_refused(dtype, bad):
    rule = np.zeros(quantize.PARTS, np.int16), np.full(quantize.PARTS, 0.5)
    for place in (0, 63, 64, 95, 96, 199):
        values = np.ones(200, dtype)
        into = np.zeros(3, np.int16), np.zeros(200, np.int8), np.zeros(9, np.int64), np.zeros(3, np.int64)
        patterns = values.view(f"i{values.itemsize}")
        assert quantize.coarse_levels(values, patterns, BLOCK, *rule, *into) == 0
        values[place] = bad
        assert quantize.coarse_levels(values, patterns, BLOCK, *rule, *into) == RANGE
