"""A frame's bytes: built in one piece, and parsed and validated completely before anything is allocated."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, NotRequired, TypedDict, Unpack

import numpy as np

from lcstore import limits
from lcstore.arrays import Array, Buffer
from lcstore.coders import format as f
from lcstore.coders.checksum import checksum, joined
from lcstore.coders.entropy import Coded
from lcstore.coders.small import Small
from lcstore.coders.tables import CodeTable
from lcstore.dtypes import dtype_from_name, dtype_name
from lcstore.errors import CorruptionError, LimitError, TruncatedError, UnsupportedFormatError
from lcstore.frames.scales import pack_scales


def word_size(dtype: np.dtype[Any]) -> int:
    """Return the bytes of one real number of `dtype`: a complex one is two of them."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


@dataclass(frozen=True)
class Frame:
    """A validated frame; sections are views of the bytes it was parsed from.

    `proved` says that these were known to be what was written: so are the frames that lie in it.
    """

    count: int
    dtype: np.dtype[Any]
    quantizer: int
    coder: int
    bits: int
    per: int
    streams: int
    block: int
    segment: int
    parameter: int
    scales: memoryview
    table: CodeTable | None
    directory: Array
    payload: memoryview
    proved: bool = False
    features: int = 0

    @property
    def blocks(self) -> int:
        """Number of blocks, the last of which may be short."""
        return -(-self.count // (1 << self.block))

    @property
    def parts(self) -> list[memoryview]:
        """The bytes of the frames within, where the directory has their lengths."""
        ends = np.cumsum(self.directory).tolist()
        return [self.payload[a:b] for a, b in zip([0, *ends[:-1]], ends, strict=True)]


class About(TypedDict):
    """What a frame says besides its levels.

    Elements; dtype that they decode to; how levels stand for values; the scales section; log2 of the block,
    unless that is `f.BLOCK`; the quantizer's parameter, unless that is 0.
    """

    count: int
    dtype: np.dtype[Any]
    quantizer: int
    scales: bytes
    block: NotRequired[int]
    parameter: NotRequired[int]


class Framed(NamedTuple):
    """A frame that was made, and the levels in it where the narrow coders took them."""

    data: bytes
    small: Small | None


def framed(coded: Coded, **about: Unpack[About]) -> Framed:
    """Build a frame, and keep what is in it."""
    return Framed(build_frame(coded, **about), coded.small)


def build_frame(coded: Coded, **about: Unpack[About]) -> bytes:
    """Put a frame together."""
    return b"".join(frame_pieces(coded, **about))


def in_parts(coder: int, frames: Sequence[Sequence[Buffer]]) -> Coded:
    """Return what a frame that is made of others is coded as; `Frame.parts` takes it apart."""
    lengths = np.array([sum(map(len, frame)) for frame in frames], "<u8")
    return Coded(coder, directory=lengths.tobytes(), payload=[piece for frame in frames for piece in frame])


def level_pieces(coded: Coded, levels: Array) -> list[Buffer]:
    """Return the pieces of a frame of levels that stand for themselves: all step sizes are one."""
    scales = pack_scales(np.zeros(-(-levels.size >> f.BLOCK), np.int16))
    count, dtype = levels.size, levels.dtype
    return frame_pieces(coded, count=count, dtype=dtype, quantizer=f.LINEAR, scales=scales)


def frame_pieces(coded: Coded, payload_crc: int | None = None, **about: Unpack[About]) -> list[Buffer]:
    """Return a frame in pieces, for a frame that is a part of another: its bytes are copied only once.

    Where the checksum of the payload is known, its bytes are not gone over for that.
    """
    scales, dtype = about["scales"], f.DTYPES.index(dtype_name(about["dtype"]))
    nbytes = sum(map(len, coded.payload))
    header = f.HEADER.pack(
        *(f.MAGIC, f.VERSION, 0, about["count"], dtype, about["quantizer"]),
        *(coded.coder, coded.bits, coded.per, coded.streams, about.get("block", f.BLOCK), coded.segment),
        *(about.get("parameter", 0), 0, coded.features),
        *(len(scales), len(coded.table), len(coded.directory), nbytes),
    )
    before = [header[f.CHECKED_FROM :], scales, coded.table, coded.directory]
    crc = checksum(before)
    crc = checksum(coded.payload, crc) if payload_crc is None else joined(crc, payload_crc, nbytes)
    return [header[:4], struct.pack("<I", crc), *before, *coded.payload]


def checksum_of(pieces: Sequence[Buffer]) -> int:
    """Return the checksum of all bytes of a frame that is in pieces, from the one that it has in itself."""
    magic, crc, *rest = pieces
    return joined(checksum([magic, crc]), int.from_bytes(crc, "little"), sum(map(len, rest)))


def parse_frame(
    data: Buffer,
    *,
    expected: int | None = None,
    shorter: bool = False,
    room: int | None = None,
    proved: bool = False,
) -> Frame:
    """Parse and validate a frame.

    Parameters
    ----------
    data
        The frame, exactly.
    expected
        Elements that it must hold. Without it, a frame that claims far more than its bytes can plausibly
        say is refused.
    shorter
        It may hold fewer.
    room
        Bytes that its values have, for a caller that cannot say how many elements they are.
    proved
        These are the bytes that were written, as a hash of them says: their checksum is not computed again.

    Raises
    ------
    TruncatedError, CorruptionError
        The bytes are not a frame as it was written.
    UnsupportedFormatError
        They may be one of a newer version.
    LimitError
        It claims more elements than this process is ready to hold.
    """
    view = memoryview(data).cast("B")
    if len(view) < f.HEADER.size:
        raise TruncatedError(f"a frame has at least {f.HEADER.size} bytes, not {len(view)}")
    (magic, version, crc, count, *rest) = f.HEADER.unpack_from(view)
    (dtype_code, quantizer, coder, bits, per, streams, block, segment, parameter, *rest) = rest
    (reserved, features, scale_bytes, table_bytes, directory_bytes, payload_bytes) = rest
    if magic != f.MAGIC:
        raise CorruptionError("these bytes are not a frame: they do not begin with its magic")
    if version != f.VERSION:
        raise UnsupportedFormatError(f"frame version {version} is not known to this lcstore: upgrade lcstore")
    size = f.HEADER.size + scale_bytes + table_bytes + directory_bytes + payload_bytes
    if len(view) < size:
        raise TruncatedError(f"the frame says {size} bytes, there are {len(view)}")
    if len(view) > size:
        raise CorruptionError(f"the frame says {size} bytes, there are {len(view)}")
    if not proved and checksum([view[f.CHECKED_FROM :]]) != crc:
        raise CorruptionError("the frame's checksum does not match its bytes")
    if features & ~f.RELATIVE:
        raise UnsupportedFormatError("the frame needs features that are not known: upgrade lcstore")
    if reserved or dtype_code >= len(f.DTYPES):
        raise UnsupportedFormatError("the frame's header is of a newer lcstore: upgrade lcstore")
    dtype = dtype_from_name(f.DTYPES[dtype_code])
    if expected is None and room is not None:
        expected = room // dtype.itemsize
    _check_count(count, expected, shorter, dtype.itemsize, len(view))
    scales, sections = _cut(view[f.HEADER.size :], scale_bytes)
    table, sections = _cut(sections, table_bytes)
    directory, payload = _cut(sections, directory_bytes)
    frame = Frame(
        *(count, dtype, quantizer, coder, bits, per, streams, block, segment, parameter, scales),
        CodeTable.from_bytes(table) if coder in f.CODED else None,
        _directory(directory, 8 if coder in f.COMPOSITE else 2),
        payload,
        proved,
        features,
    )
    _check_shape(frame, table_bytes)
    return frame


def _cut(view: memoryview, size: int) -> tuple[memoryview, memoryview]:
    return view[:size], view[size:]


def _directory(data: memoryview, width: int) -> Array:
    if len(data) % width:
        raise CorruptionError("the frame's directory has an odd length")
    return np.frombuffer(data, f"<u{width}").copy()  # kernels are compiled for aligned arrays


def _check_count(count: int, expected: int | None, shorter: bool, itemsize: int, size: int) -> None:
    limits.check(count, limits.MAX_FRAME_ELEMENTS, "the frame's element count")
    if expected is not None:
        if count > expected or (count < expected and not shorter):
            raise CorruptionError(f"the frame holds {count} elements instead of {expected}")
        return
    claimed = count * itemsize
    if claimed > limits.MAX_UNSTATED_BYTES and claimed > size * limits.MAX_UNSTATED_EXPANSION:
        raise LimitError(f"{size} bytes of frame claim {claimed} bytes of values: state how many you expect")


def _check_shape(frame: Frame, table_bytes: int) -> None:
    """Check that coder, parameters, directory and payload fit each other."""
    quantized = frame.quantizer != f.LOSSLESS
    if frame.quantizer not in f.QUANTIZERS:
        raise UnsupportedFormatError(f"quantizer {frame.quantizer} is not known: upgrade lcstore")
    if frame.coder not in (f.ZERO, *f.CODED, *f.COMPOSITE, f.RAW):
        raise UnsupportedFormatError(f"coder {frame.coder} is not known: upgrade lcstore")
    if not f.MIN_BLOCK <= frame.block <= f.WIDE_SEGMENT:
        raise CorruptionError(f"the frame's blocks of 2**{frame.block} elements are not allowed")
    if frame.features and not (quantized and frame.coder in f.NARROW):
        raise CorruptionError("the frame's levels cannot have relative signs")
    if frame.coder != f.PACK and (frame.bits, frame.per, frame.streams) != (0, 0, 1):
        raise CorruptionError("the frame's coder takes no packing")
    if frame.segment != (f.WIDE_SEGMENT if frame.coder == f.WIDE else f.SEGMENT):
        raise CorruptionError(f"the frame's segments of 2**{frame.segment} elements are not allowed")
    if not quantized and len(frame.scales):
        raise CorruptionError("a lossless frame has scales that it must not have")
    if frame.quantizer == f.PREDICTED:
        _check_predicted(frame, table_bytes)
        return
    if frame.coder in (*f.COMPOSITE, f.RAW):
        _check_lossless(frame, quantized, table_bytes)
        return
    if frame.coder == f.ZERO:
        if table_bytes or frame.directory.size or len(frame.payload):
            raise CorruptionError("a frame of zeros has sections that it must not have")
        return
    if frame.coder == f.PACK and ((frame.bits, frame.per) not in f.PACKINGS or frame.streams not in (1, 4)):
        raise CorruptionError("the frame's packing is not allowed")
    segments = -(-frame.count // (1 << frame.segment))
    if frame.directory.size != segments * (frame.streams + 1):
        raise CorruptionError(f"the frame's directory does not fit {segments} segments")
    if int(frame.directory.sum(dtype=np.int64)) != len(frame.payload):
        raise CorruptionError("the frame's directory does not add up to its payload")


def _check_lossless(frame: Frame, quantized: bool, table_bytes: int) -> None:
    if quantized or table_bytes:
        raise CorruptionError("a lossless frame has sections that it must not have")
    if frame.coder == f.RAW:
        if frame.directory.size or len(frame.payload) != frame.count * frame.dtype.itemsize:
            raise CorruptionError("a raw frame's payload does not fit its elements")
        return
    if frame.coder == f.GAPS:
        _check_gaps(frame)
        return
    if frame.coder == f.KINDS:
        _check_kinds(frame)
    elif frame.parameter not in (0, 1) or frame.directory.size != word_size(frame.dtype) or not frame.count:
        raise CorruptionError("the frame's planes are not allowed")
    _check_parts(frame)


def _check_kinds(frame: Frame) -> None:
    if frame.dtype.kind not in "iu" or frame.directory.size not in (1, 2, 3) or not frame.count:
        raise CorruptionError("the frame's kinds are not allowed")
    if frame.parameter >= 8 * frame.dtype.itemsize:
        raise CorruptionError("the frame's integers are divided by more than they can be")


def _check_gaps(frame: Frame) -> None:
    runs = frame.directory.tolist()
    if frame.parameter or not runs or len(runs) % 2 or sum(runs) > frame.count:
        raise CorruptionError("the frame's gaps do not fit its elements")
    if 0 in runs[1:]:
        raise CorruptionError("the frame has a gap or a run of no elements")


def _check_predicted(frame: Frame, table_bytes: int) -> None:
    if frame.coder != f.PLANES or table_bytes or frame.directory.size not in (1, 2) or not frame.count:
        raise CorruptionError("a frame of a grid has sections that it must not have")
    _check_parts(frame)


def _check_parts(frame: Frame) -> None:
    if sum(frame.directory.tolist()) != len(frame.payload):
        raise CorruptionError("the frame's parts do not add up to its payload")
