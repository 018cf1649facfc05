"""Frames of second moments: what comes back, from whatever part of whatever matrix."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from codec_settings import assert_same_bits
from frame_builder import BEFORE, encode_factored, one_code, packed, take_apart, unpacked
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from lcstore.codec import LCCodec, factored
from lcstore.codec.factored import Part
from lcstore.codec.values import decode_values
from lcstore.coders import format as f
from lcstore.coders import rowsort
from lcstore.coders.tables import TableCache
from lcstore.frames.frame import parse_frame
from lcstore.frames.pieces import Pieces

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float64), BFLOAT16]


def back_of(data):
    return LCCodec().decode_frame(data)


def codes(values):
    """Give the bits of values, all but 4 of the mantissa cut."""
    wide = values.astype(np.float32) if values.dtype == BFLOAT16 else values
    return (wide.view(f"i{wide.itemsize}") >> (19 if wide.itemsize == 4 else 48)).astype(np.int64)


def assert_as_promised(values, back, step, even=True):
    """Zero where it was, and only there; within a step, and within 0.6 of one where there is room.

    What comes back larger than it was may be 1.5 steps off where that is not as bad.
    """
    larger = 0.6 if even else 1.5
    assert back.dtype == values.dtype
    assert np.isfinite(back).all()
    np.testing.assert_array_equal(back == 0, values == 0)
    some = values != 0
    before, after = codes(values[some]), codes(back[some])
    last = codes(np.array([np.finfo(values.dtype).max if values.dtype != BFLOAT16 else 3.3e38], values.dtype))
    inside = (after > step) & (after <= last[0] - step)
    errors = after - before
    assert np.all(errors[inside] <= larger * step + 0.5)
    assert np.all(-errors[inside] <= 0.6 * step + 0.5)
    assert np.all(errors <= max(1.0, larger) * step + 0.5)
    assert np.all(-errors <= step)


def numbers(dtype):
    """Give strategies for values that are not negative, of any size."""
    width = 64 if dtype == np.float64 else 32
    far = st.floats(0, width=width, allow_infinity=False)
    ends = [0.0, 1.0, 1e-8, float(np.finfo(np.float64 if width == 64 else np.float32).max), 1e-44]
    if dtype == BFLOAT16:
        far, ends = far.filter(lambda v: v < 3e38), [*ends[:3], 3e38, 1e-40]
    return far | st.sampled_from(ends)


@st.composite
def chunks(draw):
    """Draw a chunk: pieces of matrices, at any phase, with zeros between; and where they lie."""
    dtype = draw(st.sampled_from(DTYPES))
    pieces, parts, at = [], [], 0
    for _ in range(draw(st.integers(0, 3))):
        at += draw(st.sampled_from([0, 1, 30]))
        cols, size = draw(st.sampled_from([1, 3, 8, 9, 20, 1500])), draw(st.integers(1, 300))
        piece = draw(
            npst.arrays(np.float64, size, elements=numbers(dtype), fill=st.sampled_from([0.0, 1.0, 1e-9]))
        )
        with np.errstate(over="ignore"):
            pieces.append(np.abs(piece.astype(dtype)))
        parts.append(Part(at, size, cols, draw(st.integers(0, cols - 1))))
        at += size
    values = np.zeros(at + draw(st.integers(0, 40)), dtype)
    for part, piece in zip(parts, pieces, strict=True):
        values[part.at : part.at + part.size] = piece
    return values, parts


@given(chunks(), st.integers(1, 255), st.booleans())
def test_any_values_come_back_as_promised(chunk, step, even):
    values, parts = chunk
    data = encode_factored(values, parts, step, even=even)
    frame = take_apart(data)
    assert frame.quantizer == f.SORTED
    back = back_of(data)
    assert_as_promised(values, back, step, even)
    if not frame.scales[0]:  # as such a frame was written before rows were sorted
        before = frame.but(quantizer=f.FACTORED, scales=unpacked(frame))
        assert_same_bits(back_of(before.to_bytes()), back)
    assert_same_bits(back, back_of(data))
    assert encode_factored(values, parts, step, even=even) == data


@st.composite
def vectors(draw):
    """Draw a chunk of moments of biases and small matrices: most begin where rows of 1024 do."""
    dtype, kinds = draw(st.sampled_from(DTYPES)), [(7, 1), (64, 1), (40, 8), (1000, 1), (1024, 1), (1500, 1)]
    pieces, parts, at = [], [], draw(st.sampled_from([0, 1024]))
    for size, cols in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=9).map(sorted)):
        at += draw(st.sampled_from([0, 0, 0, 1024, 3]))
        values = draw(npst.arrays(np.float64, 8, elements=numbers(dtype)))
        with np.errstate(over="ignore"):
            pieces.append(np.abs(np.resize(values, size).astype(dtype)))
        parts.append(Part(at, size, cols, 0))
        at += -(-size // 1024) * 1024
    values = np.zeros(parts[-1].at + parts[-1].size + draw(st.integers(0, 40)), dtype)
    for part, piece in zip(parts, pieces, strict=True):
        values[part.at : part.at + part.size] = piece
    return values, parts


@given(vectors(), st.integers(1, 255), st.booleans())
def test_vectors_side_by_side_come_back_as_promised(chunk, step, even):
    values, parts = chunk
    # Without factors of columns, more would be held back: nothing comes back much larger than it was.
    assert_as_promised(values, back_of(encode_factored(values, parts, step, even=even)), step)


def vectors_of(length, count, place, wide=1024):
    """Give second moments of biases that lie at multiples of `wide`, and their parts."""
    values, some = np.zeros(wide * count, np.float32), product(1, length * count).reshape(count, length)
    values.reshape(count, wide)[:, :length] = some
    return values, [Part(place + wide * n, length, 1, 0) for n in range(count)]


@pytest.mark.parametrize("length", [32, 64, 1000, 1024])
def test_vectors_of_one_length_side_by_side_are_one_matrix(length):
    values, parts = vectors_of(length, 50, 0)
    data = encode_factored(values, parts, 64)
    section = unpacked(take_apart(data))
    assert int.from_bytes(section[:4], "little") == 1
    assert len(section) < 4 + 40 + 20 + 2 * 50
    assert_as_promised(values, back_of(data), 64)
    # Values of one chunk in pieces of their own are coded as they are in one array.
    pieces = Pieces([(p.at, values[p.at : p.at + p.size]) for p in parts], values.size, values.dtype)
    assert factored.encode_factored(pieces, parts, 64).data == data


def test_vectors_of_several_lengths_or_not_side_by_side_are_matrices_of_their_own():
    values, parts = vectors_of(64, 6, 0)
    parts[2] = parts[2]._replace(size=60)
    del parts[4]
    values[2 * 1024 + 60 : 2 * 1024 + 64], values[4 * 1024 : 5 * 1024] = 0, 0
    data = encode_factored(values, parts, 64)
    assert int.from_bytes(unpacked(take_apart(data))[:4], "little") == 4
    assert_as_promised(values, back_of(data), 64)


def product(rows, cols, seed=0, spread=0.3, dtype=np.float32):
    """Make second moments as they nearly are."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(size=(rows, 1)) + rng.normal(size=(1, cols)) + spread * rng.normal(size=(rows, cols))
    return (1e-8 * np.exp(logs)).astype(dtype)


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from([1, 5, 16, 64]), st.data())
def test_a_matrix_may_be_cut_anywhere(rows, cols, step, data):
    flat = product(rows, cols).reshape(-1)
    cut = data.draw(st.integers(0, flat.size))
    for low, high in ((0, cut), (cut, flat.size)):
        if low < high:
            piece = flat[low:high]
            frame = encode_factored(piece, [Part(0, piece.size, cols, low % cols)], step)
            assert_as_promised(piece, back_of(frame), step)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("step", [1, 16])
