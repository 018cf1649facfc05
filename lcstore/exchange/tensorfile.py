"""Files of safetensors: a length, a header of JSON, and tensors one behind another.

Read here and not by its library: what that maps is a tensor of one framework at a time, and it knows neither
what a header may be refused for in words, nor how to write one tensor after another.
"""

from __future__ import annotations

import json
import os
from typing import IO, Any, Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name
from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError, TruncatedError
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.manifest import ENTRY, Manifest, hosted
from lcstore.exchange.outgoing import Outgoing
from lcstore.format.strictjson import loads
from lcstore.layout.specs import check_shape
from lcstore.limits import MAX_DIMS

_DTYPES: Final = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32",
    "I32": "int32", "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32",
    "F64": "float64", "C64": "complex64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip
_CODES: Final = {name: code for code, name in _DTYPES.items()}
_METADATA: Final = "__metadata__"
#: What others refuse: a header is at most so long.
_MOST_HEADER: Final = 100_000_000
#: The library whose tensors are in a file, by what its metadata says; most say nothing, and are of torch.
_FRAMEWORKS: Final = {"np": "numpy", "numpy": "numpy", "mlx": "numpy", "flax": "jax", "jax": "jax"}
_SAYS: Final = {"torch": "pt", "jax": "flax"}


def write_safetensors(file: IO[bytes], out: Outgoing) -> None:
    """Write a state: the header first, from the layout alone, and then one tensor after another.

    Raises
    ------
    InvalidInputError
        A tensor has a dtype, or a name, that the format has not.
    """
    header: dict[str, Any] = {}
    end = 0
    order = out.largest_first()
    for key in order:
        spec = out.places[key]
        code = _CODES.get(spec.dtype)
        if code is None or key == _METADATA:
            what = f"no dtype {spec.dtype}" if code is None else "no tensor of this name"
            raise InvalidInputError(f"the tensor {key!r:.200} cannot be exported: safetensors has {what}; "
                                    "another format has, as with --format npz")  # fmt: skip
        begin, end = end, end + spec.nbytes
        header[key] = {"dtype": code, "shape": list(spec.shape), "data_offsets": [begin, end]}
    frameworks = {spec.framework for spec in out.places.values()}
    library = next((word for name, word in _SAYS.items() if name in frameworks), "np")
    # Of tied tensors one is written. What is said of the others is what safetensors.torch.save_model says.
    said = {**out.ties, "format": library, ENTRY: out.manifest.to_bytes().decode()}
    text = json.dumps({_METADATA: said, **header}, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _MOST_HEADER:
        raise InvalidInputError(
            f"the header would be of {len(text)} bytes, and safetensors has at most {_MOST_HEADER}: export a "
            "part of the state, or to another format"
        )
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for _, array in out.tensors(order):
        file.write(array.reshape(-1).view(np.uint8).data)


class Mapped(NamedTuple):
    """A file that was read: its tensors, which lie in the file until they are used, and its metadata."""

    tensors: dict[str, Array]
    metadata: dict[str, str]


def read_safetensors(path: str, where: str) -> Checkpoint:
    """Return what a file holds. Values are read when used.

    Raises
    ------
    CorruptionError
        It is no such file, or damaged; `where` is what the message calls it.
    """
    tensors, metadata = map_safetensors(path, where)
    if ENTRY in metadata:
        return Checkpoint(Manifest.from_bytes(metadata[ENTRY].encode(), where).tree(tensors, where))
    framework = _FRAMEWORKS.get(metadata.pop("format", ""), "torch")
    tree = {key: hosted(array, framework) for key, array in tensors.items()}
    tied = {key for key, first in metadata.items() if first in tensors and key not in tensors}
    tree |= {key: tree[metadata.pop(key)] for key in tied}
    return Checkpoint(tree, {"safetensors": metadata} if metadata else {})


def map_safetensors(path: str, where: str) -> Mapped:
    """Return what a file holds; errors as of `read_safetensors`."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little") if size >= 8 else 0
        if size < 8 or length > _MOST_HEADER or length < 2:
            raise CorruptionError(f"{where} is no file of safetensors: it begins otherwise")
        if length > size - 8:
            raise TruncatedError(f"{where} ends within its header: it was not copied to its end")
        text = file.read(length)
    try:
        header = loads(text.rstrip(b" "), key=where, max_bytes=_MOST_HEADER)
    except LcstoreError as error:
        message = f"{where} is no file of safetensors: its header cannot be right ({error.message})"
        raise CorruptionError(message) from error
    metadata = header.pop(_METADATA, {}) if type(header) is dict else None
    if type(header) is not dict or type(metadata) is not dict or {*map(type, metadata.values())} - {str}:
        raise CorruptionError(f"{where} is no file of safetensors: its header has another form")
    # "c": pages of this process's own if it wrote to them; kernels for what is read only are others.
    held = np.memmap(path, np.uint8, "c", 8 + length) if size > 8 + length else np.zeros(0, np.uint8)
    return Mapped(_tensors(header, np.asarray(held), where), metadata)


def _tensors(header: dict[str, Any], held: Array, where: str) -> dict[str, Array]:
    """Return the tensors of a header, which have to lie one behind another and be all that there is."""
    places = {key: _place(key, row, where) for key, row in header.items()}
    at = 0
    for key, (_, _, begin, end) in sorted(places.items(), key=lambda item: item[1][2:]):
        if begin != at:
            raise CorruptionError(f"{where}: the tensor {key!r:.200} does not begin where the last one ends")
        at = end
    if at > held.size:
        raise TruncatedError(
            f"{where} ends after {held.size} of {at} bytes of tensors: it was not copied to its end"
        )
    if at < held.size:
        raise CorruptionError(f"{where} has {held.size - at} bytes more than its header says")
    return {key: _tensor(held[begin:end], dtype, shape) for key, (dtype, shape, begin, end) in places.items()}


def _place(key: str, row: Any, where: str) -> tuple[str, tuple[int, ...], int, int]:
    """Return dtype, shape, begin and end of a tensor."""
    fields: dict[str, Any] = row if type(row) is dict else {}
    code, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if type(shape) is not list or type(offsets) is not list or len(offsets) != 2 or len(shape) > MAX_DIMS:
        shape, offsets = [None], [None]
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in (*shape, *offsets)):
        raise CorruptionError(f"{where}: shape or place of the tensor {key!r:.200} cannot be right")
    name = _DTYPES.get(code) if type(code) is str else None
    if name is None:
        raise InvalidInputError(
            f"{where} cannot be imported: the tensor {key!r:.200} is of dtype {code!r:.40}, which no store "
            "holds"
        )
    begin, end = offsets
    if end - begin != check_shape(shape) * dtype_from_name(name).itemsize:
        raise CorruptionError(f"{where}: the tensor {key!r:.200} has not as many bytes as its shape takes")
    return name, tuple(shape), begin, end


def _tensor(data: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    array = data.view(dtype_from_name(dtype)).reshape(shape)
    return array if array.flags.aligned else array.copy()
