"""Frames that nobody wrote in good faith: each is an `LcstoreError`, at once and in little memory.

The checksums are right: whoever makes a frame on purpose can compute one. Time is that of the processor: what
else the machine does is no matter of a frame.
"""

from __future__ import annotations

import contextlib
import struct
import time
import tracemalloc

import hostile_frames
import numpy as np
import pytest
from frame_builder import matrices, matrix, one_code, packed, seal, take_apart
from hostile_frames import PACK, SAMPLES, TWO, ZERO, every, one_matrix
from hostile_grids import CUBIC, GRIDS, SUMS, grid, kinds, levels, parts, plain
from hypothesis import given
from hypothesis import strategies as st

from lcstore import limits
from lcstore.codec import LCCodec
from lcstore.coders import format as f
from lcstore.dtypes import to_float16
from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    TruncatedError,
    UnsupportedFormatError,
)
from lcstore.frames.frame import parse_frame

FRAMES = {**hostile_frames.FRAMES, **GRIDS}
QUANTIZERS = [f.LOSSLESS, f.LINEAR, f.EXPONENT, f.LOG, *f.OF_MATRICES]
DTYPES = ["float16", "bfloat16", "float32", "float64", "int32", "uint8"]


def itemsize_of(dtype):
    return 2 if dtype in ("float16", "bfloat16") else np.dtype(dtype).itemsize


def claim(quantizer, dtype, count, cols=8):
    """Give a frame of nothing but zeros, and the least that its quantizer needs."""
    section = matrices(matrix(0, count, cols, 0, one_code(0), one_code(0)))
    scales = {
        f.LOSSLESS: b"",
        f.EXPONENT: bytes(max(itemsize_of(dtype), 4)),
        f.FACTORED: section,
        f.SORTED: packed(section),
    }
    return ZERO.but(
        count=count,
        quantizer=quantizer,
        dtype=f.DTYPES.index(dtype),
        scales=scales.get(quantizer, bytes(3)),
        parameter=16 if quantizer in f.OF_MATRICES else 0,
    ).to_bytes()