def test_rows_columns_and_matrices_of_zeros_cost_next_to_nothing(dtype, step):
    values = np.zeros((3, 200, 120), dtype)
    values[0] = values[2] = product(200, 120).astype(dtype)
    whole = encode_factored(
        values[[0, 2]].reshape(-1), [Part(i * 24_000, 24_000, 120, 0) for i in (0, 1)], step
    )
    values[:, 20:90] = 0
    values[:, :, 3:70] = 0
    flat = values.reshape(-1)
    data = encode_factored(flat, [Part(i * 24_000, 24_000, 120, 0) for i in range(3)], step)
    assert_as_promised(flat, back_of(data), step)
    assert len(data) < len(whole)
    nothing = encode_factored(np.zeros_like(flat), [Part(5, flat.size - 5, 120, 5)], step)
    assert len(nothing) < 200
    assert_same_bits(back_of(nothing), np.zeros_like(flat))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_huge_range_comes_back_as_promised(dtype):
    rng = np.random.default_rng(3)
    most = 300 if dtype == np.float64 else 37
    logs = rng.uniform(-most - 20, most, (64, 100))
    with np.errstate(under="ignore"):
        values = (10.0**logs).astype(dtype).reshape(-1)
    assert (values == 0).any() or dtype != BFLOAT16
    for step in (1, 16, 255):
        data = encode_factored(values, [Part(0, values.size, 100, 0)], step)
        assert_as_promised(values, back_of(data), step)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_subnormals_stay_above_zero(dtype):
    tiny = np.arange(1, 401).astype(f"u{dtype.itemsize}").view(dtype)
    for part in (Part(0, 400, 20, 0), Part(0, 400, 1, 0)):
        back = back_of(encode_factored(tiny, [part], 16))
        assert_as_promised(tiny, back, 16)
        assert np.all(back < 2.0**-123)


