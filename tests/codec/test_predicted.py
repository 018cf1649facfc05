"""Fields: levels told by their neighbours, steps of any size, and values that have no level."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from codec_settings import FLOATS, assert_same_bits
from frame_builder import take_apart
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.codec import LCCodec
from lcstore.codec.predicted import encode_predicted
from lcstore.codec.predictors import Predictor, choose, joined
from lcstore.codec.values import decode_values
from lcstore.coders import format as f
from lcstore.coders.stepsize import StepSize
from lcstore.frames.frame import parse_frame


def waves(*shape, dtype=np.float32):
    """A smooth field between -1 and 1."""
    grids = np.meshgrid(*(np.linspace(0, 2 + axis, n) for axis, n in enumerate(shape)), indexing="ij")
    return np.sin(np.sum(grids, axis=0) * 2).astype(dtype)


def bits(codec, values):
    return 8 * len(codec.encode(values)) / values.size


def back_of(codec, values):
    """Code and decode; in the shape of what was given, in whatever order that lies in memory."""
    back = codec.decode(codec.encode(values))
    return back.reshape(values.shape, order="F" if values.flags.fnc else "C")


def error_of(codec, values):
    return np.abs(back_of(codec, values).astype(np.float64) - values.astype(np.float64)).max()


# how small it gets


@pytest.mark.parametrize(
    ("shape", "bound", "most"),
    [((400, 300), 1e-2, 0.15), ((400, 300), 1e-5, 2.2), ((40, 50, 60), 1e-4, 4.1), ((100_000,), 1e-3, 0.4)],
)
def test_smooth_fields_take_few_bits(shape, bound, most):
    values = waves(*shape)
    codec = LCCodec(max_error=bound)
    assert bits(codec, values) < most
    assert bits(LCCodec(max_error=bound, predictor="none"), values) > 3 * most
    assert error_of(codec, values) <= bound


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("ahead", [(), (1,), (1, 1)])
def test_the_order_in_memory_is_that_of_the_axes(order, ahead):
    """The field is smooth along one axis only."""
    values = np.random.default_rng(0).normal(size=(300, 1)) + np.linspace(0, 1, 200)
    values = np.asarray(values.reshape(*ahead, 300, 200), np.float32, order=order)
    codec = LCCodec(max_error=1e-4)
    assert bits(codec, values) < 3.5
    assert error_of(codec, values) <= 1e-4


@pytest.mark.parametrize("settings", [{"step_size": 0.25}, {"bits": 6}, {"max_error": 0.1}])
def test_noise_is_not_predicted(settings):
    values = np.random.default_rng(0).normal(size=(200, 200)).astype(np.float32)
    frame = LCCodec(**settings).encode(values)
    assert frame == LCCodec(**settings, predictor="none").encode(values)
    assert take_apart(frame).quantizer == f.LINEAR


def test_a_step_of_any_size_uses_the_bound_up():
    values = np.random.default_rng(0).normal(size=100_000)
    parts = [1, 1.25, 1.5, 1.75, 1.99]
    sizes = [bits(LCCodec(max_error=2.0**-8 * part), values) for part in parts]
    assert np.allclose(np.diff(sizes), -np.diff(np.log2(parts)), atol=0.05)


def test_a_given_step_size_stays_one():
    values = waves(100, 120)
    codec = LCCodec(step_size=2.0**-10)
    assert take_apart(codec.encode(values)).quantizer == f.PREDICTED
    np.testing.assert_array_equal(back_of(codec, values), np.rint(values * 2.0**10) * 2.0**-10)


# how near it comes back


@given(
    st.sampled_from(FLOATS),
    npst.array_shapes(min_dims=1, max_dims=5, max_side=12),
    st.floats(1e-7, 10),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.0, 0.1, 0.9, 1.0]),
)
def test_every_field_comes_back_within_its_bound(dtype, shape, bound, seed, masked):
    rng = np.random.default_rng(seed)
    values = waves(*shape) * 3 + rng.normal(size=shape) * rng.choice([0, 0.01])
    gone = rng.random(shape) < masked
    values[gone] = rng.choice([np.nan, np.inf, -np.inf, 3e38, -0.0])
    with np.errstate(over="ignore"):
        values = values.astype(dtype)
    back = back_of(LCCodec(max_error=bound), values)
    finite = np.isfinite(values.astype(np.float64))
    assert np.all(np.abs(back[finite].astype(np.float64) - values[finite].astype(np.float64)) <= bound)
    assert_same_bits(back[~finite], values[~finite])


@given(
    npst.arrays(
        st.sampled_from([np.float32, np.float64]), (4, 5, 6), elements=st.floats(-1e6, 1e6, width=32)
    ),
    st.sampled_from([StepSize(-3), StepSize(0, 17), StepSize(-20, 255)]),
    st.sampled_from([*itertools.product((0, 2), (0, 1), (0, 3)), None]),
    st.floats(0, 1),
)
def test_whatever_predicts_comes_back(values, step, orders, masked):
    """Differences never change what is restored, and points between others stay within half a step."""
    values[np.random.default_rng(0).random(values.shape) < masked] = np.nan
    flat = values.reshape(-1)
    made = [
        encode_predicted(flat, step, predictor)
        for predictor in (Predictor(), Predictor((4, 5, 6), orders or (0, 0, 0), orders is None))
    ]
    if None in made:  # too many values are too large for the step size
        assert made == [None, None]
        return
    plain, back = (decode_values(parse_frame(frame)) for frame in made)
    if orders is not None:
        assert_same_bits(back, plain)
    finite = np.isfinite(flat)
    rounding = np.abs(flat[finite]) * np.finfo(flat.dtype).eps
    assert np.all(np.abs(back[finite].astype(np.float64) - flat[finite]) <= step.size * 0.501 + rounding)
    assert_same_bits(back[~finite], flat[~finite])


# what has no level


def test_a_mask_costs_little_and_the_rest_stays_within_the_bound():
    values = waves(300, 400)
    codec = LCCodec(max_error=1e-4)
    whole = len(codec.encode(values))
    land = np.hypot(np.arange(300)[:, None] - 150, np.arange(400) - 250) < 90
    values[land] = np.nan
    assert len(codec.encode(values)) < 1.6 * whole
    back = back_of(codec, values)
    assert np.abs(back - values)[~land].max() <= 1e-4
    assert np.isnan(back[land]).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_chunk_that_is_masked_is_tiny(dtype):
    values = np.full((200, 300), np.nan, dtype)
    frame = LCCodec(max_error=1e-3).encode(values)
    assert len(frame) < 300
    assert_same_bits(LCCodec().decode(frame), values.reshape(-1))


@pytest.mark.parametrize("fill", [9.969209968386869e36, -1e20, np.inf])
def test_fill_values_come_back_exactly(fill):
    values = waves(200, 200)
    values[:, 70:100] = fill
    codec = LCCodec(max_error=1e-3)
    assert bits(codec, values) < 1.5
    back = back_of(codec, values)
    np.testing.assert_array_equal(back[:, 70:100], np.float32(fill))
    assert np.abs(back[:, :70] - values[:, :70]).max() <= 1e-3


@pytest.mark.parametrize("orders", [None, (0, 0), (2, 1)])
def test_what_is_just_too_large_for_a_level_harms_no_neighbour(orders):
    values = waves(30, 40, dtype=np.float64) * 1000
    values[8, 16] = 2.0**51 - 0.5
    predictor = Predictor((30, 40), orders or (0, 0), orders is None)
    frame = encode_predicted(values.reshape(-1), StepSize(0), predictor)
    back = decode_values(parse_frame(frame)).reshape(30, 40)
    assert back[8, 16] == values[8, 16]
    assert np.abs(back - values).max() <= 0.5


def test_the_bits_of_each_nan_come_back():
    values = waves(50, 50)
    values.view(np.uint32)[3, 4:9] = [0x7FC00000, 0xFFC00000, 0x7FC00001, 0x7F800001, 0x7FFFFFFF]
    assert_same_bits(back_of(LCCodec(max_error=1e-3), values)[3, 4:9], values[3, 4:9])


def test_more_special_values_than_a_frame_lists_make_it_lossless():
    values = waves(100, 100, dtype=np.float64)
    codec = LCCodec(max_error=1e-3)
    values.view(np.uint64)[0] = 0x7FF8000000000000 + np.arange(100)
    assert take_apart(codec.encode(values)).quantizer == f.PREDICTED
    values.view(np.uint64)[:3] = 0x7FF8000000000000 + np.arange(300).reshape(3, 100)
    assert take_apart(codec.encode(values)).quantizer == f.LOSSLESS
    assert_same_bits(back_of(codec, values), values)


# what is chosen


def test_a_shape_loses_axes_of_one_and_joins_the_slowest():
    assert joined((1, 5, 1, 7), 8) == (5, 7)
    assert joined((2, 3, 4, 5), 3) == (6, 4, 5)
    assert joined((1, 1), 3) == ()


def test_the_predictor_suits_the_field():
    bowl = np.add.outer(np.arange(64.0) ** 2, np.arange(80.0) ** 2).reshape(-1)
    assert choose(bowl, (64, 80), 1.0, between=False).orders in [(1, 1), (2, 1), (1, 2)]
    rows = np.tile(np.random.default_rng(0).normal(size=80), 64)
    assert choose(rows, (64, 80), 0.01, between=False).orders == (1, 0)
    coarse = waves(64, 80).reshape(-1)
    assert choose(coarse, (64, 80), 0.05, between=True).cubic
    assert not choose(coarse, (64, 80), 0.05, between=False).cubic
    assert choose(np.zeros(5000), (5000,), 1.0, between=True) == Predictor()
    assert choose(np.full(5000, np.nan), (50, 100), 1.0, between=True) == Predictor()


@pytest.mark.parametrize(
    ("value", "size"), [(1.0, 1.0), (0.3, 0.2998046875), (1e308, 2.0**1000), (1e-310, 2.0**-1022)]
)
def test_step_sizes_are_rounded_down(value, size):
    assert StepSize.at_most(value).size == size
    assert StepSize.at_most(float("inf")) == StepSize(1000)


def test_bfloat16_fields_through_their_bits():
    values = waves(60, 70).astype(ml_dtypes.bfloat16)
    codec = LCCodec(max_error=0.01, logical="bfloat16")
    back = back_of(codec, values.view(np.uint16)).view(ml_dtypes.bfloat16)
    assert bits(codec, values.view(np.uint16)) < 5
    assert np.abs(back.astype(np.float32) - values.astype(np.float32)).max() <= 0.01
