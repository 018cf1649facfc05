"""What others do with the tensors of a checkpoint, piece by piece: coders of bytes, and a cast."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name, dtype_name, storage_dtype

#: Takes a flat piece of a tensor; returns the bytes that it takes.
Coder: TypeAlias = Callable[[Array], int]

_BFLOAT16: Final = dtype_from_name("bfloat16")
_WIDE: Final = ("float32", "float64")


def cast(piece: Array) -> Array:
    """Return a piece as a cast to bfloat16 leaves it."""
    with np.errstate(over="ignore"):
        return piece.astype(_BFLOAT16) if piece.dtype.name in _WIDE else piece


def peers() -> dict[str, Coder]:
    """Return the coders by name, of libraries that are installed."""
    makers: dict[str, Callable[[], Coder]] = {
        "zip (deflate)": lambda: lambda piece: len(zlib.compress(_bytes(piece))),
        "zstd": _zstd,
        "pcodec": _pcodec,
        "zipnn": _zipnn,
        "cast to bfloat16": lambda: lambda piece: cast(piece).nbytes,
    }
    found = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except ImportError:
            continue
    return found


def _bytes(piece: Array) -> Any:
    return piece.view(np.uint8).data


def _zstd() -> Coder:
    coder = importlib.import_module("numcodecs.zstd").Zstd(level=3)
    return lambda piece: len(coder.encode(_bytes(piece)))


def _pcodec() -> Coder:
    library = importlib.import_module("pcodec")
    coded = {"float16", "float32", "float64", *(f"{sign}int{n}" for sign in ("", "u") for n in (16, 32, 64))}
    config = library.ChunkConfig()

    def code(piece: Array) -> int:
        bits = piece.view(storage_dtype(dtype_name(piece.dtype)))
        if bits.dtype.name not in coded:
            return bits.nbytes
        return len(library.standalone.simple_compress(bits, config))

    return code


def _zipnn() -> Coder:
    library = importlib.import_module("zipnn")
    kinds = ("float32", "bfloat16", "float16")

    def code(piece: Array) -> int:
        name = dtype_name(piece.dtype)
        if name not in kinds:
            return piece.nbytes
        coder = library.ZipNN(bytearray_dtype=name, input_format="byte")
        return len(coder.compress(bytearray(_bytes(piece))))

    return code