def test_a_centre_past_infinity_is_the_last_code():
    """An element far below a large row and a large column: its level is an escape, decoded as 0 at first."""
    values = np.full((64, 64), 1e-30, np.float32)
    values[7], values[:, 9] = 1e30, 1e30
    values[7, 9] = 1e-30
    flat = values.reshape(-1)
    data = encode_factored(flat, [Part(0, flat.size, 64, 0)], 1)
    assert_as_promised(flat, back_of(data), 1)


@pytest.mark.parametrize("cols", [8, 63, 1000, 1023, 1024, 1025])
def test_a_product_of_powers_of_two_takes_its_factors_only(cols):
    rng = np.random.default_rng(1)
    rows = 70
    values = 2.0 ** (rng.integers(-30, 0, (rows, 1)) + rng.integers(-8, 0, (1, cols)))
    flat = values.astype(np.float32).reshape(-1)
    data = encode_factored(flat, [Part(0, flat.size, cols, 0)], 16)
    assert take_apart(data).coder == f.ZERO
    assert len(data) < 150 + 2 * (rows + cols)
    assert_as_promised(flat, back_of(data), 16)


def test_steps_trade_size_for_error():
    flat = product(512, 500).reshape(-1)
    sizes, errors = [], []
    for step in (1, 4, 16, 64):
        data = encode_factored(flat, [Part(0, flat.size, 500, 0)], step)
        sizes.append(len(data))
        errors.append(np.abs(np.log2(back_of(data) / flat)).mean())
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)
    assert errors[0] < 0.02
    assert 8 * sizes[2] / flat.size < 1.3


@pytest.mark.parametrize("step", [32, 64])
def test_what_is_far_below_its_row_takes_less_where_it_may_come_back_larger(step):
    flat = product(512, 500, spread=1.5).reshape(-1)
    flat[np.random.default_rng(2).random(flat.size) < 0.1] *= np.float32(2.0**-4)
    sizes = []
    for even in (True, False):
        data = encode_factored(flat, [Part(0, flat.size, 500, 0)], step, even=even)
        assert_as_promised(flat, back_of(data), step, even)
        sizes.append(len(data))
    assert sizes[1] < 0.8 * sizes[0]


