"""States to look at as files: of every dtype, of odd names, of several chunks."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np

from lcstore.dtypes import DTYPE_NAMES, dtype_from_name

#: Names that paths, globs, URLs and Zarr take for something of their own.
ODD_NAMES = (
    *("..", ".", "", "/", "a/b", "a~b", "#7", "a::b", "a*?[x]", "w.npy", "zarr.json", "c", "c.0", ".npy"),
    *("~", "line\nbreak", "back\\slash", "__metadata__", "__x", "Ä ö", "~x2e", "~x2enpy"),
    "state.safetensors",
)


class Saved:
    """A run whose states have tensors of all dtypes and shapes, under odd names."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.weight = self.rng.standard_normal((70, 90)).astype(np.float32)

    def state(self, step: int) -> dict[str, Any]:
        self.weight = self.weight + np.float32(1e-3) * self.rng.standard_normal((70, 90)).astype(np.float32)
        return {
            "model": {
                "fc.weight": self.weight,
                "half.weight": self.weight[:40].astype(ml_dtypes.bfloat16),
                "bias": np.full(90, step + 1, np.float32),
                "scalar": np.float32(step),
                "empty": np.zeros((0, 3)),
            },
            "dtypes": {name: self.of(name) for name in DTYPE_NAMES},
            "odd": {name: {"inside": np.arange(3) + i} for i, name in enumerate(ODD_NAMES)},
            **{name: np.arange(5) * (i + 1) for i, name in enumerate(ODD_NAMES)},
            "list": [np.ones(3), {"deep": np.zeros(2)}],
            "epoch": step,
            "rng": b"\x00\xff",
            "ratio": float("nan"),
        }

    def of(self, name: str) -> np.ndarray:
        dtype = dtype_from_name(name)
        size = (3, 4)
        bits = self.rng.integers(0, 256, (3, 4 * dtype.itemsize), np.uint8)
        if name in ("bool", "int4", "uint4"):
            return (bits % (8 if name == "int4" else 2 if name == "bool" else 16)).astype(dtype)
        if dtype.kind == "c" or name in ("float16", "float32", "float64"):
            return self.rng.standard_normal(size).astype(dtype)
        return bits.view(dtype).reshape(size)


def tensors_of_safetensors(data: bytes) -> tuple[dict[str, tuple[str, list[int], bytes]], dict[str, str]]:
    """Return the tensors of a safetensors file, and its metadata, holding it to its specification."""
    length = int.from_bytes(data[:8], "little")
    assert length % 8 == 0
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    assert all(isinstance(value, str) for value in metadata.values())
    body, found, end = data[8 + length :], {}, 0
    for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, behind = about["data_offsets"]
        width = {"BOOL": 1, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1}.get(about["dtype"]) or int(
            about["dtype"][1:]
        ) // 8
        assert begin == end, "no gaps"
        assert (8 + length + begin) % width == 0, "aligned"
        assert behind - begin == width * int(np.prod(about["shape"]))
        found[name], end = (about["dtype"], about["shape"], body[begin:behind]), behind
    assert end == len(body)
    return found, metadata
