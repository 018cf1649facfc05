"""Zarr v3 metadata of an edge's group and arrays, from templates: what zarr writes, without its cost."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from lcstore.dtypes import dtype_from_name, pattern_dtype
from lcstore.edges.grid import track_dtype
from lcstore.format.keys import INTEGERS, Op
from lcstore.layout.qualified import stem_of
from lcstore.layout.specs import PoolSpec


def group_metadata(arrays: Iterable[tuple[PoolSpec, Op]]) -> bytes:
    """Return the metadata of a part's group, with that of its arrays in it: none has an object of its own.

    Parameters
    ----------
    arrays
        The pools, each with what an operation says of it, in any order.
    """
    inside = {f"{stem_of(pool.name)}.{op}": array_metadata(pool, op) for pool, op in arrays}
    value = {
        "attributes": {},
        "consolidated_metadata": {
            "kind": "inline",
            "metadata": dict(sorted(inside.items())),
            "must_understand": False,
        },
        "node_type": "group",
        "zarr_format": 3,
    }
    return json.dumps(value, separators=(",", ":")).encode()


def array_metadata(pool: PoolSpec, op: Op) -> dict[str, Any]:
    """Return the metadata of the array of a pool that holds what an operation says."""
    integers = op in INTEGERS
    codec: dict[str, Any] = {"name": "lcstore.lc"}
    if op == "exact" or (integers and pool.role == "plain"):
        codec["configuration"] = {"quantizer": "lossless"}
    else:
        codec["configuration"] = {}
    if not integers and pool.storage_dtype != pool.dtype:
        codec["configuration"]["logical"] = pool.dtype
    shown = str(_integers_of(pool)) if integers else pool.storage_dtype
    return {
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


def _integers_of(pool: PoolSpec) -> object:
    """Return the dtype of what is added to a pool, or set on its grid."""
    return pattern_dtype(dtype_from_name(pool.dtype)) if pool.role == "plain" else track_dtype(pool.dtype)


def _fill_value(dtype: str) -> object:
    if dtype == "bool":
        return False
    if dtype.startswith("complex"):
        return [0.0, 0.0]
    return 0.0 if dtype.startswith("float") else 0
