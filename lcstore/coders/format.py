"""The frame format, version 0: numbers shared by writer and reader. See docs/format/frame.md."""

from __future__ import annotations

import struct
from typing import Final

MAGIC: Final = b"LCF"
VERSION: Final = 0

#: magic and version, crc32c of everything behind it, elements, dtype, quantizer, coder, bits, per, streams,
#: log2 of the block, log2 of the segment, parameter, reserved, required features, bytes of scales, table and
#: directory, bytes of payload.
HEADER: Final = struct.Struct("<3sBIQBBBBBBBBBBHIIIQ")
#: The checksum covers everything from here.
CHECKED_FROM: Final = 8

# Quantizers: how levels stand for values.
LOSSLESS: Final = 0
LINEAR: Final = 1
EXPONENT: Final = 2
LOG: Final = 3
FACTORED: Final = 4
PREDICTED: Final = 5
SORTED: Final = 6
QUANTIZERS: Final = (LOSSLESS, LINEAR, EXPONENT, LOG, FACTORED, PREDICTED, SORTED)
#: Those of matrices; the first is read only.
OF_MATRICES: Final = (FACTORED, SORTED)

# Coders: how levels become bits.
ZERO: Final = 0
PACK: Final = 1
RUNS: Final = 2
WIDE: Final = 3
PLANES: Final = 4
RAW: Final = 5
KINDS: Final = 6
GAPS: Final = 7
#: The coders that have a code table and streams.
CODED: Final = (PACK, RUNS, WIDE)
#: Of these, those with escapes in a side stream: signs of levels may be relative.
NARROW: Final = (PACK, RUNS)
#: Those whose payload is made of other frames.
COMPOSITE: Final = (PLANES, KINDS, GAPS)

# Features that a frame may need, a bit each.
#: Signs of levels are relative to that of the level before in the segment, zeros left out.
RELATIVE: Final = 1

#: (bits per level, levels per symbol) of the pack coder.
PACKINGS: Final = ((2, 4), (3, 2), (4, 2), (8, 1))

#: log2 of the elements in a segment of the pack and run coders, and of the wide coder.
SEGMENT: Final = 16
WIDE_SEGMENT: Final = 12
#: log2 of the elements in a block: those that share a scale.
BLOCK: Final = 10
MIN_BLOCK: Final = 5
#: Below this many symbols a segment has one stream instead of four.
FOUR_STREAMS_FROM: Final = 4096

#: The largest scale of integers: log2 of a power of two (6 bits), and which odd number it is times (2 bits).
MOST_STEP: Final = 255

# Layouts of the scales section.
SCALES_ONE: Final = 0
SCALES_RUNS: Final = 1
SCALES_DENSE: Final = 2
SCALES_PLAIN: Final = 3

#: Dtype codes are places in this list; it is only ever added to.
DTYPES: Final = (
    *("float32", "float64", "float16", "bfloat16"),
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
    *("complex64", "complex128"),
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int4", "uint4"),
)
