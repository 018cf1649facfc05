"""Lossless frames: byte planes, each coded by itself if that saves something, or integers by their kinds.

What lies between long gaps is a frame of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.coders import format as f
from lcstore.coders.checksum import joined
from lcstore.coders.entropy import Coded, spread_pieces
from lcstore.coders.scratch import scratch_array
from lcstore.errors import CorruptionError
from lcstore.frames.bykind import count_kinds, decode_kinds, encode_kinds
from lcstore.frames.bytelevels import (
    MUST_SAVE,
    Plane,
    about_lossless,
    count_bytes,
    encode_bytes,
    inner_bytes,
    raw,
    size_of,
)
from lcstore.frames.decode import SPAN, Room
from lcstore.frames.frame import (
    About,
    Frame,
    build_frame,
    checksum_of,
    frame_pieces,
    parse_frame,
    word_size,
)
from lcstore.frames.gaps import inner_frame, with_gaps, without_gaps
from lcstore.frames.pieces import Pieces
from lcstore.kernels import planes

#: Integers are tried as kinds and levels from here on: fewer are no longer than the headers of these.
_KINDS_FROM = 64
#: Frames within one of kinds, most often.
_KINDS_PARTS = 2
#: Bytes are coded so where at most this part of them is not zero: levels take four times as much memory.
_FEW_BYTES = 1 / 4
#: Pieces of a sample, and elements of each.
_SAMPLE = 8, 1 << 10


def encode_lossless(values: Pieces) -> Buffer:
    """Code values so that every bit of them comes back.

    Each plane is spread to where the frame has it if all before it are stored as they are, which is the rule:
    then nothing is copied but what is coded.
    """
    spread = without_gaps(values)
    if spread is not None:
        coded = Coded(f.GAPS, directory=spread[0], payload=[encode_lossless(spread[1])])
        return build_frame(coded, **_about(values, 0))
    dtype, width = values.dtype, word_size(values.dtype)
    count = values.size * dtype.itemsize // width
    if not values.any_bit():
        return build_frame(Coded(f.ZERO), **_about(values, 0))
    if width > 1 and count <= f.HEADER.size:  # planes have headers of their own
        return build_frame(raw(values.whole), **_about(values, 0))
    by_kind = _encode_kinds(values)
    if by_kind is not None:
        return by_kind
    turn = int(dtype.kind not in "iub")
    front = f.HEADER.size + (struct.calcsize(f"<{width}Q") if width > 1 else 0)
    header = f.HEADER.size if width > 1 else 0
    room = scratch_array(front + width * (header + count), np.uint8)
    places = front + header + np.arange(width) * (header + count)
    for at, part in values.blocks():
        planes.split_planes(_words(part), turn if width > 1 else 0, room, places + at * count // values.size)
    if width == 1:
        coded, parameter = encode_bytes(room[front:])
        end = _lay(room, 0, frame_pieces(coded, **_about(values, parameter)))
        return room[:end].data
    sizes, end, crc = [], front, 0
    for place in places.tolist():
        plane = room[place : place + count]
        coded, parameter = encode_bytes(plane)
        pieces = frame_pieces(coded, **_about(plane, parameter))
        begin, end = end, _lay(room, end, pieces)
        sizes.append(end - begin)
        crc = joined(crc, checksum_of(pieces), sizes[-1])
    directory = struct.pack(f"<{width}Q", *sizes)
    coded = Coded(f.PLANES, directory=directory, payload=[room[front:end].data])
    _lay(room, 0, frame_pieces(coded, crc, **_about(values, turn)))
    made = room[:end].data
    shorter = end - f.HEADER.size < count * width
    return made if shorter else build_frame(raw(decode_lossless(parse_frame(made))), **_about(values, 0))


def _lay(room: Array, at: int, pieces: Iterable[Buffer]) -> int:
    """Write the pieces of a frame one behind another, but for what lies there; return where they end."""
    for piece in pieces:
        new = np.frombuffer(piece, np.uint8)
        here = room[at : at + new.size]
        if here.ctypes.data != new.ctypes.data:
            here[:] = new
        at += new.size
    return at


def decode_lossless(frame: Frame, out: Array | None = None) -> Array:
    """Return the elements of a lossless frame, in `out`; `CorruptionError` if a plane does not decode."""
    out = np.empty(frame.count, frame.dtype) if out is None else out
    read = LosslessReader(frame).read
    for at in range(0, out.size, SPAN):
        read(at, out[at : at + SPAN])
    return out


class LosslessReader:
    """Decodes a lossless frame, a span of it at a time, into memory that is given.

    Parameters
    ----------
    frame
        The frame. What it was parsed from is kept.
    room
        What decoders use meanwhile; of its own if None.

    Raises
    ------
    CorruptionError
        A plane is none.
    """

    def __init__(self, frame: Frame, room: Room | None = None) -> None:
        room = room or Room()
        self._turned = False
        self._room = room
        self._whole = decode_kinds(frame) if frame.coder == f.KINDS else None
        if frame.coder == f.GAPS:
            self._whole = with_gaps(frame, decode_lossless(inner_frame(frame)))
        if self._whole is not None:
            return
        if frame.coder != f.PLANES:
            wide = frame.dtype.itemsize != 1
            zero = frame.coder == f.ZERO and frame.parameter == 0
            if wide and not zero and frame.coder != f.RAW:
                raise CorruptionError("a lossless frame of wide values must be raw, or of planes or kinds")
            self._width = 1
            self._planes = [Plane(frame, room)]
            return
        self._width, self._turned = frame.directory.size, bool(frame.parameter)
        words = frame.count * frame.dtype.itemsize // self._width
        inner = [parse_frame(part, expected=words, proved=frame.proved) for part in frame.parts]
        self._planes = [inner_bytes(plane, room) for plane in inner]

    def read(self, low: int, out: Array) -> None:
        """Fill `out`, contiguous and no longer than a span, with elements from `low` on: a segment's first.

        Raises
        ------
        CorruptionError
            A plane does not decode.
        """
        if self._whole is not None:
            out[:] = self._whole[low : low + out.size]
            return
        words = out.view(f"u{self._width}")
        low = low * (out.dtype.itemsize // self._width)
        for begin in range(0, words.size, SPAN):
            part = words[begin : begin + SPAN]
            if self._width == 1:
                part[:] = self._planes[0].bytes(low + begin, part.size)
                continue
            if self._in_one_pass:
                four = [plane.bytes(low + begin, part.size)[:] for plane in self._planes]
                for one in four:  # as those are that are stored as they are: no other kernel is compiled
                    one.flags.writeable = False
                planes.join_four(four[0], four[1], four[2], four[3], part)
                continue
            for index, plane in enumerate(self._planes):
                planes.join_plane(plane.bytes(low + begin, part.size), index, part)
            if self._turned:
                planes.turn_back(part)

    @property
    def _in_one_pass(self) -> bool:
        """Whether planes can be put together at once: floats of four bytes, of which the top alone is coded.

        What is decoded is valid until the next plane is.
        """
        return self._turned and len(self._planes) == 4 and all(plane.is_raw for plane in self._planes[:3])


def sample_of(array: Array) -> Array:
    """Return a copy of what tells how well an array can be coded: pieces from all over it, or all of it."""
    return np.array(spread_pieces(array, *_SAMPLE))


def count_planes(sample: Array) -> float:
    """Return about how many bits the byte planes of an array take."""
    words = _words(sample)
    split = np.empty(words.nbytes, np.uint8)
    places = np.arange(words.itemsize) * words.size
    planes.split_planes(words, int(sample.dtype.kind not in "iub"), split, places)
    bits = 0.0
    for plane in split.reshape(words.itemsize, words.size):
        counts = count_bytes(plane)
        used = counts[counts > 0]
        bits += float(used @ np.log2(plane.size / used))
    return bits


def _words(array: Array) -> Array:
    return array.view(f"u{word_size(array.dtype)}")


def _about(array: Array | Pieces, parameter: int) -> About:
    return about_lossless(array.size, array.dtype, parameter)


def _encode_kinds(values: Pieces) -> bytes | None:
    """Code integers by their kinds, where a sample says that planes would take more."""
    if values.dtype.kind not in "iu" or values.size < _KINDS_FROM:
        return None
    words = values.whole.view(f"i{values.dtype.itemsize}")
    if words.itemsize == 1:
        if words.size < 1 << f.SEGMENT or np.mean(spread_pieces(words) != 0) > _FEW_BYTES:
            return None
    else:
        sample, more = sample_of(words), (words.itemsize - _KINDS_PARTS) * 8 * f.HEADER.size
        share = words.size / sample.size
        if share * count_kinds(sample) > (1 - MUST_SAVE) * share * count_planes(sample) + more:
            return None
    coded, parameter = encode_kinds(words)
    return build_frame(coded, **_about(values, parameter)) if size_of(coded) < words.nbytes else None
