"""Lossless frames: byte planes, each coded by itself if that saves something, or integers by their kinds."""

from __future__ import annotations

import struct

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.bykind import count_kinds, decode_kinds, encode_kinds
from lcstore.codec.bytelevels import (
    MUST_SAVE,
    about_lossless,
    count_bytes,
    decode_bytes,
    encode_bytes,
    frame_of_bytes,
    parsed_bytes,
    raw,
    size_of,
)
from lcstore.codec.frame import Frame, build_frame, parse_frame, word_size
from lcstore.coders import format as f
from lcstore.coders.entropy import Coded, spread_pieces
from lcstore.coders.momentary import momentary
from lcstore.errors import CorruptionError
from lcstore.kernels import planes

#: Integers are tried as kinds and levels from here on: fewer are no longer than the headers of these.
_KINDS_FROM = 64
#: Frames within one of kinds, most often.
_KINDS_PARTS = 2
#: Pieces of a sample, and elements of each.
_SAMPLE = 8, 1 << 10


def encode_lossless(array: Array) -> bytes:
    """Code `array` (contiguous, one dimension) so that every bit comes back."""
    words = _words(array)
    if not words.size or not words.any():
        return _frame(Coded(f.ZERO), array)
    if words.itemsize == 1:
        coded, parameter = encode_bytes(words)
        return _frame(coded, array, parameter)
    if array.nbytes <= words.itemsize * f.HEADER.size:  # planes have headers of their own
        return _frame(raw(array), array)
    coded, parameter = _encode_kinds(array) or _encode_planes(array)
    return _frame(raw(array), array) if size_of(coded) >= array.nbytes else _frame(coded, array, parameter)


def sample_of(array: Array) -> Array:
    """Return a copy of what tells how well an array can be coded: pieces from all over it, or all of it."""
    return np.array(spread_pieces(array, *_SAMPLE))


def count_planes(sample: Array) -> float:
    """Return about how many bits the byte planes of an array take."""
    bits = 0.0
    for plane in _split(np.ascontiguousarray(sample)):
        counts = count_bytes(plane)
        used = counts[counts > 0]
        bits += float(used @ np.log2(plane.size / used))
    return bits


def decode_lossless(frame: Frame) -> Array:
    """Return the array of a lossless frame, in one dimension.

    Raises
    ------
    CorruptionError
        A part of it does not decode.
    """
    if frame.coder == f.ZERO and frame.parameter == 0:
        return np.zeros(frame.count, frame.dtype)
    if frame.coder == f.KINDS:
        return decode_kinds(frame)
    if frame.coder != f.PLANES:
        if frame.coder != f.RAW and frame.dtype.itemsize != 1:
            raise CorruptionError("a lossless frame of wide values must be raw, or of planes or kinds")
        data = decode_bytes(frame)
        # Raw bytes lie in the frame: whoever gave it may write over them.
        return (data.copy() if frame.coder == f.RAW else data).view(frame.dtype)
    size = frame.directory.size
    out = np.empty(frame.count, frame.dtype)
    words = out.view(f"u{size}")
    at = 0
    for index, length in enumerate(frame.directory.tolist()):
        plane = parse_frame(frame.payload[at : at + length], expected=words.size)
        planes.join_plane(parsed_bytes(plane), index, words)
        at += length
    if frame.parameter:
        planes.turn_back(words)
    return out


def _words(array: Array) -> Array:
    return array.view(f"u{word_size(array.dtype)}")


def _signed(array: Array) -> Array | None:
    """Return integers of two bytes and more as signed ones; None for all else."""
    wide = array.dtype.kind in "iu" and array.itemsize > 1
    return array.view(f"i{array.itemsize}") if wide else None


def _turned(array: Array) -> int:
    return int(array.dtype.kind not in "iub")


def _frame(coded: Coded, array: Array, parameter: int = 0) -> bytes:
    return build_frame(coded, **about_lossless(array.size, array.dtype, parameter))


def _encode_kinds(array: Array) -> tuple[Coded, int] | None:
    """Code integers by their kinds, where a sample says that planes would take more."""
    signed = _signed(array)
    if signed is None or signed.size < _KINDS_FROM:
        return None
    sample = sample_of(signed)
    share, more = signed.size / sample.size, (signed.itemsize - _KINDS_PARTS) * 8 * f.HEADER.size
    if share * count_kinds(sample) > (1 - MUST_SAVE) * share * count_planes(sample) + more:
        return None
    return encode_kinds(signed)


def _encode_planes(array: Array) -> tuple[Coded, int]:
    turn, split = _turned(array), _split(array)
    frames = [frame_of_bytes(plane) for plane in split]
    sizes = [sum(map(len, frame)) for frame in frames]
    directory = struct.pack(f"<{len(sizes)}Q", *sizes)
    return Coded(f.PLANES, directory=directory, payload=[piece for frame in frames for piece in frame]), turn


def _split(array: Array) -> Array:
    """Return the byte planes of an array, the least significant byte first."""
    words = _words(array)
    split = momentary(words.itemsize * words.size, np.uint8).reshape(words.itemsize, words.size)
    planes.split_planes(words, _turned(array), split)
    return split
