"""Levels around a row's code plus a column's, and back, against their twins."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.compiling.status import OK, RANGE
from lcstore.kernels import factored, offsets

INTEGERS = {np.float32: np.int32, np.float64: np.int64}
#: The code of a row or a column in which every value is zero.
EMPTY = -32768
#: By how much more a value may be below its centre than above it.
MORE = st.just(0) | st.integers(0, 600)
SHAPES = st.tuples(st.integers(1, 40), st.integers(0, 90))
STEPS = st.integers(1, 255)


@st.composite
def pieces(draw, **limits):
    """Values of a piece of a matrix, length of its rows, phase."""
    dtype = draw(st.sampled_from(list(INTEGERS)))
    cols, size = draw(SHAPES)
    phase = draw(st.integers(0, cols - 1))
    limits = {"min_value": 0, "allow_infinity": False, "allow_nan": False} | limits
    some = st.floats(width=8 * np.dtype(dtype).itemsize, **limits)
    tops = st.sampled_from([0.0, float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal), 1.0])
    values = draw(npst.arrays(dtype, size, elements=some | tops, fill=st.nothing() | tops))
    return values + dtype(0), cols, phase  # no negative zero


def rows_of(size, cols, phase):
    return -(-(phase + size) // cols)


def octaves(roots):
    return 64 * np.log2(np.where(roots > 0, roots, 1))


def fit(values, cols, phase):
    """Give the patterns, and codes of rows and columns, from mean roots that are compared to their twins."""
    patterns = values.view(INTEGERS[values.dtype.type])
    rows = np.full(rows_of(values.size, cols, phase), 77.0)
    sums, weights = np.zeros((2, cols), values.dtype)
    found = factored.fit_roots(values, patterns, cols, phase, rows, sums, weights)
    assert found == np.count_nonzero(values)
    np.testing.assert_array_equal(rows, twins.row_roots(values, cols, phase, rows.size))
    wanted = twins.column_roots(values, phase, rows.tolist(), cols)
    np.testing.assert_array_equal(sums, wanted[0])
    np.testing.assert_array_equal(weights, wanted[1])
    again, none = np.zeros_like(rows), np.zeros(0, values.dtype)
    assert factored.fit_roots(values, patterns, cols, phase, again, none, none) == found
    np.testing.assert_array_equal(again, rows)
    one = factored.ONE_4 if values.itemsize == 4 else factored.ONE_8
    of_rows = np.where(rows > 0, np.rint(one + octaves(rows)), EMPTY)
    of_columns = np.where(sums > 0, np.rint(octaves(sums / np.where(sums > 0, weights, 1))), EMPTY)
    return patterns, of_rows.astype(np.int16), of_columns.astype(np.int16)


def levels_of(patterns, phase, rows, columns, step, threshold, below):
    narrow, escapes = np.full(patterns.size, 77, np.int8), np.zeros(patterns.size, np.int64)
    into = narrow, escapes
    found = factored.factored_levels(patterns, phase, rows, columns, step, threshold, below, *into)
    levels = narrow.astype(np.int64)
    levels[narrow == -128] = escapes[:found]
    return levels


def check_narrow(patterns, phase, rows, columns, rule, room):
    """The narrow coders' levels are those of the twin, and those that are large are listed."""
    levels = twins.factored_levels(patterns, phase, rows, columns, *rule)
    narrow, escapes = np.full(len(levels), 77, np.int8), np.zeros(room, np.int64)
    found = factored.factored_levels(patterns, phase, rows, columns, *rule, narrow, escapes)
    large = [level for level in levels if abs(level) > 127]
    assert found == len(large)
    np.testing.assert_array_equal(escapes[:found], large[:room])
    if found <= room:
        np.testing.assert_array_equal(narrow, [level if abs(level) < 128 else -128 for level in levels])


@given(pieces(), STEPS, st.integers(1, 255), MORE)
def test_fitted_levels_are_their_twin_and_come_back(piece, step, threshold, more):
    values, cols, phase = piece
    patterns, rows, columns = fit(values, cols, phase)
    rule = step, min(threshold, step), min(threshold, step) + more
    levels = levels_of(patterns, phase, rows, columns, *rule)
    np.testing.assert_array_equal(levels, twins.factored_levels(patterns, phase, rows, columns, *rule))
    check_narrow(patterns, phase, rows, columns, rule, 100)
    out = np.full(values.size, 77, patterns.dtype)
    assert factored.factored_values(levels, phase, rows, columns, step, out) == OK
    places = np.arange(values.size) + phase
    np.testing.assert_array_equal(
        out, twins.factored_values(levels, places, rows, columns, step, patterns.dtype)[1]
    )
    back = out.view(values.dtype)
    assert np.isfinite(back).all()
    np.testing.assert_array_equal(back == 0, values == 0)


