"""First moments at few bits: as many as asked for, and as long along themselves as they were."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lcstore.codec.values import decode_values
from lcstore.edges.coarse import encode_coarse
from lcstore.edges.unbiased import rule_for, threshold_for
from lcstore.frames.frame import parse_frame
from lcstore.frames.pieces import Pieces

BITS = (0.3, 0.5, 0.7, 1, 1.5, 2, 4, 8)


def drawn(how, blocks=100):
    """Values in blocks of 1,024 whose sizes differ by more than an octave."""
    rng = np.random.default_rng(0)
    values = getattr(rng, how)(size=(blocks, 1024)) * np.exp2(rng.uniform(-20, -4, (blocks, 1)))
    return values.astype(np.float32).reshape(-1)


def along(values, back):
    """The part of its own size that a value keeps along itself, with all blocks alike."""
    blocks, after = (a.astype(float).reshape(-1, 1024) for a in (values, back))
    return float(np.mean((blocks * after).sum(1) / (blocks * blocks).sum(1)))


@pytest.mark.parametrize("bits", BITS)
def test_normal_values_take_the_bits_asked_for_and_keep_their_length(bits):
    values = drawn("standard_normal")
    made = encode_coarse(Pieces.of(values), rule_for(bits))
    taken = 8 * len(made.data) / values.size
    assert bits - 0.02 < taken < 1.08 * bits + 0.06
    back = decode_values(parse_frame(made.data))
    assert along(values, back) == pytest.approx(1, abs=0.015)


@pytest.mark.parametrize("bits", [0.7, 1, 2])
def test_values_with_large_ones_among_them_keep_about_their_length(bits):
    values = drawn("laplace")
    made = encode_coarse(Pieces.of(values), rule_for(bits))
    assert 8 * len(made.data) / values.size < 1.05 * bits + 0.03
    assert along(values, decode_values(parse_frame(made.data))) == pytest.approx(1, abs=0.08)


@pytest.mark.parametrize("spread", [0, 0.01, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("signs", [[1.0], [-1.0, 1.0]])
@pytest.mark.parametrize("bits", BITS)
def test_values_that_are_about_as_large_as_each_other_do_not_all_come_back_as_zero(bits, signs, spread):
    """Momentum of weights that are all drawn one way: all of it lies below the step of normal values."""
    rng = np.random.default_rng(0)
    values = 1 + spread * rng.standard_normal((100, 1024))
    values *= np.exp2(rng.uniform(-20, -4, (100, 1))) * rng.choice(signs, values.shape)
    values = values.astype(np.float32).reshape(-1)
    made = encode_coarse(Pieces.of(values), rule_for(bits))
    assert 0.75 < along(values, decode_values(parse_frame(made.data))) < 1.5


def test_steps_grow_and_thresholds_fall_as_bits_do():
    thresholds = [threshold_for(step) for step in (0.1, 1.0, 2.0, 2.74, 3.86, 9.26)]
    assert thresholds == sorted(thresholds, reverse=True)
    assert thresholds[0] == 0.5
    assert 2.74 * thresholds[3] == pytest.approx(1.25, abs=0.02)
    assert 3.86 * thresholds[4] == pytest.approx(1.5, abs=0.1)
    shifts = [float(rule_for(bits).shifts.mean()) for bits in BITS]
    assert shifts == sorted(shifts, reverse=True)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize("bits", [0.7, 16])
def test_every_dtype_and_odd_sizes_come_back(dtype, bits):
    values = np.concatenate((drawn("standard_normal", 3)[:2500], np.zeros(1500), [1.0])).astype(dtype)
    made = encode_coarse(Pieces.of(values), rule_for(bits))
    back = decode_values(parse_frame(made.data))
    assert back.dtype == values.dtype
    assert (back[values == 0] == 0).all()
    if bits == 16:
        np.testing.assert_allclose(back[:2500].astype(float), values[:2500].astype(float), atol=1e-4)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
def test_what_would_not_come_back_finite_is_left_to_other_frames(bad):
    values = np.ones(3000, np.float32)
    values[1030] = bad
    assert encode_coarse(Pieces.of(values), rule_for(0.5)) is None
