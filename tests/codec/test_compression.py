"""How small frames are: against the entropy of their levels, and the paper's mode against a naive one."""

from __future__ import annotations

import heapq

import ml_dtypes
import numpy as np
import pytest
from frame_builder import take_apart
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.codec import LCCodec
from lcstore.coders import format as f
from lcstore.coders.entropy import encode_any

SIZE = 1 << 20


def entropy(levels):
    _, counts = np.unique(levels, return_counts=True)
    p = counts / counts.sum()
    return float(-(p * np.log2(p)).sum())


def bits_per_level(coded, size):
    sections = 3 + len(coded.table) + len(coded.directory) + sum(map(len, coded.payload))
    return 8 * (f.HEADER.size + sections) / size


def draw(kind, spread, size=SIZE):
    rng = np.random.default_rng(7)
    values = {"normal": rng.normal, "laplace": rng.laplace, "heavy": lambda **k: rng.standard_t(3, **k)}[
        kind
    ](size=size)
    return np.rint(values * spread).astype(np.int64)


@pytest.mark.parametrize("kind", ["normal", "laplace", "heavy"])
@pytest.mark.parametrize("spread", [0.11, 0.15, 0.2, 0.25, 0.3, 0.35, 0.45, 0.6, 0.9, 1.4, 2.0])
def test_levels_take_little_more_than_their_entropy(kind, spread):
    levels = draw(kind, spread)
    least = entropy(levels)
    if 0.1 <= least <= 3.2:
        assert bits_per_level(encode_any(levels), levels.size) <= 1.05 * least


@pytest.mark.parametrize("spread", [0.25, 0.35, 0.9, 6.0])
@pytest.mark.parametrize("agreeing", [0.75, 0.9])
def test_signs_that_agree_with_the_one_before_take_less_than_a_bit_each(spread, agreeing):
    """As in layers behind a ReLU, a row of which moves one way."""
    levels = draw("normal", spread)
    used = np.flatnonzero(levels)
    flips = np.random.default_rng(8).random(used.size) > agreeing
    levels[used] = np.abs(levels[used]) * np.where(np.cumsum(flips) % 2, -1, 1)
    of_signs = -(agreeing * np.log2(agreeing) + (1 - agreeing) * np.log2(1 - agreeing))
    least = entropy(np.abs(levels)) + of_signs * used.size / levels.size
    assert bits_per_level(encode_any(levels), levels.size) <= 1.05 * least


@pytest.mark.parametrize("spread", [4, 10, 30, 1000, 1e6])
def test_fine_levels_take_little_more_than_their_entropy(spread):
    levels = draw("normal", spread)
    least = np.log2(spread * np.sqrt(2 * np.pi * np.e))
    assert bits_per_level(encode_any(levels), levels.size) <= 1.03 * least


@pytest.mark.parametrize("zeros", [0.52, 0.56, 0.6])
def test_large_levels_among_many_zeros_take_little_more_than_their_entropy(zeros):
    """As in sums of deltas of which some rows were at rest."""
    levels = draw("normal", 25)
    levels[np.random.default_rng(8).random(SIZE) < zeros] = 0
    assert bits_per_level(encode_any(levels), levels.size) <= 1.05 * entropy(levels)


def test_nearly_empty_chunks_take_nearly_nothing():
    rng = np.random.default_rng(0)
    levels = np.where(rng.random(SIZE) < 0.001, rng.choice([-1, 1], SIZE), 0)
    assert bits_per_level(encode_any(levels), SIZE) <= 0.02
    levels[:] = 0
    assert bits_per_level(encode_any(levels), SIZE) < 0.001
    levels[123] = 1
    assert bits_per_level(encode_any(levels), SIZE) < 0.002


