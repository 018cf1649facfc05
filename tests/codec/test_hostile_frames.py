"""Frames that nobody wrote in good faith: each is an `LcstoreError`, at once and in little memory.

The checksums are right: whoever makes a frame on purpose can compute one.
"""

from __future__ import annotations

import contextlib
import time
import tracemalloc

import numpy as np
import pytest
from frame_builder import seal, take_apart
from hostile_frames import FRAMES, PACK, SAMPLES, TWO, ZERO, every

from lcstore import limits
from lcstore.codec import LCCodec
from lcstore.codec import format as f
from lcstore.codec.frame import parse_frame
from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    LimitError,
    TruncatedError,
    UnsupportedFormatError,
)


def refuse(data, expected=None):
    """Decode; give the error, and check that it came in time and cost no memory."""
    tracemalloc.start()
    begin = time.perf_counter()
    try:
        with pytest.raises(LcstoreError) as error:
            LCCodec().decode_frame(data, expected)
        assert not isinstance(error.value, InvalidInputError)
        assert time.perf_counter() - begin < 1
        assert tracemalloc.get_traced_memory()[1] < 256 << 20
    finally:
        tracemalloc.stop()
    return error.value


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Compile everything first, so that what is measured is decoding."""
    for data in (*SAMPLES.values(), *(frame.to_bytes() for frame in FRAMES.values())):
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


def test_a_frame_holds_what_is_expected_or_is_refused():
    assert type(refuse(SAMPLES["pack"], 299)) is CorruptionError
    assert type(refuse(SAMPLES["pack"], 301)) is CorruptionError


@pytest.mark.parametrize("quantizer", [f.EXACT, f.LINEAR, f.EXPONENT, f.LOG])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "uint8"])
def test_the_largest_claim_that_is_believed_stays_in_memory(quantizer, dtype):
    """An empty frame may claim `MAX_UNSTATED_BYTES` of values; that is all that it costs."""
    itemsize = 2 if dtype in ("float16", "bfloat16") else np.dtype(dtype).itemsize
    count = limits.MAX_UNSTATED_BYTES // itemsize
    scales = {f.EXACT: b"", f.EXPONENT: bytes(max(itemsize, 4))}.get(quantizer, bytes(3))
    data = ZERO.but(count=count, quantizer=quantizer, dtype=f.DTYPES.index(dtype), scales=scales).to_bytes()
    tracemalloc.start()
    begin = time.perf_counter()
    try:
        values = LCCodec().decode_frame(data)
        assert values.size == count
        assert not values[:: count // 7].any()
    except LcstoreError:
        assert dtype in ("int32", "uint8")
    finally:
        elapsed, peak = time.perf_counter() - begin, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 256 << 20
    assert elapsed < 2
    assert type(refuse(take_apart(data).but(count=count + 1).to_bytes())) is LimitError


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
        begin = time.perf_counter()
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
        assert time.perf_counter() - begin < 2, mutant.hex()


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
