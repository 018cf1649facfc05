"""Zarr v3 metadata of an edge's group and arrays, from templates: what zarr writes, without its cost."""

from __future__ import annotations

import json
from typing import Any, Final

from lcstore.edges.grid import track_dtype
from lcstore.format.keys import INTEGERS, Op
from lcstore.state.specs import PoolSpec

GROUP: Final = b'{"attributes":{},"node_type":"group","zarr_format":3}'


def array_metadata(pool: PoolSpec, op: Op) -> bytes:
    """Return the metadata of the array of a pool that holds what an operation says."""
    integers = op in INTEGERS
    codec: dict[str, Any] = {"name": "lcstore.lc"}
    if op == "exact":
        codec["configuration"] = {"quantizer": "lossless"}
    else:
        codec["configuration"] = {}
    if not integers and pool.storage_dtype != pool.dtype:
        codec["configuration"]["logical"] = pool.dtype
    shown = str(track_dtype(pool.dtype)) if integers else pool.storage_dtype
    value = {
        "attributes": {},
        "chunk_grid": {"configuration": {"chunk_shape": [pool.chunk]}, "name": "regular"},
        "chunk_key_encoding": {"configuration": {"separator": "."}, "name": "default"},
        "codecs": [codec],
        "data_type": shown,
        "fill_value": _fill_value(shown),
        "node_type": "array",
        "shape": [pool.size],
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
