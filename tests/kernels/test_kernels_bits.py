"""Bit streams, digests and byte planes against their twins."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.bitkernels import bits, escapes
from lcstore.kernels import planes
from lcstore.kernels.digest import digest_pieces, digest_runs
from lcstore.layout.shards import Shard

u64 = np.uint64
fields = st.integers(0, 63).flatmap(lambda n: st.tuples(st.integers(0, (1 << n) - 1), st.just(n)))


def write(parts):
    words = np.zeros(len(parts) * 3 + 4, np.uint64)
    state = u64(0), u64(0), u64(0)
    for value, n in parts:
        acc, used, at = bits.put(words, *state, u64(value), u64(n))
        state = u64(acc), u64(used), u64(at)
    words[int(state[2])] = state[0]
    return words, int(state[2]) * 64 + int(state[1])


@given(st.lists(fields, max_size=40))
def test_put_appends_bits_and_window_finds_them(parts):
    words, size = write(parts)
    twin = twins.BitWriter()
    for value, n in parts:
        twin.put(value, n)
    assert size == twin.size
    assert words.tobytes()[: (size + 7) // 8] == twin.to_bytes()
    whole = np.append(words, u64(0))
    for at in range(0, size, 13):
        assert int(bits.window(whole, u64(at))) == (twin.value >> at) & twins.MASK64


def test_a_put_of_nothing_changes_nothing():
    words, size = write([(0, 0)] * 5)
    assert size == 0
    assert not words.any()


@given(st.integers(0, (1 << 64) - 1))
def test_bit_length(value):
    assert int(bits.bit_length(u64(value))) == value.bit_length()


@given(
    st.lists(st.integers(-(1 << 61), 1 << 61), min_size=1, max_size=12), st.sampled_from([2, 3, 4, 8, 128])
)
def test_escapes_are_written_and_read_back(levels, least):
    levels = [v if abs(v) >= least else least for v in levels]
    words = np.zeros(len(levels) * 3 + 4, np.uint64)
    acc = used = at = u64(0)
    twin = twins.BitWriter()
    for level in levels:
        acc, used, at = map(u64, escapes.put_escape(words, acc, used, at, level, least))
        twins.put_escape(twin, level, least)
    words[int(at)] = acc
    data = twin.to_bytes()
    assert words.tobytes()[: len(data)] == data
    position, reader, padded = u64(0), twins.BitReader(data), twins.words_of(data)
    for level in levels:
        found, position = escapes.take_escape(padded, u64(position), least)
        assert int(found) == level == twins.take_escape(reader, least)
    assert int(position) == twin.size


def test_an_escape_without_an_end_is_malformed():
    assert int(escapes.take_escape(np.zeros(8, np.uint64), u64(0), 3)[0]) == 0


def digest(values, start=0):
    """Give the digest of one piece."""
    out = np.zeros(1, np.uint64)
    digest_pieces(values, *np.array([[0], [values.size], [start]]), out)
    return int(out[0])


@given(
    npst.arrays(st.sampled_from([np.int8, np.int32, np.int64]), st.integers(0, 70)),
    st.sampled_from([0, 1, 1023, 1 << 20, (1 << 40) + 7]),
)
def test_digest_is_its_twin(values, start):
    assert digest(values, start) == twins.digest(values, start)


@given(
    npst.arrays(st.sampled_from([np.uint8, np.int32, np.int64]), 40), st.lists(st.integers(0, 40), max_size=8)
)
def test_the_digests_of_pieces_are_those_of_each(values, cuts):
    bounds = sorted(cuts)[: len(cuts) // 2 * 2]
    at, ends = np.array(bounds[::2], np.int64), np.array(bounds[1::2], np.int64)
    start = 7 * at + 1
    out = np.arange(at.size, dtype=np.uint64)
    digest_pieces(values, at, ends - at, start, out)
    each = zip(at, ends, start, strict=True)
    wanted = [i + twins.digest(values[low:high], int(first)) for i, (low, high, first) in enumerate(each)]
    assert out.tolist() == [total & twins.MASK64 for total in wanted]


@given(npst.arrays(np.int64, 33), npst.arrays(np.int64, 33), st.integers(0, 1 << 40))
def test_digest_is_linear_and_adds_up_over_pieces(a, b, start):
    with np.errstate(over="ignore"):
        total = a + b
    assert digest(total, start) == (digest(a, start) + digest(b, start)) & twins.MASK64
    assert digest(a, start) == (digest(a[:10], start) + digest(a[10:], start + 10)) & twins.MASK64


@given(st.data())
def test_the_digest_of_a_shard_is_its_twin_and_shards_add_up(data):
    """Cut a tensor in two along any dimension: each has the digest of its elements at their places."""
    whole = tuple(data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    words = data.draw(st.sampled_from([1, 2]))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = rng.integers(-(1 << 31), 1 << 31, (*whole, words)).astype(np.int32)
    axis = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.integers(0, whole[axis]))
    total = 0
    for low, high in ((0, cut), (cut, whole[axis])):
        start = tuple(low if d == axis else 0 for d in range(len(whole)))
        part = np.take(values, range(low, high), axis)
        shape = part.shape[:-1]
        flat, found = part.reshape(-1), np.zeros(1, np.uint64)
        middle = data.draw(st.integers(0, flat.size // words))
        for first, last in ((0, middle), (middle, flat.size // words)):
            some = flat[first * words : last * words]
            digest_runs(some, first, words, *np.array([shape, whole, start], np.int64), found)
        assert int(found[0]) == twins.digest_shard(part, whole, start, words)
        runs = np.zeros(1, np.uint64)
        taken = Shard(whole, start).runs(shape)
        digest_runs(flat, 0, words, *np.array(taken, np.int64), runs)
        assert runs[0] == found[0]
        total += int(found[0])
    assert total % (1 << 64) == twins.digest(values.reshape(-1), 0)


def test_digest_tells_positions_apart():
    weights = {twins.weight(j) for j in range(100_000)}
    assert len(weights) == 100_000


@given(
    st.sampled_from([np.uint8, np.uint16, np.uint32, np.uint64]).flatmap(
        lambda t: npst.arrays(t, st.integers(0, 40) | st.integers(4090, 4100), elements=st.integers(0, 255))
    ),
    st.sampled_from([0, 1]),
    st.integers(0, 9),
)
def test_planes_are_their_twin_and_come_back(words, turn, apart):
    words *= words.dtype.type(0x9E3779B97F4A7C15 % (1 << 8 * words.itemsize))  # all bytes of some
    room = np.full((words.itemsize, words.size + apart), 0xAA, np.uint8)
    places = np.arange(words.itemsize) * (words.size + apart)
    planes.split_planes(words, turn, room.reshape(-1), places)
    split = room[:, : words.size].copy()
    np.testing.assert_array_equal(split, twins.split_planes(words, turn))
    assert (room[:, words.size :] == 0xAA).all()
    joined = np.full(words.size, 0xAA, words.dtype)
    for index in range(words.itemsize):
        planes.join_plane(split[index], index, joined)
    if turn:
        planes.turn_back(joined)
    np.testing.assert_array_equal(joined, words)
    if turn and words.itemsize == 4:
        joined[:] = 0xAA
        planes.join_four(*split, joined)
        np.testing.assert_array_equal(joined, words)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_turning_puts_a_floats_exponent_in_one_plane(dtype):
    values = np.array([1.0, -1.0, 1.5, -1.25]).astype(dtype)
    words = values.view(f"u{values.itemsize}")
    top = twins.split_planes(words, 1)[-1]
    assert len(set(top.tolist())) == 1 or dtype == np.float16  # five bits of exponent leave room for mantissa


def test_a_window_never_leaves_memory():
    words = np.arange(1, 6, dtype=np.uint64)
    inside = [int(bits.window(words, u64(at))) for at in range(4 * 64)]
    twin = int.from_bytes(words.tobytes(), "little")
    assert inside == [(twin >> at) & twins.MASK64 for at in range(4 * 64)]
    for past in (4 * 64, 5 * 64 - 1, 5 * 64, 1 << 40, (1 << 63) - 1):
        bits.window(words, u64(past))  # a checked kernel: it would raise
