"""Frames of grids that nobody wrote in good faith. Each must be refused."""

from __future__ import annotations

import struct

import numpy as np
from frame_builder import samples, take_apart

from lcstore.codec import LCCodec
from lcstore.coders import format as f

SAMPLES = samples()
#: 10 by 30 values, two of which are special; differences, and interpolated.
SUMS, CUBIC = (take_apart(SAMPLES[name]) for name in ("predicted", "interpolated"))
LEVELS, KINDS = (
    SUMS.payload[: SUMS.parts()[0]],
    SUMS.payload[SUMS.parts()[0] :],
)
PATTERNS = np.array([np.inf, np.nan], np.float32).tobytes()


def grid(
    shape=(10, 30), orders=(1, 1), exponent=-4, cubic=0, axes=None, special=2, patterns=PATTERNS, rest=b""
):
    """Write the section that says what the grid is."""
    axes = len(shape) if axes is None else axes
    lengths = struct.pack(f"<{len(shape)}Q", *shape)
    return struct.pack("<hBBB", exponent, cubic, axes, special) + lengths + bytes(orders) + patterns + rest


def parts(*frames):
    """Put a grid together from other parts."""
    sizes = struct.pack(f"<{len(frames)}Q", *map(len, frames))
    return SUMS.but(directory=sizes, payload=b"".join(frames))


def levels(count, dtype="int32", quantizer=f.LINEAR):
    """Give levels of zero."""
    return take_apart(LCCodec("linear").encode(np.zeros(64, np.int32))).but(
        count=count, dtype=f.DTYPES.index(dtype), quantizer=quantizer
    )


def kinds(*values):
    """Give what 300 elements are."""
    changes = np.zeros(300, np.uint8)
    changes[: len(values)] = values
    return LCCodec("lossless").encode(changes)


PLAIN = SUMS.but(scales=grid(special=0, patterns=b""), directory=b"", payload=b"")


def plain(frame, **fields):
    """Give a grid without special values around a frame of levels."""
    data = frame.to_bytes()
    return PLAIN.but(directory=struct.pack("<Q", len(data)), payload=data).but(**fields)


GRIDS = {
    "no grid": SUMS.but(scales=b""),
    "half a grid": SUMS.but(scales=grid()[:4]),
    "a grid less one byte": SUMS.but(scales=grid()[:-1]),
    "a grid and one byte": SUMS.but(scales=grid(rest=b"\0")),
    "an axis more than it says": SUMS.but(scales=grid(axes=1)),
    "255 axes": SUMS.but(scales=grid(axes=255)),
    "nine axes": SUMS.but(scales=grid((300, *[1] * 8), [1] * 9)),
    "axes of fewer elements": SUMS.but(scales=grid((10, 29))),
    "axes whose product wraps": SUMS.but(scales=grid((1 << 32, 1 << 32, 300), (1, 1, 1))),
    "an axis of nothing": SUMS.but(scales=grid((0, 30))),
    "an axis of 2^64 - 1": SUMS.but(scales=grid(((1 << 64) - 1, 30))),
    "differences of order 4": SUMS.but(scales=grid(orders=(4, 1))),
    "differences of order 255": SUMS.but(scales=grid(orders=(0, 255))),
    "nine differences": SUMS.but(scales=grid((10, 5, 6), (3, 3, 3))),
    "differences between points": SUMS.but(scales=grid(cubic=1)),
    "a third way to predict": SUMS.but(scales=grid(cubic=2)),
    "points along four axes": SUMS.but(scales=grid((5, 2, 5, 6), (0, 0, 0, 0), cubic=1)),
    "points along no axis": SUMS.but(scales=grid((), (), cubic=1)),
    "a step of 2^-1023": SUMS.but(scales=grid(exponent=-1023)),
    "a step of 2^1001": SUMS.but(scales=grid(exponent=1001)),
    "integers in a grid": SUMS.but(dtype=f.DTYPES.index("int32")),
    "complex numbers in a grid": SUMS.but(dtype=f.DTYPES.index("complex64"), scales=grid(patterns=bytes(16))),
    "a special value less": SUMS.but(scales=grid(special=1)),
    "no special values": SUMS.but(scales=grid(special=0, patterns=b"")),
    "a special value that there is not": SUMS.but(scales=grid(special=1, patterns=PATTERNS[:4])),
    "special values without kinds": SUMS.but(directory=SUMS.directory[:8], payload=LEVELS),
    "three parts": parts(LEVELS, KINDS, KINDS),
    "no parts": SUMS.but(directory=b"", payload=b""),
    "parts in the other order": parts(KINDS, LEVELS),
    "parts with a gap": SUMS.but(payload=SUMS.payload + b"\0"),
    "parts whose lengths wrap": SUMS.but(directory=struct.pack("<2Q", (1 << 64) - 8, len(SUMS.payload) + 8)),
    "half a length of a part": SUMS.but(directory=SUMS.directory[:12]),
    "kinds of one element less": parts(LEVELS, LCCodec("lossless").encode(np.zeros(299, np.uint8))),
    "kinds that are floats": parts(LEVELS, LCCodec("lossless").encode(np.zeros(300, np.float32))),
    "kinds past the last": parts(levels(0).to_bytes(), kinds(3)),
    "levels of one element more": parts(levels(299).to_bytes(), KINDS),
    "levels of one element less": parts(levels(297).to_bytes(), KINDS),
    "levels of 2^40": parts(levels(1 << 40).to_bytes(), KINDS),
    "levels that are wider than the values": plain(levels(300, "int64")),
    "levels that are floats": plain(levels(300, "float32")),
    "levels without loss": plain(levels(300, quantizer=f.LOSSLESS).but(scales=b"")),
    "levels in steps of a fraction": plain(levels(300).but(parameter=1)),
    "a grid of grids": plain(SUMS.but(dtype=f.DTYPES.index("float32"))),
    "levels with a broken checksum": parts(LEVELS[:-1] + bytes([LEVELS[-1] ^ 1]), KINDS),
    "a grid without a coder": SUMS.but(coder=f.ZERO, directory=b"", payload=b""),
    "a raw grid": SUMS.but(coder=f.RAW, directory=b"", payload=bytes(1200)),
    "a packed grid": SUMS.but(coder=f.PACK, bits=2, per=4),
    "a grid with a table": SUMS.but(table=b"\x11"),
    "a grid of nothing": plain(levels(0), count=0, scales=grid((), (), special=0, patterns=b"")),
}
