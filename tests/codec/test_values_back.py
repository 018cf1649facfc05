"""What a frame decodes to is known to whoever made it, without decoding it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from codec_settings import assert_same_bits
from hypothesis import given
from hypothesis import strategies as st

from lcstore.codec.factored import Part, encode_factored
from lcstore.codec.values import decode_values, encode_linear, encode_log, values_back
from lcstore.frames.frame import parse_frame
from lcstore.frames.pieces import Pieces

DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
SIZES = [0, 1, 1000, 1024, 1025, 70_000, 2 * 65_536]


def drawn(seed, size, dtype, far):
    """Normal values, a part of them zero, and some of them (`far`) much larger."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size) * (rng.random(size) < 0.9)
    values[rng.random(size) < far] *= 1000
    return values.astype(dtype)


def made_of(kind, values, exponent):
    if kind == "linear":
        exponents = np.full(-(-values.size // 1024), exponent, np.int16)
        return encode_linear(Pieces.of(values), exponents, threshold=0.55)
    if kind == "log":
        return encode_log(np.abs(values), exponent % 8)
    part = Part(0, values.size, 100, 7)
    return encode_factored(Pieces.of(np.abs(values)), [part] if values.size else [], 16)


def whole(made, like):
    """Put the parts together, which come one after another."""
    out, end = np.empty_like(like), 0
    for start, part in values_back(made):
        assert start == end
        end = start + part.size
        out[start:end] = part
    assert end == like.size
    return out


@given(
    st.sampled_from(["linear", "log", "factored"]),
    st.integers(0, 1 << 20),
    st.sampled_from(SIZES),
    st.sampled_from(DTYPES),
    st.sampled_from([0, 0.001, 0.3]),
    st.integers(-9, 3),
)
def test_filled_values_are_what_the_frame_decodes_to(kind, seed, size, dtype, far, exponent):
    values = drawn(seed, size, dtype, far)
    made = made_of(kind, values, exponent)
    if made is None:
        assert (kind, dtype) == ("factored", np.float16)
        return
    frame = parse_frame(made.data, expected=size)
    assert_same_bits(whole(made, values), decode_values(frame))


@pytest.mark.parametrize("values", [np.zeros(5000, np.float32), np.full(5000, 3e38, np.float32)])
def test_nothing_but_zeros_and_the_largest(values):
    for kind, exponent in (("linear", 100), ("linear", 127), ("log", 3), ("factored", 0)):
        made = made_of(kind, values, exponent)
        if made is None:
            assert (kind, exponent) == ("linear", 127)
            continue
        assert_same_bits(whole(made, values), decode_values(parse_frame(made.data)))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 1500])
def test_what_is_not_finite_is_refused(wrong, at):
    values = drawn(1, 2000, np.float32, 0)
    values[at] = wrong
    assert made_of("linear", values, -3) is None