def test_a_chunk_of_two_tensors_is_coded_nearly_as_well_as_each():
    dense, sparse = draw("normal", 0.8, SIZE // 2), draw("normal", 0.16, SIZE // 2)
    apart = sum(bits_per_level(encode_any(part), SIZE) for part in (dense, sparse))
    assert bits_per_level(encode_any(np.concatenate((dense, sparse))), SIZE) < 1.25 * apart


def naive_exponent(values, bits):
    """Do what LC-Checkpoint says, one value at a time: buckets of sign and exponent, the top ones kept."""
    wide = values.astype(np.float64) if values.dtype == np.float64 else values.astype(np.float32)
    tiny = np.finfo(wide.dtype).tiny
    buckets = {}
    for i, value in enumerate(wide.tolist()):
        if abs(value) >= tiny:
            buckets.setdefault((int(np.frexp(value)[1]), value > 0), []).append((value, i))
    out = np.zeros_like(wide)
    ids = np.zeros(values.size, int)
    for rank, key in enumerate(sorted(buckets, reverse=True)[: 2**bits - 1]):
        members = [value for value, _ in buckets[key]]
        low, high = min(members, key=abs), max(members, key=abs)
        for _, i in buckets[key]:
            out[i] = low + (high - low) / 2
            ids[i] = rank + 1
    return out.astype(values.dtype), ids


def ideal_huffman_bits(ids):
    """Count the bits of an unlimited symbol-wise Huffman code."""
    heap = np.unique(ids, return_counts=True)[1].tolist()
    heapq.heapify(heap)
    total = 0
    while len(heap) > 1:
        pair = heapq.heappop(heap) + heapq.heappop(heap)
        total += pair
        heapq.heappush(heap, pair)
    return max(total, ids.size if total == 0 else 0)


FLOATS = [np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


@given(
    st.sampled_from(FLOATS),
    npst.arrays(
        np.float64,
        st.integers(0, 200),
        elements=st.floats(-1e4, 1e4) | st.sampled_from([0.0, -0.0, 1e-40, 1.0]),
    ),
    st.integers(1, 7),
)
def test_the_papers_mode_is_what_the_paper_says(dtype, values, bits):
    values = values.astype(dtype)
    frame = LCCodec("exponent", bits=bits).encode(values)
    if take_apart(frame).quantizer == f.EXPONENT:
        np.testing.assert_array_equal(LCCodec().decode(frame), naive_exponent(values, bits)[0])
    else:
        np.testing.assert_array_equal(LCCodec().decode(frame), values)


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_papers_mode_takes_what_huffman_takes(bits, dtype):
    values = (np.random.default_rng(bits).normal(size=70_000) * 1e-3).astype(dtype)
    frame = LCCodec("exponent", bits=bits).encode(values)
    back, ids = naive_exponent(values, bits)
    np.testing.assert_array_equal(LCCodec().decode(frame), back)
    assert (take_apart(frame).bits, take_apart(frame).per) == (8, 1)
    assert 8 * len(frame) <= 1.03 * ideal_huffman_bits(ids)
    assert len(set(back.tolist())) == 2**bits


def test_the_papers_mode_keeps_positive_before_negative_at_its_last_place():
    values = np.array([1.0, -1.0, 4.0] * 40, np.float32)
    back = LCCodec().decode(LCCodec("exponent", bits=1).encode(values))
    assert sorted(set(back.tolist())) == [0.0, 4.0]
    back = LCCodec().decode(
        LCCodec("exponent", bits=2).encode(np.append(values, [8.0, 16.0]).astype(np.float32))
    )
    assert sorted(set(back.tolist())) == [0.0, 4.0, 8.0, 16.0]
    back = LCCodec().decode(LCCodec("exponent", bits=2).encode(np.append(values, 8.0).astype(np.float32)))
    assert sorted(set(back.tolist())) == [0.0, 1.0, 4.0, 8.0]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("spread", [3, 30, 45, 60, 100, 1000, 1e7])
def test_coarse_and_fine_integers_are_coded_near_their_entropy(dtype, spread):
    rng = np.random.default_rng(3)
    levels = np.rint(rng.laplace(size=SIZE) * spread).astype(dtype)
    density = np.log2(2 * np.e * spread)  # of a Laplace distribution, in bits
    assert bits_per_level(encode_any(levels), levels.size) <= 1.03 * density


def test_rare_but_huge_levels_do_not_cost_twice():
    rng = np.random.default_rng(4)
    levels = np.where(rng.random(SIZE) < 0.01, rng.integers(-(1 << 29), 1 << 29, SIZE), 0)
    ideal = 0.01 * 30 + 0.081  # the bits of each, and where they are
    assert bits_per_level(encode_any(levels), levels.size) < 2 * ideal
