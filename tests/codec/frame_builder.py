"""Frames built field by field, with a checksum that is right, so that a test reaches what lies behind it."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace

import google_crc32c
import numpy as np

from lcstore.codec import LCCodec, factored
from lcstore.codec.factored import Part
from lcstore.coders import format as f
from lcstore.frames.lossless import encode_lossless
from lcstore.frames.pieces import Pieces

_FIXED = "<QBBBBBBBBBBH"


@dataclass
class RawFrame:
    """Every field of a frame. Section lengths are those of the sections unless they are stated."""

    count: int = 0
    dtype: int = f.DTYPES.index("float32")
    quantizer: int = f.LINEAR
    coder: int = f.ZERO
    bits: int = 0
    per: int = 0
    streams: int = 1
    block: int = f.BLOCK
    segment: int = f.SEGMENT
    parameter: int = 0
    reserved: int = 0
    features: int = 0
    scales: bytes = b""
    table: bytes = b""
    directory: bytes = b""
    payload: bytes = b""
    magic: bytes = f.MAGIC
    version: int = f.VERSION
    lengths: tuple[int, int, int, int] | None = None

    def to_bytes(self) -> bytes:
        sections = (self.scales, self.table, self.directory, self.payload)
        fixed = struct.pack(
            _FIXED,
            *(self.count, self.dtype, self.quantizer, self.coder, self.bits, self.per, self.streams),
            *(self.block, self.segment, self.parameter, self.reserved, self.features),
        )
        fixed += struct.pack("<IIIQ", *(self.lengths or map(len, sections)))
        body = fixed + b"".join(sections)
        return self.magic + bytes([self.version]) + struct.pack("<I", google_crc32c.value(body)) + body

    def parts(self) -> list[int]:
        """Give the lengths of the frames within."""
        return np.frombuffer(self.directory, "<u8").tolist()

    def but(self, **fields) -> RawFrame:
        return replace(self, **fields)


def encode_factored(values, parts, step, **options):
    """Give the bytes of a factored frame, or None where there is none."""
    made = factored.encode_factored(Pieces.of(values), parts, step, **options)
    return made and made.data


def take_apart(data: bytes) -> RawFrame:
    """Give the fields of a frame."""
    fields = f.HEADER.unpack_from(data)
    sections, at = [], f.HEADER.size
    for size in fields[-4:]:
        sections.append(data[at : at + size])
        at += size
    return RawFrame(*fields[3:15], *sections, magic=fields[0], version=fields[1])


def seal(data: bytes | bytearray) -> bytes:
    """Put the right checksum on a frame."""
    return bytes(data[:4]) + struct.pack("<I", google_crc32c.value(bytes(data[8:]))) + bytes(data[8:])


def nibbles(*values: int) -> bytes:
    """Write a code table from its nibbles, the low one of each byte first."""
    padded = [*values, 0] if len(values) % 2 else list(values)
    return bytes(a | b << 4 for a, b in zip(padded[::2], padded[1::2], strict=True))


def matrix(at: int, size: int, cols: int, phase: int, rows: bytes, columns: bytes, **lengths: int) -> bytes:
    """Write a matrix of a factored frame; its lengths are those of its codes unless they are stated."""
    stated = {"row_bytes": len(rows), "column_bytes": len(columns)} | lengths
    numbers = struct.pack("<4Q2I", at, size, cols, phase, stated["row_bytes"], stated["column_bytes"])
    return numbers + rows + columns


def matrices(*every: bytes, count: int | None = None) -> bytes:
    """Write the scales section of a factored frame."""
    return struct.pack("<I", len(every) if count is None else count) + b"".join(every)


def packed(section: bytes, is_sorted: int = 0) -> bytes:
    """Write the scales section of a frame whose rows may be sorted."""
    steps = np.diff(np.frombuffer(section, np.uint8), prepend=np.uint8(0))
    return bytes([is_sorted]) + LCCodec("lossless").encode(steps)


def unpacked(frame: RawFrame) -> bytes:
    """Give what `packed` was given."""
    return np.cumsum(LCCodec().decode(frame.scales[1:]), dtype=np.uint8).tobytes()


def one_code(code: int) -> bytes:
    """Write codes of rows or columns that are all the same."""
    return struct.pack("<Bh", f.SCALES_ONE, code)


#: A frame of a matrix as it was written before rows were sorted: 2**-20 in most of its 8 by 8 values.
BEFORE = bytes.fromhex("""
4c 43 46 00 08 e6 fe 56 40 00 00 00 00 00 00 00 00 04 02 00 00 01 0a 10 10 00 00 00 42 00 00 00
06 00 00 00 04 00 00 00 02 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00 00 00 00 40 00 00 00
00 00 00 00 08 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 0b 00 00 00 0b 00 00 00 02 5d 03 00
00 01 00 00 00 00 04 02 fa ff 00 00 00 20 04 00 00 00 3d 25 cd 20 5d 19 02 00 00 00 b5 01
""")


def _factored(values: np.ndarray, parts: list[Part], step: int) -> bytes:
    frame = encode_factored(values, parts, step)
    assert frame is not None
    return frame


def samples(size: int = 300) -> dict[str, bytes]:
    """Give a small frame of each coder and quantizer."""
    rng = np.random.default_rng(11)
    normal = rng.normal(size=size).astype(np.float32)
    sparse = np.where(rng.random(size) < 0.03, np.float32(3), np.float32(0)).astype(np.float32)
    one_way = np.abs(normal) * np.where(np.arange(size) < size // 2, np.float32(-1), np.float32(1))
    far = normal.copy()
    far[7] = 5e5
    squares = np.square(normal * np.float32(1e-5))
    squares[10:20], squares[100], squares[200] = 0, 3e38, 1e-42
    parts = [Part(0, 10, 10, 0), Part(20, size - 60, 17, 5), Part(size - 40, 40, 1, 0)]
    squares[size - 40 : size - 10] = 0
    bowl = np.add.outer(np.arange(10) ** 2, np.arange(size // 10) ** 2).astype(np.float32) / 8
    masked = bowl.copy()
    masked[2, 3], masked[4, 4:9] = np.inf, np.nan
    words = rng.integers(0, 1 << 10, size).astype(np.uint16)
    rare = np.where(np.tile(words, 10) % 32, 0, rng.integers(1 << 40, 1 << 60, 10 * size))
    return {
        "zero": LCCodec(step_size=1.0).encode(np.zeros(size, np.float32)),
        "pack": LCCodec(step_size=0.5, entropy="pack").encode(normal),
        "escapes": LCCodec(step_size=0.25, entropy="pack").encode(far),
        "symbol": LCCodec(step_size=0.01, entropy="symbol").encode(normal),
        "signs": LCCodec(step_size=0.5, entropy="pack").encode(one_way),
        "signs of runs": LCCodec(step_size=0.5, entropy="runs").encode(one_way),
        "runs": LCCodec(step_size=0.5, entropy="runs").encode(sparse),
        "wide": LCCodec(step_size=2.0**-20).encode(normal),
        "blocks": LCCodec(scale="block", bits=4).encode(np.concatenate((normal, *[normal * 8] * 20))),
        "exponent": LCCodec("exponent", bits=3).encode(normal),
        "log": LCCodec("log", bits=1).encode(np.abs(normal)),
        "factored": _factored(squares, parts, 16),
        "before": BEFORE,
        "fine": _factored(squares.astype(np.float64), parts, 1),
        "predicted": LCCodec(step_size=0.0625).encode(masked),
        "interpolated": LCCodec(max_error=2.0).encode(np.sin(bowl / 99) * 99),
        "integers": LCCodec().encode(words.astype(np.int32)),
        "planes": LCCodec("lossless").encode(words),
        "levels": LCCodec("lossless").encode(words.astype(np.int64)),
        "kinds": LCCodec("lossless").encode(rare),
        "far": LCCodec("lossless").encode(np.where(rare == rare.max(), np.iinfo(np.int64).min, rare)),
        "gaps": bytes(
            encode_lossless(Pieces([(80, words), (80 + 2 * size, words[:9])], 4 * size, words.dtype))
        ),
        "bytes": LCCodec("lossless").encode((words & 3).astype(np.uint8)),
        "raw": LCCodec("lossless").encode(rng.integers(0, 256, 200).astype(np.uint8)),
    }
