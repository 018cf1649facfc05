"""Bytes as levels of the narrow coders: the planes of wider values, and values of a single byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.decode import spans
from lcstore.codec.frame import About, Frame, frame_pieces
from lcstore.coders import format as f
from lcstore.coders.entropy import Coded, encode_levels
from lcstore.coders.tables import SYMBOLS, CodeTable
from lcstore.errors import CorruptionError
from lcstore.kernels import huffman

BYTE: Final = np.dtype(np.uint8)
#: Bytes are coded only where that saves this part of them; the rest is copied.
MUST_SAVE: Final = 0.02
#: Bytes that are looked at before they are coded.
_SAMPLE = 1 << 18


def about_lossless(count: int, dtype: np.dtype[Any], parameter: int = 0) -> About:
    """Return what a lossless frame says besides its levels."""
    return {
        "count": count,
        "dtype": dtype,
        "quantizer": f.LOSSLESS,
        "scales": b"",
        "block": f.BLOCK,
        "parameter": parameter,
    }


def raw(array: Array) -> Coded:
    """Return an array as its bytes."""
    return Coded(f.RAW, payload=[array.view(np.uint8).data])


def frame_of_bytes(plane: Array) -> Sequence[bytes | memoryview]:
    """Return the frame of ``uint8[n]``, in pieces."""
    coded, parameter = encode_bytes(plane)
    return frame_pieces(coded, **about_lossless(plane.size, plane.dtype, parameter))


def encode_bytes(plane: Array) -> tuple[Coded, int]:
    """Code ``uint8[n]``; give also what they are xor-ed with."""
    if plane.size > 4 * _SAMPLE and not _worth_it(plane[:: plane.size // _SAMPLE]):
        return raw(plane), 0
    counts = count_bytes(plane)
    used = np.flatnonzero(counts)
    if used.size == 1:
        return Coded(f.ZERO), int(used[0])
    turn = _turn(counts)
    levels = (plane ^ np.uint8(turn)).view(np.int8)
    escapes = np.full(int(counts[turn ^ 0x80]), -128, np.int64)
    coded = encode_levels(levels, escapes)
    if coded is None or size_of(coded) > (1 - MUST_SAVE) * plane.size:
        return raw(plane), 0
    return coded, turn


def size_of(coded: Coded) -> int:
    """Return the bytes that coded levels take in a frame, its header left out."""
    return len(coded.table) + len(coded.directory) + sum(map(len, coded.payload))


def _turn(counts: Array) -> int:
    """Choose the byte that becomes level 0: the commonest, unless that makes a common one the escape."""
    common = int(np.argmax(counts))
    return common if 64 * counts[common ^ 0x80] <= counts.sum() else int(np.argmin(counts)) ^ 0x80


def _worth_it(sample: Array) -> bool:
    counts = count_bytes(np.ascontiguousarray(sample))
    return CodeTable.from_counts(counts).bits(counts) < 8 * sample.size * (1 - MUST_SAVE)


def count_bytes(plane: Array) -> Array:
    """Count how often each byte occurs: ``int64[256]``."""
    counts = np.zeros(SYMBOLS, np.int64)
    huffman.histogram(plane, counts)
    return counts


def decode_bytes(frame: Frame) -> Array:
    """Return the bytes of a lossless frame of them, or of a raw one.

    Raises
    ------
    CorruptionError
        They do not decode.
    """
    if frame.coder == f.RAW:
        return np.frombuffer(frame.payload, np.uint8)
    out = np.zeros(frame.count, np.int8)
    for span in spans(frame):
        if span.levels.dtype != np.int8:
            raise CorruptionError("a plane of bytes cannot be of the wide coder")
        part = out[span.start : span.start + span.levels.size]
        part[:] = span.levels
        if span.values.size and not -128 <= span.values.min() <= span.values.max() <= 127:
            raise CorruptionError("an escape in a plane of bytes is not a byte")
        part[span.places] = span.values
    plane = out.view(np.uint8)
    return np.bitwise_xor(plane, np.uint8(frame.parameter), out=plane)


def parsed_bytes(frame: Frame) -> Array:
    """Return what a frame within another holds, which has to be one of bytes.

    Raises
    ------
    CorruptionError
        It is not, or does not decode.
    """
    if frame.dtype != BYTE or frame.quantizer != f.LOSSLESS or frame.coder in f.COMPOSITE:
        raise CorruptionError("a part of the frame is not one of bytes")
    return decode_bytes(frame)