@given(pieces(), STEPS, st.data())
def test_levels_are_their_twin_around_any_codes(piece, step, data):
    """Even around codes that nobody would fit, values come back as what they were, zero or not."""
    values, cols, phase = piece
    patterns = values.view(INTEGERS[values.dtype.type])
    some = st.integers(-32768, 32767) | st.integers(-300, 4400)
    rows, columns = (
        data.draw(npst.arrays(np.int16, n, elements=some)) for n in (rows_of(values.size, cols, phase), cols)
    )
    threshold = data.draw(st.integers(1, step))
    rule = step, threshold, threshold + data.draw(MORE)
    levels = levels_of(patterns, phase, rows, columns, *rule)
    np.testing.assert_array_equal(levels, twins.factored_levels(patterns, phase, rows, columns, *rule))
    check_narrow(patterns, phase, rows, columns, rule, data.draw(st.sampled_from([0, 1, 100])))
    out = np.zeros(values.size, patterns.dtype)
    assert factored.factored_values(levels, phase, rows, columns, step, out) == OK
    np.testing.assert_array_equal(out == 0, values == 0)


@given(pieces(), STEPS, st.integers(1, 255), MORE, st.data())
def test_offsets_are_their_twin(piece, step, threshold, more, data):
    values, cols, _ = piece
    patterns = values[: values.size // cols * cols].view(INTEGERS[values.dtype.type])
    near = float(np.median(patterns >> {4: 19, 8: 48}[patterns.itemsize])) if patterns.size else 0.0
    quarters = st.integers(-4000, 4000).map(lambda number: number / 4)
    rows, columns, known = (
        data.draw(npst.arrays(np.float32, n, elements=quarters)) for n in (patterns.size // cols, cols, cols)
    )
    rows += np.float32(near)
    rule = step, min(threshold, step), min(threshold, step) + more
    beside, off = np.full((2, rows.size), 77.0)
    assert offsets.offsets(patterns, rows, columns, known, *rule, beside, off) == OK
    wanted = twins.offsets(patterns, rows, columns, known, *rule)
    np.testing.assert_array_equal((beside, off), wanted)


@given(st.sampled_from([np.int32, np.int64]), st.integers(8, 30), STEPS, st.data())
def test_offsets_of_what_was_restored_lead_to_where_it_comes_back_as_it_is(dtype, cols, step, data):
    drop = {np.int32: 19, np.int64: 48}[dtype]
    columns = data.draw(npst.arrays(np.int64, cols, elements=st.integers(-200, 200)))
    levels = data.draw(npst.arrays(np.int64, cols, elements=st.integers(-2, 2)))
    codes = 2000 + columns + step * levels
    patterns = ((codes << drop) | (1 << (drop - 1))).astype(dtype)
    row = np.array([2000 + data.draw(st.integers(-300, 300))], np.float32)
    beside, off = np.full((2, 1), 77.0)
    some = columns.astype(np.float32), np.zeros(cols, np.float32)
    assert offsets.offsets(patterns, row, *some, step, step, step, beside, off) == OK
    assert off[0] == 0
    assert (row[0] - beside[0] - 2000) % step == 0


@given(
    st.sampled_from([np.int32, np.int64]),
    st.sampled_from([np.int8, np.int64]),
    SHAPES,
    STEPS,
    st.integers(0, 200),
    st.data(),
)
def test_any_levels_are_values_or_refused_as_the_twin_does(dtype, narrow, shape, step, start, data):
    cols, size = shape
    high = 127 if narrow == np.int8 else 1 << 61
    near = 127 if narrow == np.int8 else (1 << 17) + 1
    levels = data.draw(
        npst.arrays(
            narrow, size, elements=st.integers(-9, 9) | st.integers(-near, near) | st.integers(-high, high)
        )
    )
    some = st.integers(-32768, 32767) | st.integers(0, 2000)
    rows, columns = (
        data.draw(npst.arrays(np.int16, n, elements=some)) for n in (rows_of(size, cols, start), cols)
    )
    places = np.arange(size) + start
    status, patterns = twins.factored_values(levels, places, rows, columns, step, dtype)
    out, apart = np.zeros(size, dtype), np.zeros(size, dtype)
    assert factored.factored_values(levels, start, rows, columns, step, out) == status
    centres = rows[places // cols].astype(np.int64) + columns[places % cols]
    alone = np.zeros(1, np.int16)
    assert factored.factored_values(levels, 0, centres, alone, step, apart) == status
    if status == OK:
        np.testing.assert_array_equal(out, patterns)
        np.testing.assert_array_equal(apart, patterns)


@pytest.mark.parametrize("bad", [-1.0, -0.0, np.inf, -np.inf, np.nan, -np.nan])
@pytest.mark.parametrize("dtype", list(INTEGERS))
def test_what_has_no_code_is_refused(dtype, bad):
    values = np.ones(40, dtype)
    rows = np.zeros(4)
    patterns = values.view(INTEGERS[dtype])
    none = np.zeros(0, dtype)
    assert factored.fit_roots(values, patterns, 12, 3, rows, none, none) == values.size
    for place in (0, 8, 9, 39):
        values[:] = 1
        values[place] = bad
        assert factored.fit_roots(values, patterns, 12, 3, rows, none, none) == RANGE
        assert twins.row_roots(values, 12, 3, 4) is None


@pytest.mark.parametrize("step", [1, 2, 3, 7, 16, 41, 49, 83, 254, 255])
@pytest.mark.parametrize("dtype", list(INTEGERS))
def test_the_quotient_is_exact_for_every_difference_of_codes(dtype, step):
    """Levels are computed in float32; here against integers, for every code and the farthest centres."""
    drop, last = {np.float32: (19, 4079), np.float64: (48, 32751)}[dtype]
    codes = np.arange(last + 1, dtype=np.int64)
    patterns = ((codes << drop) | 1).astype(INTEGERS[dtype])
    for centre in (-65536, -32768, 0, 1000, last):
        rows = np.array([max(centre, -32768)], np.int16)
        columns = np.full(codes.size, centre - int(rows[0]), np.int16)
        for threshold in {1, (step + 1) // 2, step}:
            for below in (threshold, 2 * step):
                levels = levels_of(patterns, 0, rows, columns, step, threshold, below)
                differences = codes - centre
                wanted = (np.abs(differences) + step - threshold) // step * np.sign(differences)
                wanted = np.where((differences < 0) & (differences > -below), 0, wanted)
                wanted = np.minimum(np.maximum(wanted, -((centre - 1) // step)), (last - centre) // step)
                np.testing.assert_array_equal(levels, np.where(wanted < 0, wanted - 1, wanted))


@given(
    st.sampled_from(list(INTEGERS)),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.2, 2.0, 12.0]),
    STEPS,
    st.integers(1, 255),
    MORE,
)
def test_matrices_without_zeros_have_the_levels_of_the_twin(dtype, seed, spread, step, threshold, more):
    """Most rows take a shorter way, which random bits hardly ever do."""
    octaves = np.random.default_rng(seed).normal(-20, spread, (6, 40))
    octaves += np.random.default_rng(seed + 1).normal(0, 2 * spread, (6, 1))
    values = np.exp2(octaves).astype(dtype).reshape(-1)
    patterns, rows, columns = fit(values, 40, 0)
    rule = step, min(threshold, step), min(threshold, step) + more
    check_narrow(patterns, 0, rows, columns, rule, values.size)


@given(npst.arrays(np.int8, st.integers(0, 200)), st.integers(0, 50), st.permutations(range(9)), st.data())
def test_rows_are_arranged_as_the_twin_does(levels, first, order, data):
    order = np.array(order[: data.draw(st.integers(1, 9))])
    order = np.argsort(order).astype(np.uint32)
    segment = data.draw(st.sampled_from([4, 8, 64, 1 << 16]))
    out = levels.copy()
    assert factored.arrange_rows(out, first, order, segment) == OK
    np.testing.assert_array_equal(out, np.array(twins.arrange_rows(levels, first, order, segment), np.int8))
    assert factored.arrange_rows(out, first, np.argsort(order).astype(np.uint32), segment) == OK
    np.testing.assert_array_equal(out, levels)
