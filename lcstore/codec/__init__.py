"""One chunk of values to one self-contained frame of bytes, and back.

Takes arrays (or levels that the track has made) and gives frames; `LCCodec` is the public face, usable as a
numcodecs codec, a Zarr v2 compressor and a Zarr v3 serializer with no store around it.
Knows every quantizer; the bytes of a frame are those of `lcstore.frames`. Never knows steps, keys or where
bytes lie.
"""

from lcstore.codec.lc import LCCodec

__all__ = ["LCCodec"]
