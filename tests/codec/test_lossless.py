"""Lossless frames: every bit of every dtype, in parts of any kind, whole or a range of elements."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcstore.coders import format as f
from lcstore.frames.decode import SPAN
from lcstore.frames.frame import parse_frame
from lcstore.frames.lossless import decode_lossless, encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.track.readonce import ReadOnce

SIZES = (0, 1, 47, 48, 49, 5000, 65_536, SPAN + 7, 2 * SPAN)


def normal(size):
    return np.random.default_rng(size).standard_normal(size, np.float32)


KINDS = {
    "normal values": normal,
    "bfloat16 as float32": lambda n: normal(n).astype(ml_dtypes.bfloat16).astype(np.float32),
    "bfloat16": lambda n: normal(n).astype(ml_dtypes.bfloat16),
    "float64 of float32": lambda n: normal(n).astype(np.float64),
    "complex64": lambda n: (normal(n) + 1j * normal(n)[::-1]).astype(np.complex64),
    "complex128": lambda n: normal(n) * (1 + 2j),
    "small integers": lambda n: np.arange(n, dtype=np.int64) % 11 - 5,
    "any bits": lambda n: np.random.default_rng(0).integers(0, 1 << 64, n, dtype=np.uint64),
    "bytes": lambda n: np.random.default_rng(0).integers(0, 256, n, dtype=np.uint8),
    "few bytes": lambda n: np.random.default_rng(0).integers(0, 3, n, dtype=np.int8),
    "true or false": lambda n: np.arange(n) % 5 == 0,
    "one pattern": lambda n: np.full(n, -3.5, np.float16),
    "zeros": lambda n: np.zeros(n, np.float32),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_every_bit_comes_back(kind, size):
    values = KINDS[kind](size)
    before = values.tobytes()
    data = encode_lossless(Pieces.of(values))
    assert values.tobytes() == before
    assert len(data) <= values.nbytes + 48
    frame = parse_frame(data, expected=size)
    assert decode_lossless(frame).tobytes() == before


@pytest.mark.parametrize("kind", ["normal values", "small integers", "few bytes", "complex128", "any bits"])
def test_what_lies_between_the_parts_is_zero(kind):
    parts = [(64, KINDS[kind](1000)), (2048, KINDS[kind](70_000)), (SPAN + 64, KINDS[kind](333))]
    values = Pieces(parts, SPAN + 1024, parts[0][1].dtype)
    back = decode_lossless(parse_frame(encode_lossless(values), expected=values.size))
    wanted = np.zeros(values.size, values.dtype)
    for at, part in parts:
        wanted[at : at + part.size] = part
    assert back.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zeros_between_parts_cost_nothing(dtype):
    """Byte planes take a bit or more of each of them: more than the values themselves, in a large chunk."""
    values = normal(20_000).astype(dtype)
    alone = len(encode_lossless(Pieces.of(values)))
    parts = [(1 << 10, values[:9000]), (1 << 17, values[9000:])]
    assert len(encode_lossless(Pieces(parts, 1 << 18, values.dtype))) < alone + 48 + 32 + 48
    parts = [(0, values[:9000]), (9000 + 256 // values.itemsize - 1, values[9000:])]
    count = values.size + 256 // values.itemsize - 1
    assert parse_frame(encode_lossless(Pieces(parts, count, values.dtype))).coder == f.PLANES
    behind = Pieces([(0, values[:40])], 40 + 256 // values.itemsize - 1, values.dtype)  # a small chunk
    assert parse_frame(encode_lossless(behind)).coder != f.GAPS
    for gap, coder in ((1200, f.PLANES), (1400, f.GAPS)):  # what lies between large tensors is no matter
        parts = [(0, values[:9000]), (9000 + gap, values[9000:])]
        frame = parse_frame(encode_lossless(Pieces(parts, values.size + gap, values.dtype)))
        assert frame.coder == coder


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), max_size=12), st.integers(0, 300))
def test_runs_lie_where_their_parts_did(pairs, behind):
    parts, at = [], 0
    for gap, size in pairs:
        parts.append((at + gap, normal(size)))
        at += gap + size
    seen = []
    values = Pieces(parts, at + behind, np.dtype(np.float32))
    once = ReadOnce(parts, at + behind, np.dtype(np.float32), lambda *some: seen.append(some[2].copy()))
    data = bytes(encode_lossless(values))
    assert bytes(encode_lossless(once)) == data
    assert np.concatenate([*seen, []]).tolist() == np.concatenate([*(part for _, part in parts), []]).tolist()
    assert decode_lossless(parse_frame(data, expected=at + behind)).tobytes() == values.whole.tobytes()