def refuse(data, expected=None):
    """Decode; give the error, and check that it came in time and cost no memory."""
    tracemalloc.start()
    begin = time.thread_time()
    try:
        with pytest.raises(LcstoreError) as error:
            LCCodec().decode_frame(data, expected)
        assert not isinstance(error.value, InvalidInputError)
        assert time.thread_time() - begin < 1
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    return error.value


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile everything first, so that what is measured is decoding."""
    claims = [claim(quantizer, dtype, 300) for quantizer in QUANTIZERS for dtype in DTYPES]
    for data in (*SAMPLES.values(), *claims, *(frame.to_bytes() for frame in FRAMES.values())):
        with contextlib.suppress(LcstoreError):
            LCCodec().decode(data)


@pytest.mark.parametrize("name", FRAMES)
def test_hostile_frames_are_refused(name):
    data = FRAMES[name].to_bytes()
    refuse(data)
    refuse(data, FRAMES[name].count if FRAMES[name].count <= 1 << 20 else 300)


def test_the_samples_themselves_decode():
    for name, data in SAMPLES.items():
        assert take_apart(data).to_bytes() == data, name
        LCCodec().decode_frame(data)
        assert take_apart(data).features == (f.RELATIVE if name.startswith("signs") else 0), name


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("2^60 elements", LimitError),
        ("more elements than its bytes can say", LimitError),
        ("a bad dtype", UnsupportedFormatError),
        ("a bad quantizer", UnsupportedFormatError),
        ("a bad coder", UnsupportedFormatError),
        ("a reserved byte", UnsupportedFormatError),
        ("an unknown feature", UnsupportedFormatError),
        ("a later version", UnsupportedFormatError),
        ("another magic", CorruptionError),
        ("a payload longer than the frame", TruncatedError),
        ("bytes behind the payload", CorruptionError),
    ],
)
def test_errors_say_what_to_do(name, error):
    assert type(refuse(FRAMES[name].to_bytes())) is error


@pytest.mark.parametrize("frame", [hostile_frames.PACK, hostile_frames.RUNS, hostile_frames.WIDE])
def test_a_frame_with_a_code_may_hold_nothing(frame):
    data = frame.but(count=0, directory=b"", payload=b"", scales=b"").to_bytes()
    assert LCCodec().decode_frame(data, 0).size == 0


def test_a_frame_holds_what_is_expected_or_is_refused():
    assert type(refuse(SAMPLES["pack"], 299)) is CorruptionError
    assert type(refuse(SAMPLES["pack"], 301)) is CorruptionError


@pytest.mark.parametrize("quantizer", QUANTIZERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_claim_that_is_believed_stays_in_memory(quantizer, dtype):
    """An empty frame may claim `MAX_UNSTATED_BYTES` of values; that is all that it costs."""
    count = limits.MAX_UNSTATED_BYTES // itemsize_of(dtype)
    data = claim(quantizer, dtype, count)
    tracemalloc.start()
    begin = time.thread_time()
    try:
        values = LCCodec().decode_frame(data)
        assert values.size == count
        assert not values[:: count // 7].any()
    except LcstoreError:
        assert dtype in ("int32", "uint8") or (quantizer in f.OF_MATRICES and dtype == "float16")
    finally:
        elapsed, peak = time.thread_time() - begin, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 256 << 20
    assert elapsed < 1
    assert type(refuse(take_apart(data).but(count=count + 1).to_bytes())) is LimitError


@pytest.mark.parametrize("code", [1, 100])
def test_values_that_underflow_take_no_longer_than_others(code):
    """51 bytes once took 10 s: to round to a subnormal float16 costs numpy a trap for each."""
    count = limits.MAX_UNSTATED_BYTES // 2
    scales = struct.pack("<Bh", f.SCALES_ONE, code)
    data = ZERO.but(quantizer=f.LOG, dtype=f.DTYPES.index("float16"), count=count, scales=scales).to_bytes()
    assert len(data) == 51
    begin = time.thread_time()
    LCCodec().decode_frame(data)
    assert time.thread_time() - begin < 1


@given(st.integers(0, (1 << 32) - 1).map(lambda bits: np.uint32(bits).view(np.float32)), st.integers(-30, 2))
def test_float16_is_rounded_as_numpy_does(value, exponent):
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)[:: 1 << 8].astype(np.float64)
    with np.errstate(all="ignore"):
        wide = np.concatenate((halves * 2.0**exponent, [value], halves + 2.0**-25))
        wide = wide[~np.isnan(wide)]
        for values in (wide, wide.astype(np.float32)):
            np.testing.assert_array_equal(
                to_float16(values).view(np.uint16), values.astype(np.float16).view(np.uint16)
            )


def test_what_the_lying_matrices_start_from_decodes():
    rows = b"\3" + np.arange(1000, 1016, dtype="<i2").tobytes()
    for frame in (
        one_matrix(),
        one_matrix(phase=19, rows=rows),
        one_matrix(at=4, size=290),
        one_matrix(cols=8),
    ):
        values = LCCodec().decode_frame(frame.to_bytes())
        assert np.all((values > 0.1) & (values < 4)) or not values[:4].any()
        assert np.count_nonzero(values) in (290, 300)


def test_what_the_lying_grids_start_from_decodes():
    assert SUMS.quantizer == CUBIC.quantizer == f.PREDICTED
    assert LCCodec().decode(SUMS.but(scales=grid()).to_bytes()).size == 300
    assert not LCCodec().decode(plain(levels(300)).to_bytes()).any()
    special = parts(levels(298).to_bytes(), kinds(1, 3, 2)).to_bytes()
    np.testing.assert_array_equal(LCCodec().decode(special)[:4], [np.inf, np.nan, 0, 0])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("cubic", [0, 1])
def test_the_largest_grid_that_is_believed_stays_in_memory(dtype, cubic):
    """Levels are of four bytes where the values are of two; half of them is special."""
    count = limits.MAX_UNSTATED_BYTES // itemsize_of(dtype)
    changes = np.zeros(count, np.uint8)
    changes[count // 2] = 1
    within = [levels(count // 2).to_bytes(), LCCodec("lossless").encode(changes)]
    section = grid((1 << 10, count >> 10), (0, 0) if cubic else (3, 3), cubic=cubic, special=1, patterns=b"")
    data = parts(*within).but(
        count=count, dtype=f.DTYPES.index(dtype), scales=section + bytes(itemsize_of(dtype))
    )
    tracemalloc.start()
    begin = time.thread_time()
    try:
        values = LCCodec().decode_frame(data.to_bytes())
        elapsed, peak = time.thread_time() - begin, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert values.size == count
    assert peak < 448 << 20
    assert elapsed < 12  # seconds of this thread, on a machine that is busy otherwise; it takes about one
    assert type(refuse(data.but(count=count + 1).to_bytes())) is LimitError


def half_and_half(code, count):
    """Write `count` codes in two runs."""
    return struct.pack("<BI2h2I", f.SCALES_RUNS, 2, code, code + 1, count // 2, count - count // 2)


@pytest.mark.parametrize("longest", [False, True])
@pytest.mark.parametrize("write", [lambda code, _: one_code(code), half_and_half], ids=["one", "runs"])
def test_codes_of_rows_and_columns_stay_in_memory(longest, write):
    count = limits.MAX_UNSTATED_BYTES // 2
    cols = count // 6 if longest else 8
    section = matrices(matrix(0, count, cols, 0, write(2032, -(-count // cols)), write(0, cols)))
    data = one_matrix().but(count=count, dtype=f.DTYPES.index("bfloat16"), scales=section).to_bytes()
    tracemalloc.start()
    begin = time.thread_time()
    try:
        values = LCCodec().decode_frame(data)
        elapsed, peak = time.thread_time() - begin, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert values.all()
    assert peak < 256 << 20
    assert elapsed < 1


def test_many_small_matrices_take_time_by_their_bytes_and_not_by_the_frames():
    size, count = 8, 1 << 24
    section = matrices(*(matrix(i * size, size, 8, 0, one_code(2032), one_code(0)) for i in range(20_000)))
    data = one_matrix().but(count=count, scales=section).to_bytes()
    begin = time.thread_time()
    values = LCCodec().decode_frame(data, count)
    assert time.thread_time() - begin < 2
    assert np.count_nonzero(values) == 160_000


@pytest.mark.parametrize("name", SAMPLES)
def test_every_proper_prefix_is_truncated(name):
    data = SAMPLES[name]
    for size in range(len(data)):
        with pytest.raises(TruncatedError):
            LCCodec().decode(data[:size])


@pytest.mark.parametrize("name", SAMPLES)
def test_every_single_bit_flip_is_found(name):
    data = SAMPLES[name]
    flipped = bytearray(data)
    for bit in range(8 * len(data)):
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptionError, UnsupportedFormatError)):
            LCCodec().decode(bytes(flipped))
        flipped[bit // 8] ^= 1 << bit % 8


def mutations(data, rng, count):
    """Damage a frame in one to four places, and put the right checksum on what comes out."""
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(int(rng.integers(1, 5))):
            at = int(rng.integers(16 if rng.random() < 0.5 else 8, len(damaged)))
            kind = rng.integers(0, 4)
            if kind == 0:
                damaged[at] ^= 1 << int(rng.integers(0, 8))
            elif kind == 1:
                damaged[at] = int(rng.choice([0, 1, 2, 4, 127, 128, 255]))
            elif kind == 2:
                damaged[at] = int(rng.integers(0, 256))
            else:
                other = int(rng.integers(8, len(damaged)))
                damaged[at], damaged[other] = damaged[other], damaged[at]
        yield seal(damaged)


def fuzz(data, seed, count):
    rng = np.random.default_rng(seed)
    for mutant in mutations(data, rng, count):
        begin = time.thread_time()
        try:
            values = LCCodec().decode_frame(mutant)
        except InvalidInputError:
            raise
        except LcstoreError:
            pass
        else:
            assert values.nbytes <= max(
                limits.MAX_UNSTATED_BYTES, limits.MAX_UNSTATED_EXPANSION * len(mutant)
            )
        assert time.thread_time() - begin < 1, mutant.hex()


@pytest.mark.parametrize("name", SAMPLES)
def test_random_damage_with_a_right_checksum_decodes_or_is_refused(name):
    fuzz(SAMPLES[name], 20, 3000)


@pytest.mark.soak
@pytest.mark.parametrize("name", SAMPLES)
def test_much_random_damage_decodes_or_is_refused(name):
    fuzz(SAMPLES[name], 21, 200_000)


@pytest.mark.parametrize("size", [0, 1, 47, 48, 49, 200])
def test_noise_is_refused(size):
    rng = np.random.default_rng(size)
    for _ in range(50):
        refuse(rng.bytes(size))
    if size >= 48:
        refuse(seal(f.MAGIC + bytes([f.VERSION]) + rng.bytes(size - 4)))


def test_frames_past_2_to_31_elements_are_a_matter_of_headers():
    """Nothing of this size is made here: only the claims of such frames are read."""
    count = (1 << 31) + 12_345
    frame = parse_frame(ZERO.but(count=count).to_bytes(), expected=count)
    assert (frame.count, frame.blocks) == (count, -(-count // 1024))
    segments = -(-count // (1 << 16))
    streams = PACK.but(
        count=count,
        bits=8,
        per=1,
        streams=4,
        table=TWO,
        directory=every(segments),
        payload=bytes(4 * segments),
    )
    assert parse_frame(streams.to_bytes(), expected=count).directory.size == 5 * segments
    with pytest.raises(CorruptionError):
        parse_frame(streams.but(count=count + (1 << 16)).to_bytes(), expected=count + (1 << 16))
    with pytest.raises(CorruptionError):
        parse_frame(ZERO.but(count=count).to_bytes(), expected=12_345)
    with pytest.raises(LimitError):
        parse_frame(ZERO.but(count=limits.MAX_FRAME_ELEMENTS + 1).to_bytes(), expected=count)