@pytest.mark.parametrize("bad", [-1.0, -0.0, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_has_no_logarithm_is_not_coded(dtype, bad):
    values = np.ones(400, dtype)
    parts = [Part(0, 200, 10, 0), Part(200, 200, 1, 0)]
    assert encode_factored(values, parts, 16) is not None
    for place in (0, 199, 399):
        values[:] = 1
        values[place] = bad
        assert encode_factored(values, parts, 16) is None


def test_other_dtypes_are_not_coded():
    part = [Part(0, 400, 20, 0)]
    for dtype in (np.float16, np.int32, np.complex64):
        assert encode_factored(np.ones(400, dtype), part, 16) is None


@pytest.mark.parametrize("step", [1, 16, 32, 64])
def test_scattered_zeros_take_what_saying_where_they_are_takes(step):
    """Their level is one and the same, wherever their centre lies."""
    rng = np.random.default_rng(4)
    some = (2.0 ** (rng.integers(-30, 0, (200, 1)) + rng.integers(-8, 0, (1, 300)))).astype(np.float32)
    whole = encode_factored(some.reshape(-1), [Part(0, some.size, 300, 0)], step)
    for part in (0.03, 0.9):
        values = np.where(rng.random(some.shape) < part, np.float32(0), some).reshape(-1)
        data = encode_factored(values, [Part(0, values.size, 300, 0)], step)
        assert_as_promised(values, back_of(data), step)
        entropy = -part * np.log2(part) - (1 - part) * np.log2(1 - part)
        if step >= 32:
            assert 8 * (len(data) - len(whole)) < 1.1 * entropy * values.size


def test_zeros_that_lie_in_few_columns_take_less_as_rows_are_sorted(monkeypatch):
    """As of nets with ReLU: what is hardly ever active has small second moments, and zeros among them."""
    rng = np.random.default_rng(5)
    rare = rng.random(500) < 0.1
    zeros = rng.random((400, 500)) < np.where(rare, 0.6, 0.005)
    values = np.where(zeros, np.float32(0), product(400, 500) * np.where(rare, np.float32(2.0**-12), 1))
    flat, part = values.reshape(-1), [Part(0, values.size, 500, 0)]
    data = encode_factored(flat, part, 64)
    assert_as_promised(flat, back_of(data), 64)
    monkeypatch.setattr(rowsort, "_WORTH_IT", 0)
    unsorted = encode_factored(flat, part, 64)
    assert (data[48], unsorted[48]) == (1, 0)
    assert_same_bits(back_of(data), back_of(unsorted))
    assert len(data) < 0.8 * len(unsorted)


def test_a_frame_from_before_rows_were_sorted_is_read():
    back = back_of(BEFORE).reshape(8, 8)
    assert (back[2, 5], back[7, 4], back[0, 0]) == (0, 1.90625 * 2.0**-18, 1.90625 * 2.0**-21)
    assert np.count_nonzero(back) == 63


def test_an_empty_chunk_and_one_without_matrices():
    for size in (0, 100):
        data = encode_factored(np.zeros(size, np.float32), [], 16)
        assert_same_bits(back_of(data), np.zeros(size, np.float32))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tables_of_earlier_chunks_change_no_value(dtype):
    cache = TableCache()
    for seed in range(3):
        flat = product(300, 70, seed).astype(dtype).reshape(-1)
        parts = [Part(0, flat.size, 70, 0)]
        assert_same_bits(
            back_of(encode_factored(flat, parts, 16, cache=cache)), back_of(encode_factored(flat, parts, 16))
        )


SIZE = (1 << 18) + (1 << 16) + 4321
PARTS = [Part(3, 100_000, 777, 500), Part(100_010, 1 << 17, 1, 0), Part(250_000, SIZE - 250_000, 1024, 9)]


def large(kind):
    """Give a frame of several spans, of the coder that `kind` leads to."""
    rng = np.random.default_rng(8)
    spread, step = {
        "zero": (0.0, 64),
        "runs": (0.5, 64),
        "sorted": (0.5, 64),
        "pack": (1.5, 16),
        "wide": (9.0, 1),
    }[kind]
    values = (1e-8 * np.exp(spread * rng.normal(size=SIZE))).astype(np.float32)
    if kind in ("runs", "pack"):
        values[rng.integers(0, SIZE, 300)] = 1e-2
        values[rng.integers(0, SIZE, 300)] = 0
    if kind == "sorted":
        values[rng.integers(0, SIZE, 20_000)] = 0
        values[rng.integers(0, SIZE, 300)] = 1
    values[:3] = values[100_003:100_010] = values[231_082:250_000] = 0
    return encode_factored(values, PARTS, step)


@pytest.fixture(scope="module", params=["zero", "runs", "sorted", "pack", "wide"])
def big(request):
    frame = parse_frame(large(request.param), expected=SIZE)
    coders = {"zero": f.ZERO, "pack": f.PACK, "wide": f.WIDE}
    assert frame.coder == coders.get(request.param, f.RUNS)
    assert frame.scales[0] == (request.param == "sorted")
    return frame, decode_values(frame)


def test_matrices_may_lie_anywhere_in_a_frame(big):
    _, whole = big
    assert not whole[:3].any()
    assert not whole[100_003:100_010].any()
    assert not whole[231_082:250_000].any()


def test_levels_outside_of_matrices_stand_for_zero():
    values = np.full(200, 1e-8, np.float32)
    values[::3] = 1e-4
    data = take_apart(encode_factored(values, [Part(0, 200, 20, 0)], 16))
    assert data.coder != f.ZERO
    section = b"\1\0\0\0" + np.array([0, 100, 20, 0], "<u8").tobytes() + np.array([3, 3], "<u4").tobytes()
    data = data.but(scales=packed(section + one_code(1500) + one_code(0)))
    back = back_of(data.to_bytes())
    assert back[:100].all()
    assert not back[100:].any()


@pytest.mark.parametrize("step_size", [8, 16, 32, 64])
@pytest.mark.parametrize(("spread", "most"), [(0.1, 0.05), (0.6, 0.1), (1.0, 0.35)])
def test_moments_are_off_by_little_in_the_mean_however_often_they_are_coded(step_size, spread, most):
    """Each restart had made them larger, the more the less they were products, and steps by them shorter."""
    random = np.random.default_rng(0)
    product = np.outer(*(np.exp2(random.normal(0, 1, count)) for count in (256, 200)))
    values = (
        (1e-6 * product * np.exp2(random.normal(0, spread, product.shape))).astype(np.float32).reshape(-1)
    )
    first = np.log2(values)
    for restart in range(20):
        values = back_of(
            encode_factored(values, [Part(0, values.size, 200, 0)], step_size, even=step_size < 32)
        )
        assert abs((np.log2(values) - first).mean()) < most, restart
        values *= np.float32(0.99)  # and forget a little, as averages do between restarts
        first += np.float32(np.log2(0.99))


@pytest.mark.parametrize(("rows", "cols", "phase"), [(1000, 9, 0), (600, 27, 20), (700, 1, 0), (1500, 1, 0)])
@pytest.mark.parametrize(("step_size", "even"), [(16, True), (32, True), (32, False), (64, False)])
def test_what_was_restored_is_coded_as_it_was(rows, cols, phase, step_size, even):
    """Rows that had come to lie between whole steps became larger with each restart, without bound."""
    random = np.random.default_rng(0)
    far = random.normal(0, 1.5, (rows, 1)) + random.normal(0, 1.5, (1, cols))
    values = np.exp2(far + random.normal(0, 1.5, far.shape) - 27).astype(np.float32).reshape(-1)[phase:]
    parts = [Part(0, values.size, cols, phase)]
    first = back_of(encode_factored(values, parts, step_size, even=even))
    second = values = back_of(encode_factored(first, parts, step_size, even=even))
    for _ in range(12):
        values = back_of(encode_factored(values, parts, step_size, even=even))
    assert (second != first).mean() < (0.005 if even else 0.05)  # more where some may come back larger, once
    assert (values != second).mean() < (1e-9 if even else 0.004)
    assert np.abs(np.log2(values / first)).max() <= 2 * step_size / 16


@pytest.mark.parametrize(("shape", "zeros"), [((500, 8), 0.5), ((2000, 8), 0.5), ((512, 128), 0.97)])
@pytest.mark.parametrize("step_size", [32, 64])
@pytest.mark.parametrize("steps", [0, 500])
def test_no_value_among_zeros_grows_with_each_restart(shape, zeros, step_size, steps):
    """A row with one value that is not zero came back four octaves larger, and the next time again."""
    random = np.random.default_rng(1)
    far = 2 * random.standard_normal((shape[0], 1)) + random.standard_normal((1, shape[1]))
    true = 1e-6 * np.exp(far + 0.7 * random.standard_normal(shape))
    true[random.random(shape) < zeros] = 0
    true = values = true.astype(np.float32).reshape(-1)
    forgets = np.float32(0.999**steps)
    for _ in range(10):
        values = back_of(encode_factored(values, [Part(0, true.size, shape[1], 0)], step_size))
        assert (values[true > 0] / true[true > 0]).max() < 20
        values = forgets * values + (1 - forgets) * true


@pytest.mark.parametrize("step_size", [32, 64])
def test_few_values_far_below_do_not_take_the_others_with_them(step_size):
    """A column came down to where its least value came back, so that all others had a level above zero."""
    random = np.random.default_rng(1)
    near = 1e-6 * np.exp(0.2 * random.standard_normal((512, 784)))
    far = np.where(random.random(near.shape) < 0.04, near * 2.0 ** -(step_size / 16), near)
    values, parts = far.astype(np.float32).reshape(-1), [Part(0, far.size, 784, 0)]
    assert len(encode_factored(values, parts, step_size, even=False)) < 1000


@pytest.mark.parametrize(
    ("shape", "zeros"),
    [((200, 200), 0.5), ((200, 200), 0.9), ((96, 700), 0.3), ((96, 700), 0.9), ((64, 1000), 0.5)]
    + [(shape, 0.0) for shape in ((8, 8), (9, 9), (16, 16), (8, 512))],
)
@pytest.mark.parametrize(("step_size", "even"), [(32, False), (32, True), (64, True)])
@pytest.mark.parametrize("spread", [0.6, 1.5])
def test_few_values_of_a_row_or_column_suffice(shape, zeros, step_size, even, spread):
    """As of a layer that was pruned, or a small one: up to a third of them moved with each restart."""
    random = np.random.default_rng(0)
    far = random.normal(0, 1.0, (shape[0], 1)) + random.normal(0, 1.0, (1, shape[1]))
    values = np.exp2(far + random.normal(0, spread, shape) - 27).astype(np.float32)
    values[random.random(shape) < zeros] = 0
    parts = [Part(0, values.size, shape[1], 0)]
    first = values = back_of(encode_factored(values.reshape(-1), parts, step_size, even=even))
    for number in range(12):
        before, values = values, back_of(encode_factored(values, parts, step_size, even=even))
        if number == 0:
            assert (values != before).mean() <= (0 if even else 0.05)  # what may come back larger, once
        if number > 2:
            assert (values != before).mean() <= (0 if even else 0.01)
    counts = first > 0
    assert ((values > 0) == counts).all()
    assert np.abs(np.log2(values[counts] / first[counts])).max() <= (1 if even else 3) * step_size / 16
