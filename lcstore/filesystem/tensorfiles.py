"""Tensors as files of their own formats, `.npy` and `.safetensors`: headers from shapes and dtypes alone."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lcstore.dtypes import dtype_from_name
from lcstore.filesystem.decoded import Decoded
from lcstore.filesystem.files import Elements, File, Literal

#: What numpy and Zarr have no dtype for, and what has room for all of its values.
_WIDER: Final = {"bfloat16": "float32", "int4": "int8", "uint4": "uint8"}
#: The names that every release of safetensors knows: a file with any other one cannot be opened at all.
_NAMES: Final = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign[:1].upper()}{bits}" if sign else f"I{bits}"
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}  # fmt: skip
#: Complex numbers are pairs: of what.
_PAIRS: Final = {"complex64": "F32", "complex128": "F64"}


def shown_dtype(name: str) -> np.dtype:
    """Return the dtype of numpy's own as which a tensor is shown, with the same values."""
    wider = "float32" if name.startswith("float8") else _WIDER.get(name)
    return dtype_from_name(name) if wider is None else np.dtype(wider)


def npy_file(source: Decoded, whole: int) -> File:
    """Return a tensor as a file that `numpy.load` opens."""
    spec = source.node.layout.wholes[whole]
    dtype = shown_dtype(spec.dtype).newbyteorder("<")
    header = io.BytesIO()
    fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": spec.shape}
    np.lib.format.write_array_header_1_0(header, fields)
    return File([Literal(header.getvalue()), Elements(source, whole, 0, spec.size, dtype)], source)


def safetensors_file(source: Decoded, tensors: Mapping[str, int], metadata: Mapping[str, str]) -> File:
    """Return tensors as a file that `safetensors` opens.

    Wide elements come first, so that all lie at multiples of their size. Of those as wide, pool follows pool:
    who reads the file from its beginning has each chunk decoded once. A tensor that has several names is
    there under each of them.

    Parameters
    ----------
    source, tensors
        The state, and places among `Layout.wholes` by what they are called in the file.
    metadata
        What the header says besides.
    """
    layout = source.node.layout
    pools = {name: place for place, name in enumerate(layout.pools)}

    def order(name: str) -> tuple[int, ...]:
        whole = tensors[name]
        first = layout.tensors[layout.shards[whole][0]]
        return -_element(layout.wholes[whole].dtype)[1].itemsize, pools[first.pool], first.offset

    header: dict[str, object] = {"__metadata__": dict(metadata)}
    parts: list[Elements] = []
    at = 0
    for name in sorted(tensors, key=order):
        spec = layout.wholes[tensors[name]]
        kind, dtype, more = _element(spec.dtype)
        parts.append(Elements(source, tensors[name], 0, spec.size, dtype))
        begin, at = at, at + parts[-1].nbytes
        header[name] = {"dtype": kind, "shape": [*spec.shape, *more], "data_offsets": [begin, at]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return File([Literal(len(text).to_bytes(8, "little") + text), *parts], source)


def _element(name: str) -> tuple[str, np.dtype, Sequence[int]]:
    """Return what safetensors calls a dtype, as what it is written, and dimensions that are added."""
    if name in _PAIRS:
        return _PAIRS[name], dtype_from_name(name), [2]
    kind = _NAMES.get(name)
    if kind is None:
        shown = shown_dtype(name)
        return _NAMES[shown.name], shown, ()
    return kind, dtype_from_name(name), ()
