"""The element types that can be stored: a fixed list, named the same in every library and every release."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError, UnsupportedFormatError

#: Elements that are converted at once, in cache.
_AT_ONCE: Final = 1 << 16

_NUMPY_NAMES: Final = (
    "bool",
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
_ML_NAMES: Final = (
    *("bfloat16", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "int4", "uint4"),
)
_DTYPES: Final[Mapping[str, np.dtype[Any]]] = MappingProxyType(
    {name: np.dtype(name) for name in _NUMPY_NAMES}
    | {name: np.dtype(getattr(ml_dtypes, name)) for name in _ML_NAMES}
)
_NAMES: Final[Mapping[np.dtype[Any], str]] = MappingProxyType(
    {dtype: name for name, dtype in _DTYPES.items()}
)

#: Every dtype name that a layout may hold.
DTYPE_NAMES: Final = tuple(_DTYPES)
#: The dtypes that a lossy role may have.
LOSSY_DTYPES: Final = frozenset({"float16", "bfloat16", "float32", "float64"})


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the stored name of `dtype`, such as ``"float32"`` or ``"bfloat16"``.

    Byte order is not part of the name: everything is stored in one order and comes back in the machine's.

    Raises
    ------
    InvalidInputError
        The dtype has no exact form in a store: object, string, structured, date and extended precision.
    """
    name = _NAMES.get(dtype)
    if name is None and dtype.kind != "T":  # numpy refuses to give strings of any length another byte order
        name = _NAMES.get(dtype.newbyteorder("="))
    if name is None:
        raise InvalidInputError(f"dtype {dtype} cannot be stored ({_hint(dtype)})")
    return name


def _hint(dtype: np.dtype[Any]) -> str:
    if dtype.kind in "mM":
        return "store [x.astype('int64'), str(x.dtype)]"
    if dtype.kind in "fc":
        return "its layout differs between machines: convert it to float64 or complex128"
    if not dtype.itemsize:
        return "it holds no values: leave it out"
    if dtype.names is not None:
        return "store {name: x[name] for name in x.dtype.names}"
    if dtype.name in ("int2", "uint2"):
        return f"convert it to {dtype.name.replace('2', '8')}"
    return "arrays hold booleans, integers, floats or complex numbers"


def dtype_from_name(name: str) -> np.dtype[Any]:
    """Return the dtype of a stored name; `UnsupportedFormatError` if this version does not know it."""
    try:
        return _DTYPES[name]
    except (KeyError, TypeError):
        raise UnsupportedFormatError(f"dtype {name!r:.80} is not known: upgrade lcstore") from None


def storage_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype that Zarr sees: unsigned integers of the same width where Zarr has no such dtype."""
    dtype = dtype_from_name(name)
    return np.dtype(f"uint{8 * dtype.itemsize}") if is_stored_as_bits(name) else dtype


def is_stored_as_bits(name: str) -> bool:
    """Return whether numpy, and so Zarr, has no such dtype."""
    return name in _ML_NAMES


def clear(values: Array) -> None:
    """Set all bits of ``values[n]`` to zero. Not every dtype has a 0: float8_e8m0fnu makes it NaN."""
    values.view(np.uint8)[:] = 0


def pattern_dtype(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the signed integers that bit patterns of `dtype` are taken as, to be added to.

    None of complex numbers, whose parts are two.
    """
    return None if dtype.kind == "c" else np.dtype(f"i{dtype.itemsize}")


def working_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that values of `dtype` are computed in: float32 for narrower floats."""
    return dtype if dtype.itemsize >= 4 else np.dtype(np.float32)


def to_float16(values: Array) -> Array:
    """Return ``float32[n]`` or ``float64[n]`` as float16, rounded once, to nearest with ties to even.

    As numpy does, which takes 150 ns for a value that comes out subnormal: here it takes 10.
    """
    out = np.empty(values.size, np.float16)
    for at in range(0, values.size, _AT_ONCE):
        _fill_float16(values[at : at + _AT_ONCE], out[at : at + _AT_ONCE])
    return out


def _fill_float16(values: Array, out: Array) -> None:
    kind = values.dtype.type
    small = np.abs(values) < kind(2.0**-14)  # the least that is normal
    with np.errstate(over="ignore"):
        out[:] = np.where(small, kind(0), values)
    if small.any():
        units = np.abs(np.rint(np.where(small, values, kind(0)) * kind(2.0**24)))
        patterns = units.astype(np.uint16) | (np.signbit(values).astype(np.uint16) << 15)
        np.copyto(out.view(np.uint16), patterns, where=small)
