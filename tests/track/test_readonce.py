"""What is stored of values that change while they are saved is what was seen of them: one reading."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from lcstore.frames.frame import parse_frame
from lcstore.frames.lossless import decode_lossless, encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.track.readonce import IN_CACHE, ReadOnce

SIZES = (1, 40, 5000, 2 * IN_CACHE + 77)
BITS = np.random.default_rng(0).integers(0, 256, 16 * SIZES[-1], np.uint8)


def few(size, dtype):
    return (np.arange(size) % 7 - 3).astype(dtype)


KINDS = {
    "normal values": lambda n: np.random.default_rng(n).standard_normal(n, np.float32),
    "bfloat16": lambda n: few(n, ml_dtypes.bfloat16),
    "few of float64": lambda n: few(n, np.float64),
    "complex64": lambda n: few(n, np.complex64) * (1 + 2j),
    "integers": lambda n: few(n, np.int64),
    "any bits": lambda n: BITS[: 8 * n].view(np.uint64),
    "any bytes": lambda n: BITS[:n],
    "true or false": lambda n: few(n, np.int8) > 0,
    "zeros": lambda n: np.zeros(n, np.float32),
    "zeros at first": lambda n: np.maximum(np.arange(n) - n // 2, 0).astype(np.float32),
}


def read(values: np.ndarray, change: bool = False):
    """Return the frame of two parts of a chunk, and what was seen of them."""
    cut = values.size // 3
    given = [(0, values[:cut]), (cut + 5, values[cut:])]
    seen = np.zeros(values.size + 9, values.dtype)
    times = np.zeros(seen.size, int)

    def see(number, low, block):
        at = given[number][0] + low
        seen[at : at + block.size] = block
        times[at : at + block.size] += 1
        if change:
            values.view(np.uint8)[:] ^= BITS[: values.nbytes]

    frame = encode_lossless(ReadOnce(given, seen.size, values.dtype, see))
    assert [*times[:cut], *times[cut + 5 : -4]] == [1] * values.size
    return frame, seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_frame_is_that_of_all_parts(kind, size):
    values = KINDS[kind](size)
    values.flags.writeable = False
    frame, seen = read(values)
    assert seen.tobytes() == np.insert(values, [size // 3] * 5 + [size] * 4, 0).tobytes()
    assert bytes(frame) == bytes(encode_lossless(Pieces.of(seen)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
def test_values_that_change_are_stored_as_they_were_seen(kind, size):
    frame, seen = read(KINDS[kind](size).copy(), change=True)
    assert decode_lossless(parse_frame(frame, expected=seen.size)).tobytes() == seen.tobytes()
