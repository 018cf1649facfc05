"""Bytes as levels of the narrow coders: the planes of wider values, and values of a single byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.bitkernels import huffman
from lcstore.coders import format as f
from lcstore.coders.entropy import Coded, encode_levels
from lcstore.coders.tables import SYMBOLS, CodeTable
from lcstore.errors import CorruptionError
from lcstore.frames.decode import Levels, Room
from lcstore.frames.frame import About, Frame, frame_pieces

#: Bytes are coded only where that saves this part of them; the rest is copied.
MUST_SAVE: Final = 0.02
_BYTE: Final = np.dtype(np.uint8)
#: Bytes that are looked at before more than four times as many are coded.
_SAMPLE = 1 << 16


def about_lossless(count: int, dtype: np.dtype[Any], parameter: int = 0) -> About:
    """Return what a lossless frame says besides its levels."""
    quantizer = f.LOSSLESS
    return {"count": count, "dtype": dtype, "quantizer": quantizer, "scales": b"", "parameter": parameter}


def raw(array: Array) -> Coded:
    """Return an array as its bytes."""
    return Coded(f.RAW, payload=[array.view(np.uint8).data])


def frame_of_bytes(plane: Array) -> Sequence[Buffer]:
    """Return the frame of ``uint8[n]``, in pieces; they may be the bytes themselves, which may be changed."""
    coded, parameter = encode_bytes(plane)
    return frame_pieces(coded, **about_lossless(plane.size, plane.dtype, parameter))


def encode_bytes(plane: Array) -> tuple[Coded, int]:
    """Code bytes; give also what they are xor-ed with. They are as before where they stay raw."""
    large = plane.size > 4 * _SAMPLE
    # An odd stride goes over all columns of a matrix, whose rows are a power of two long as a rule.
    counts = count_bytes(np.ascontiguousarray(plane[:: plane.size // _SAMPLE | 1]) if large else plane)
    if CodeTable.from_counts(counts).bits(counts) >= 8 * counts.sum() * (1 - MUST_SAVE):
        return raw(plane), 0
    counts = count_bytes(plane) if large else counts
    used = np.flatnonzero(counts)
    if used.size == 1:
        return Coded(f.ZERO), int(used[0])
    turn = _turn(counts)
    np.bitwise_xor(plane, np.uint8(turn), out=plane)
    escapes = np.full(int(counts[turn ^ 0x80]), -128, np.int64)
    coded = encode_levels(plane.view(np.int8), escapes, singles=counts[np.arange(SYMBOLS) ^ turn])
    if coded is None or size_of(coded) > (1 - MUST_SAVE) * plane.size:
        np.bitwise_xor(plane, np.uint8(turn), out=plane)
        return raw(plane), 0
    return coded, turn


def size_of(coded: Coded) -> int:
    """Return the bytes that coded levels take in a frame, its header left out."""
    return len(coded.table) + len(coded.directory) + sum(map(len, coded.payload))


def _turn(counts: Array) -> int:
    """Choose the byte that becomes level 0: the commonest, unless that makes a common one the escape."""
    common = int(np.argmax(counts))
    return common if 64 * counts[common ^ 0x80] <= counts.sum() else int(np.argmin(counts)) ^ 0x80


def count_bytes(plane: Array) -> Array:
    """Count how often each byte occurs: ``int64[256]``."""
    counts = np.zeros(SYMBOLS, np.int64)
    huffman.histogram(plane, counts)
    return counts


class Plane:
    """One plane of bytes: as it is stored, or decoded to the room that is given."""

    def __init__(self, frame: Frame, room: Room) -> None:
        self._raw = np.frombuffer(frame.payload, np.uint8) if frame.coder == f.RAW else None
        self._levels = Levels(frame, room)
        self._turn = np.uint8(frame.parameter)
        self._room = room

    @property
    def is_raw(self) -> bool:
        """Whether it is given as it is stored."""
        return self._raw is not None

    def bytes(self, low: int, count: int) -> Array:
        """Return bytes of no more than a span; they are valid until the room is used again."""
        if self._raw is not None:
            return self._raw[low : low + count]
        found = [*self._levels.spans(low, low + count)]
        plane = found[0].levels if found else self._room.levels[:count]
        if not found:
            plane[:] = 0
        for span in found:
            if span.levels.dtype != np.int8:
                raise CorruptionError("a plane of bytes cannot be of the wide coder")
            if span.values.size and not -128 <= span.values.min() <= span.values.max() <= 127:
                raise CorruptionError("an escape in a plane of bytes is not a byte")
            plane[span.places] = span.values
        decoded = plane[:count].view(np.uint8)
        return np.bitwise_xor(decoded, self._turn, out=decoded)


def inner_bytes(frame: Frame, room: Room) -> Plane:
    """Return the bytes that a frame within another holds.

    Raises
    ------
    CorruptionError
        It is not one of bytes.
    """
    if frame.dtype != _BYTE or frame.quantizer != f.LOSSLESS or frame.coder in f.COMPOSITE:
        raise CorruptionError("a part of the frame is not one of bytes")
    return Plane(frame, room)
