"""`LCCodec`: what comes back, and how close it is."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from codec_settings import FLOATS, SETTINGS, assert_same_bits, there_and_back
from frame_builder import take_apart
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.codec import LCCodec
from lcstore.coders import format as f
from lcstore.dtypes import DTYPE_NAMES, dtype_from_name

finite = st.floats(allow_nan=False, allow_infinity=False, width=32)

# what comes back exactly


@pytest.mark.parametrize("name", DTYPE_NAMES)
@pytest.mark.parametrize("size", [0, 1, 5, 1000])
def test_exact_gives_every_bit_of_every_dtype_back(name, size):
    dtype = dtype_from_name(name)
    raw = np.random.default_rng(size).integers(0, 256, size * dtype.itemsize).astype(np.uint8)
    if name == "bool":
        raw &= 1
    values = raw.view(dtype)
    back = there_and_back(LCCodec("lossless"), values)
    assert_same_bits(back, values)
    assert back.flags.writeable
    assert len(LCCodec("lossless").encode(values)) <= values.nbytes + f.HEADER.size


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize(
    "name", ["int8", "uint16", "int32", "int64", "uint64", "bool", "complex64", "float8_e4m3fn"]
)
def test_what_is_not_a_float_is_exact_whatever_the_setting(settings, name):
    rng = np.random.default_rng(1)
    values = (rng.standard_t(1.5, 3000) * 50).clip(-(2**31), 2**31)
    values = (values > 3) if name == "bool" else np.abs(values).astype(dtype_from_name(name))
    assert_same_bits(there_and_back(LCCodec(**settings), values), values)


@given(npst.arrays(st.sampled_from([np.int32, np.int64]), st.integers(0, 200)))
def test_integers_of_any_size_come_back(values):
    assert_same_bits(there_and_back(LCCodec(), values), values)


def test_integers_with_a_common_factor_cost_no_more_for_it():
    small = np.random.default_rng(0).integers(-3, 4, 100_000).astype(np.int64)
    plain, shifted = (len(LCCodec().encode(v)) for v in (small, small << 40))
    assert shifted <= plain + 8
    assert plain < 100_000 * 3 / 8


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_come_back_and_harm_nothing_else(dtype, settings, special):
    values = np.random.default_rng(2).random(500).astype(dtype)
    values[4] = 0
    near = there_and_back(LCCodec(**settings), values).astype(float)
    values[[3, 499]] = special
    back = there_and_back(LCCodec(**settings), values)
    assert_same_bits(back[[3, 499]], values[[3, 499]])
    others = np.delete(np.arange(500), [3, 499])
    exact = values[others].astype(float)
    assert np.all(np.abs(back[others].astype(float) - exact) <= np.abs(near[others] - exact).max())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_finite_values_never_come_back_infinite(dtype, settings):
    top = ml_dtypes.finfo(dtype).max
    values = np.array([top, top, 1.0, 0.0] * 50).astype(dtype)
    assert np.isfinite(there_and_back(LCCodec(**settings), values).astype(np.float64)).all()
    assert np.isfinite(there_and_back(LCCodec(**settings), -values).astype(np.float64)).all()


def test_rounding_up_past_the_largest_value_is_not_done():
    values = np.full(100, 65504, np.float16)
    assert_same_bits(there_and_back(LCCodec(step_size=64.0), values), values)
    values = np.full(100, np.finfo(np.float32).max)
    assert_same_bits(there_and_back(LCCodec(step_size=2.0**110), values), values)


# how close it comes back


@given(
    st.sampled_from(FLOATS).flatmap(
        lambda t: npst.arrays(np.float32, st.integers(0, 300), elements=finite).map(lambda a: (a, t))
    ),
    st.floats(1e-30, 1e30) | st.sampled_from([5e-324, 1e-310, 1.7e308, 0.01, 1.0]),
)
def test_every_finite_value_comes_back_within_max_error(pair, bound):
    values, dtype = pair
    with np.errstate(over="ignore"):
        values = values.astype(dtype)
    back = there_and_back(LCCodec(max_error=bound), values)
    assert back.dtype == dtype
    finite_ones = np.isfinite(values.astype(np.float64))
    error = np.abs(values[finite_ones].astype(np.float64) - back[finite_ones].astype(np.float64))
    assert np.all(error <= bound)
    assert_same_bits(back[~finite_ones], values[~finite_ones])


@given(
    npst.arrays(np.float64, st.integers(0, 300), elements=st.floats(allow_nan=False)),
    st.floats(1e-300, 1e300),
)
def test_max_error_holds_for_every_float64(values, bound):
    back = there_and_back(LCCodec(max_error=bound), values)
    finite_ones = np.isfinite(values)
    assert np.all(np.abs(values[finite_ones] - back[finite_ones]) <= bound)


@pytest.mark.parametrize("bound", [1e-1, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("kept", ["float16", "bfloat16", "tenths"])
def test_values_that_are_coarse_beside_the_bound_take_no_more_than_all_their_bits(kept, bound):
    field = 280 + 10 * np.sin(np.arange(50_000) / 300)
    values = np.round(field, 1).astype(np.float32) if kept == "tenths" else field.astype(np.dtype(kept))
    if kept == "bfloat16":
        values = values.astype(np.float32)
    frame = LCCodec(max_error=bound).encode(values)
    assert len(frame) <= 1.05 * len(LCCodec(quantizer="lossless").encode(values))
    assert np.abs(LCCodec().decode(frame).astype(np.float64) - values.astype(np.float64)).max() <= bound


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_max_error_saves_what_it_may(dtype):
    values = np.random.default_rng(0).normal(size=50_000).astype(dtype)
    frame = LCCodec(max_error=0.05).encode(values)
    assert take_apart(frame).quantizer == f.LINEAR
    assert 8 * len(frame) / values.size < 6.2  # the entropy of normal values at this step is 6.05
    assert np.abs(LCCodec().decode(frame).astype(np.float64) - values.astype(np.float64)).max() <= 0.05


@given(
    npst.arrays(np.float32, st.integers(0, 300), elements=st.floats(-1000, 1000, width=32)),
    st.sampled_from([0.5, 0.6, 0.8, 1.0]),
)
def test_values_below_the_dead_zone_are_zero_and_others_are_near(values, zone):
    back = there_and_back(LCCodec(step_size=0.5, dead_zone=zone), values).astype(np.float64)
    if take_apart(LCCodec(step_size=0.5, dead_zone=zone).encode(values)).quantizer == f.LOSSLESS:
        return
    assert np.all(back[np.abs(values) < zone * 0.5] == 0)
    assert np.all(np.abs(back - values) <= max(zone, 0.5) * 0.5)
    assert np.all(np.abs(back) <= np.abs(values) + 0.25)


@pytest.mark.parametrize("step", [0.3, 0.25, 0.4999])
def test_a_step_is_rounded_down_to_a_power_of_two(step):
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    np.testing.assert_array_equal(there_and_back(LCCodec(step_size=step), values), np.rint(values * 4) / 4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bits", [0, 1, 3, 4, 5, 7])
def test_log_keeps_its_relative_error_over_the_whole_range(dtype, bits):
    info = ml_dtypes.finfo(dtype)
    low, high = np.log2(float(info.tiny)), np.log2(float(info.max))
    rng = np.random.default_rng(bits)
    values = np.sort(2.0 ** rng.uniform(low + 1, high - 1e-6, 6000)).astype(dtype)
    values[rng.random(values.size) < 0.05] = 0
    frame = LCCodec("log", bits=bits).encode(values)
    back = LCCodec().decode(frame)
    np.testing.assert_array_equal(back == 0, values == 0)
    wide = values.astype(np.float64)
    assert np.all(np.abs(back.astype(np.float64) - wide) <= wide * 2.0 ** -(bits + 1))


def test_log_codes_float64_with_all_its_bits_of_mantissa():
    values = np.exp(np.random.default_rng(0).normal(size=20_000) * 3)
    for bits in range(8):
        frame = LCCodec("log", bits=bits).encode(values)
        assert take_apart(frame).quantizer == f.LOG
        assert 8 * len(frame) / values.size < 6 + bits


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_all_zeros_all_equal_and_one_value(dtype):
    for settings in SETTINGS:
        codec = LCCodec(**settings)
        for size in (0, 1, 2, 70_000):
            zeros = np.zeros(size, dtype)
            assert_same_bits(there_and_back(codec, zeros), zeros)
            ones = np.ones(size, dtype)
            np.testing.assert_allclose(
                there_and_back(codec, ones).astype(float), 1, atol=2.0 ** (3 - (codec.bits or 8))
            )


def test_negative_zero_comes_back_as_a_zero():
    values = np.array([-0.0, 0.0, 1.0] * 100, np.float32)
    for settings in SETTINGS:
        np.testing.assert_array_equal(there_and_back(LCCodec(**settings), values)[:2], [0, 0])
    assert_same_bits(there_and_back(LCCodec("lossless"), values), values)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("outlier", [1.0, 1e3, 1e9, 1e30])
def test_an_outlier_does_not_starve_the_bulk(dtype, outlier):
    values = (np.random.default_rng(0).normal(size=100_000) * 1e-3).astype(dtype)
    plain = len(LCCodec(bits=4).encode(values))
    values[1234] = outlier
    frame = LCCodec(bits=4).encode(values)
    back = LCCodec().decode(frame)
    assert np.abs(back - values)[values != outlier].max() < 2e-3 / 4
    assert back[1234] == pytest.approx(outlier, rel=1e-3)
    assert len(frame) < 1.01 * plain + 200


def test_a_few_small_values_among_zeros_are_not_lost():
    values = np.zeros(1 << 20, np.float32)
    values[1::7777] = 0.01
    np.testing.assert_allclose(there_and_back(LCCodec(), values), values, atol=1e-4)


def test_scale_per_block_keeps_small_blocks_beside_large_ones():
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(20, 1024)) * (10.0 ** -np.arange(20))[:, None]).astype(np.float32).reshape(-1)
    back = there_and_back(LCCodec(bits=6, scale="block"), values)
    error = np.abs(back - values).reshape(20, 1024).max(axis=1) * 10.0 ** np.arange(20)
    assert error.max() < 0.1


@given(
    st.sampled_from(SETTINGS),
    st.sampled_from(FLOATS).flatmap(
        lambda t: npst.arrays(np.float32, st.integers(0, 200), elements=st.floats(width=32)).map(
            lambda a: (a, t)
        )
    ),
)
def test_any_array_goes_there_and_back(settings, pair):
    values, dtype = pair
    with np.errstate(over="ignore"):
        values = values.astype(dtype)
    back = there_and_back(LCCodec(**settings), values)
    assert (back.dtype, back.size) == (values.dtype, values.size)
    special = ~np.isfinite(values.astype(np.float64))
    assert_same_bits(back[special], values[special])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("shift", [0, 5, 30])
def test_what_all_integers_of_a_block_are_multiples_of_costs_nothing(dtype, shift):
    values = np.random.default_rng(4).integers(-2, 2, 5000).astype(dtype)
    values[:1024], values[2048] = 0, 0
    plain, shifted = LCCodec().encode(values), LCCodec().encode(values << shift)
    np.testing.assert_array_equal(LCCodec().decode(shifted), values << shift)
    assert len(shifted) <= len(plain) + 16


def test_the_largest_common_factors_of_integers_come_back():
    least = np.iinfo(np.int64).min
    for values in ([least], [least, 0], [least, 1 << 62], [1 << 62, -(1 << 62)], [0, 0]):
        array = np.array(values, np.int64)
        np.testing.assert_array_equal(LCCodec().decode(LCCodec().encode(array)), array)


def test_a_codec_that_is_told_no_error_loses_nothing():
    pressure = (101_325 + 50 * np.random.default_rng(0).standard_normal((64, 64))).astype(np.float32)
    for codec in (LCCodec(), LCCodec.from_config({})):
        assert codec.quantizer == "lossless"
        assert_same_bits(there_and_back(codec, pressure), pressure)
    for told in (
        {"bits": 8},
        {"max_error": 0.5},
        {"step_size": 1.0},
        {"scale": "block"},
        {"quantizer": "linear"},
    ):
        assert LCCodec(**told).quantizer == "linear"
