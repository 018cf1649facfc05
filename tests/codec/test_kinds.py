"""Integers near zero, as what bit patterns differ by: some zero, most of few bits, some of all."""

from __future__ import annotations

import numpy as np
import pytest
from frame_builder import take_apart
from hypothesis import given
from hypothesis import strategies as st

from lcstore.codec import LCCodec
from lcstore.coders import format as f
from lcstore.frames.frame import parse_frame
from lcstore.frames.lossless import decode_lossless, encode_lossless
from lcstore.frames.pieces import Pieces

INTEGERS = [np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)]


EDGES = [1 << 60, (1 << 61) - 1, 1 << 61, -(1 << 61), 1 << 62, -(1 << 63), (1 << 63) - 1]


def mixture(seed, dtype, size, zeros, bits, far, shift) -> np.ndarray:
    """Integers of about so many bits, a part of them zero, a part of them anything; all are shifted."""
    rng = np.random.default_rng(seed)
    words = np.rint(rng.standard_normal(size) * 2.0**bits).astype(np.int64)
    words[rng.random(size) < zeros] = 0
    some = rng.random(size) < far
    words[some] = rng.integers(-(1 << 63), (1 << 63) - 1, size, endpoint=True)[some]
    return (words << shift).astype(f"i{dtype.itemsize}").view(dtype)


def there_and_back(words: np.ndarray) -> bytes:
    """Code integers, check that all of them come back, and give the frame."""
    data = encode_lossless(Pieces.of(words))
    back = decode_lossless(parse_frame(data, expected=words.size))
    assert back.dtype == words.dtype
    assert back.tobytes() == words.tobytes()
    return data


@given(
    seed=st.integers(0, 1 << 30),
    dtype=st.sampled_from(INTEGERS),
    size=st.sampled_from([1, 64, 65, 1000, 5000]),
    zeros=st.sampled_from([0, 0.02, 0.5, 0.97]),
    bits=st.integers(0, 60),
    far=st.sampled_from([0, 0, 0.01, 1]),
    shift=st.integers(0, 63),
)
def test_every_integer_comes_back(seed, dtype, size, zeros, bits, far, shift):
    there_and_back(mixture(seed, dtype, size, zeros, bits, far, shift))


def test_bytes_of_which_whole_segments_are_not_zero_take_what_these_do():
    rng, words = np.random.default_rng(0), np.zeros(1 << 21, np.int8)
    words[300_000:500_000] = rng.integers(-128, 128, 200_000)
    assert len(there_and_back(words)) < 1.15 * 200_000  # not a bit for each byte besides


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("others", [1, 7])
def test_levels_that_no_sample_meets_come_back(dtype, others):
    for seed in range(8):
        rng, words = np.random.default_rng(seed), np.zeros(1 << 18, dtype)
        bits = rng.integers(1, 8 * dtype.itemsize)
        words[rng.choice(words.size, others, replace=False)] = rng.integers(1, 1 << bits, others, np.uint64)
        assert len(there_and_back(words)) < 2048


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize("others", ["small", "wide"])
def test_what_no_level_holds_is_listed_as_it_is(edge, others):
    words = mixture(0, np.dtype(np.int64), 4096, 0.5, 3 if others == "small" else 40, 0, 0)
    words[5] = edge
    there_and_back(words)


@pytest.mark.parametrize(
    ("zeros", "bits", "parts"), [(0.0, 20, 1), (0.8, 20, 2), (0.97, 20, 2), (0.97, 4, 1)]
)
def test_kinds_are_said_where_they_save_something(zeros, bits, parts):
    frame = take_apart(there_and_back(mixture(1, np.dtype(np.int32), 100_000, zeros, bits, 0, 0)))
    assert (frame.coder, len(frame.parts())) == (f.KINDS, parts)


def test_what_all_are_multiples_of_is_said_once():
    words = mixture(2, np.dtype(np.int64), 50_000, 0.1, 20, 0, 0)
    near, far = len(there_and_back(words)), len(there_and_back(words << 13))
    assert near == far
    assert take_apart(encode_lossless(Pieces.of(words << 13))).parameter == 13


@pytest.mark.parametrize(("zeros", "bits", "most"), [(0.0, 20, 22.3), (0.5, 20, 12.2), (0.97, 20, 0.9)])
def test_it_takes_about_the_entropy(zeros, bits, most):
    # A normal value of deviation 2**20 has 22.05 bits; of a part that is zero h(zeros) and the rest.
    words = mixture(3, np.dtype(np.int32), 200_000, zeros, bits, 0, 0)
    assert 8 * len(there_and_back(words)) / words.size < most


def test_random_integers_are_left_as_they_are():
    words = mixture(4, np.dtype(np.int64), 10_000, 0, 0, 1, 0)
    assert len(there_and_back(words)) <= words.nbytes + f.HEADER.size


def test_the_codec_takes_them_too():
    words = mixture(5, np.dtype(np.uint32), 10_000, 0.9, 12, 0, 0)
    codec = LCCodec("lossless")
    assert codec.decode(codec.encode(words)).tobytes() == words.tobytes()
    assert take_apart(codec.encode(words)).coder == f.KINDS
