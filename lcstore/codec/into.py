"""Frames to values, straight into memory that a caller has."""

from __future__ import annotations

from lcstore.arrays import Array
from lcstore.codec.decode import SPAN
from lcstore.codec.factored import FactoredFiller
from lcstore.codec.fill import make_filler, restored
from lcstore.codec.frame import Frame
from lcstore.codec.lossless import LosslessReader
from lcstore.codec.predicted import decode_predicted
from lcstore.coders import format as f


def decode_into(frame: Frame, out: Array) -> None:
    """Fill `out` with the values of a frame; it is contiguous, and of the frame's dtype and size.

    Raises
    ------
    CorruptionError
        The frame does not decode; `out` may then be filled in part.
    """
    if frame.quantizer == f.LOSSLESS:
        read = LosslessReader(frame).read
        for low in range(0, out.size, SPAN):
            read(low, out[low : low + SPAN])
    elif frame.quantizer == f.PREDICTED:
        out[:] = decode_predicted(frame)
    else:
        fill = FactoredFiller(frame) if frame.quantizer == f.FACTORED else make_filler(frame)
        restored(frame, fill, out=out)
