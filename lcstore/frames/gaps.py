"""Values with gaps of zeros between them: what is not in a gap is coded as if it lay side by side."""

from __future__ import annotations

from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.coders import format as f
from lcstore.errors import CorruptionError
from lcstore.frames.frame import Frame, parse_frame
from lcstore.frames.pieces import Pieces

#: Bytes of a gap that is left out: a run takes 16, and the zeros of byte planes a bit each or more.
_LEAST: Final = 256
#: One element in so many is left out at least: frames of gaps are copied, and decoded at once.
_PART: Final = 16


def without_gaps(values: Pieces) -> tuple[bytes, Pieces] | None:
    """Return the runs of values between gaps, as a frame's directory has them, and these side by side.

    None where there is too little between them.
    """
    if not (values.given and all(part.size for _, part in values.given)):
        return None
    begins = np.array([at for at, _ in values.given], np.int64)
    ends = begins + np.array([part.size for _, part in values.given], np.int64)
    gaps = np.diff(begins, prepend=0)
    gaps[1:] -= ends[:-1] - begins[:-1]
    opens = gaps * values.dtype.itemsize >= _LEAST
    opens[0] = True
    gaps[~opens] = 0
    first = np.flatnonzero(opens)
    sizes = ends[np.append(first[1:], opens.size) - 1] - begins[first]
    count = int(sizes.sum())
    if values.size - count < max(values.size // _PART, _LEAST // values.dtype.itemsize):
        return None
    runs = np.stack((gaps[first], sizes), axis=1).astype("<u8")
    return runs.tobytes(), values.moved(begins - np.cumsum(gaps), count)


def inner_frame(frame: Frame) -> Frame:
    """Return the frame of the values that lie between gaps.

    Raises
    ------
    CorruptionError
        It is not one of such values.
    """
    count = sum(frame.directory[1::2].tolist())
    inner = parse_frame(frame.payload, expected=count, proved=frame.proved)
    if inner.dtype != frame.dtype or inner.quantizer != f.LOSSLESS or inner.coder == f.GAPS:
        raise CorruptionError("what lies between the gaps of the frame is not of its kind")
    return inner


def with_gaps(frame: Frame, values: Array) -> Array:
    """Return the values of a frame, of those that lie between its gaps."""
    out = np.zeros(frame.count, frame.dtype)
    at = taken = 0
    for gap, size in frame.directory.reshape(-1, 2).tolist():
        at += gap
        out[at : at + size] = values[taken : taken + size]
        at, taken = at + size, taken + size
    return out
