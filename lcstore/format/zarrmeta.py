"""Zarr v3 metadata of an edge's group and arrays, from templates: what zarr writes, without its cost."""

from __future__ import annotations

import json
from typing import Any, Final

from lcstore.format.keys import Op

GROUP: Final = b'{"attributes":{},"node_type":"group","zarr_format":3}'


def array_metadata(size: int, chunk: int, dtype: str, op: Op, *, integer: str | None, storage: str) -> bytes:
    """Return the metadata of one flat array.

    Parameters
    ----------
    size, chunk
        Elements of the array and of a chunk.
    dtype, storage
        Logical dtype of the values, and the one that Zarr sees (they differ for bfloat16).
    op
        What the array holds.
    integer
        Dtype of grid integers, where the array holds those instead of values.
    """
    codec: dict[str, Any] = {"name": "lcstore.lc"}
    if op == "exact":
        codec["configuration"] = {"quantizer": "lossless"}
    else:
        codec["configuration"] = {}
    if integer is None and storage != dtype:
        codec["configuration"]["logical"] = dtype
    shown = integer or storage
    value = {
        "attributes": {},
        "chunk_grid": {"configuration": {"chunk_shape": [chunk]}, "name": "regular"},
        "chunk_key_encoding": {"configuration": {"separator": "."}, "name": "default"},
        "codecs": [codec],
        "data_type": shown,
        "fill_value": _fill_value(shown),
        "node_type": "array",
        "shape": [size],
        "storage_transformers": [],
        "zarr_format": 3,
    }
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _fill_value(dtype: str) -> object:
    if dtype == "bool":
        return False
    if dtype.startswith("complex"):
        return [0.0, 0.0]
    return 0.0 if dtype.startswith("float") else 0
