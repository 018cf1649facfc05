"""Lossless frames: byte planes, each coded by itself where that saves something. Any dtype, any bits."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np

from lcstore.arrays import Array, Buffer
from lcstore.codec.decode import SPAN, Levels, Room
from lcstore.codec.frame import About, Frame, build_frame, frame_pieces, parse_frame, word_size
from lcstore.codec.pieces import Pieces
from lcstore.coders import format as f
from lcstore.coders.entropy import Coded, encode_levels
from lcstore.coders.momentary import momentary
from lcstore.coders.tables import SYMBOLS, CodeTable
from lcstore.errors import CorruptionError
from lcstore.kernels import huffman, planes

_BYTE = np.dtype(np.uint8)
#: A plane is coded only where that saves this part of it; the rest is copied.
_MUST_SAVE = 0.02
#: Bytes of a plane that are looked at before it is coded.
_SAMPLE = 1 << 18


def encode_lossless(values: Pieces) -> Buffer:
    """Code values so that every bit of them comes back.

    Each plane is spread to where the frame has it if all before it are stored as they are, which is the rule:
    then nothing is copied but what is coded.
    """
    dtype, width = values.dtype, word_size(values.dtype)
    count = values.size * dtype.itemsize // width
    if not values.any_bit():
        return build_frame(Coded(f.ZERO), **_about(values, 0))
    if width > 1 and count <= f.HEADER.size:  # planes have headers of their own
        return _raw_frame(values)
    turn = int(dtype.kind not in "iub")
    front = f.HEADER.size + (struct.calcsize(f"<{width}Q") if width > 1 else 0)
    header = f.HEADER.size if width > 1 else 0
    room = momentary(front + width * (header + count), np.uint8)
    places = front + header + np.arange(width) * (header + count)
    for at, part in values.parts:
        planes.split_planes(_words(part), turn if width > 1 else 0, room, places + at * count // values.size)
    if width == 1:
        coded, parameter = _encode_plane(room[front:])
        end = _lay(room, 0, frame_pieces(coded, **_about(values, parameter)))
        return room[:end].data
    sizes, end = [], front
    for place in places.tolist():
        plane = room[place : place + count]
        coded, parameter = _encode_plane(plane)
        begin, end = end, _lay(room, end, frame_pieces(coded, **_about(plane, parameter)))
        sizes.append(end - begin)
    if end - f.HEADER.size >= count * width:
        return _raw_frame(values)
    directory = struct.pack(f"<{width}Q", *sizes)
    coded = Coded(f.PLANES, directory=directory, payload=[room[front:end].data])
    _lay(room, 0, frame_pieces(coded, **_about(values, turn)))
    return room[:end].data


def _lay(room: Array, at: int, pieces: Iterable[Buffer]) -> int:
    """Write the pieces of a frame one behind another, but for what lies there; return where they end."""
    for piece in pieces:
        new = np.frombuffer(piece, np.uint8)
        here = room[at : at + new.size]
        if here.ctypes.data != new.ctypes.data:
            here[:] = new
        at += new.size
    return at


def _raw_frame(values: Pieces) -> bytes:
    return build_frame(_raw(values.whole), **_about(values, 0))


def decode_lossless(frame: Frame, low: int = 0, high: int | None = None) -> Array:
    """Return elements ``low:high`` of a lossless frame, in one dimension.

    Raises
    ------
    CorruptionError
        A plane does not decode.
    """
    high = frame.count if high is None else high
    first = (low >> f.SEGMENT) << f.SEGMENT
    out = np.empty(max(high - first, 0), frame.dtype)
    read = LosslessReader(frame).read
    for at in range(0, out.size, SPAN):
        read(first + at, out[at : at + SPAN])
    return out[low - first :]


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
        if frame.coder != f.PLANES:
            wide = frame.dtype.itemsize != 1
            zero = frame.coder == f.ZERO and frame.parameter == 0
            if wide and not zero and frame.coder != f.RAW:
                raise CorruptionError("a lossless frame of wide values must be raw or hold planes")
            self._width = 1
            self._planes = [_Plane(frame, room)]
            return
        self._width, self._turned = frame.directory.size, bool(frame.parameter)
        words = frame.count * frame.dtype.itemsize // self._width
        self._planes, at = [], 0
        for length in frame.directory.tolist():
            plane = parse_frame(frame.payload[at : at + length], expected=words, proved=frame.proved)
            if plane.dtype != _BYTE or plane.quantizer != f.LOSSLESS or plane.coder == f.PLANES:
                raise CorruptionError("a plane of the frame is not one of bytes")
            self._planes.append(_Plane(plane, room))
            at += length

    def read(self, low: int, out: Array) -> None:
        """Fill `out`, contiguous and no longer than a span, with elements from `low` on: a segment's first.

        Raises
        ------
        CorruptionError
            A plane does not decode.
        """
        words = out.view(f"u{self._width}")
        low = low * (out.dtype.itemsize // self._width)
        for begin in range(0, words.size, SPAN):
            part = words[begin : begin + SPAN]
            if self._width == 1:
                part[:] = self._planes[0].bytes(low + begin, part.size)
                continue
            for index, plane in enumerate(self._planes):
                planes.join_plane(plane.bytes(low + begin, part.size), index, part)
            if self._turned:
                planes.turn_back(part)


class _Plane:
    """One plane of bytes: as it is stored, or decoded to the room that is given."""

    def __init__(self, frame: Frame, room: Room) -> None:
        self._raw = np.frombuffer(frame.payload, np.uint8) if frame.coder == f.RAW else None
        self._levels = Levels(frame, room)
        self._turn = np.uint8(frame.parameter)
        self._room = room

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


def _words(array: Array) -> Array:
    return array.view(f"u{word_size(array.dtype)}")


def _about(array: Array | Pieces, parameter: int) -> About:
    return {
        "count": array.size,
        "dtype": array.dtype,
        "quantizer": f.LOSSLESS,
        "scales": b"",
        "block": f.BLOCK,
        "parameter": parameter,
    }


def _raw(array: Array) -> Coded:
    return Coded(f.RAW, payload=[array.view(np.uint8).data])


def _encode_plane(plane: Array) -> tuple[Coded, int]:
    """Code bytes; give also what they are xor-ed with. They are as before where they stay raw."""
    if plane.size > 4 * _SAMPLE and not _worth_it(plane[:: plane.size // _SAMPLE]):
        return _raw(plane), 0
    counts = _count(plane)
    used = np.flatnonzero(counts)
    if used.size == 1:
        return Coded(f.ZERO), int(used[0])
    turn = _turn(counts)
    np.bitwise_xor(plane, np.uint8(turn), out=plane)
    escapes = np.full(int(counts[turn ^ 0x80]), -128, np.int64)
    coded = encode_levels(plane.view(np.int8), escapes)
    if coded is None or _size(coded) > (1 - _MUST_SAVE) * plane.size:
        np.bitwise_xor(plane, np.uint8(turn), out=plane)
        return _raw(plane), 0
    return coded, turn


def _size(coded: Coded) -> int:
    return len(coded.table) + len(coded.directory) + sum(map(len, coded.payload))


def _turn(counts: Array) -> int:
    """Choose the byte that becomes level 0: the commonest, unless that makes a common one the escape."""
    common = int(np.argmax(counts))
    return common if 64 * counts[common ^ 0x80] <= counts.sum() else int(np.argmin(counts)) ^ 0x80


def _worth_it(sample: Array) -> bool:
    counts = _count(np.ascontiguousarray(sample))
    return CodeTable.from_counts(counts).bits(counts) < 8 * sample.size * (1 - _MUST_SAVE)


def _count(plane: Array) -> Array:
    counts = np.zeros(SYMBOLS, np.int64)
    huffman.histogram(plane, counts)
    return counts
