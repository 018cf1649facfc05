"""Nodes of a Zarr v3 hierarchy: groups, and arrays of which each chunk is a file."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from lcstore.filesystem.decoded import Decoded
from lcstore.filesystem.files import Elements, Entry, File, Folder, Literal, Zeros
from lcstore.filesystem.quoting import quoted
from lcstore.filesystem.tensorfiles import shown_dtype
from lcstore.format.keyforms import is_number
from lcstore.state.names import Name, format_name, nested

#: What a chunk has at most, as long as it is more than one element.
_CHUNK_BYTES: Final = 4 << 20
_DOCUMENT: Final = "zarr.json"


class ZarrArray(Mapping[str, Entry]):
    """An array, as the folder of its metadata and chunks.

    Parameters
    ----------
    shape, dtype, chunk
        What it is, and the shape of its chunks.
    part
        Makes the file of a chunk, given where that is among the chunks.
    dims, attributes
        Names of its dimensions, and what is said of it.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: np.dtype,
        chunk: Sequence[int],
        part: Callable[[Sequence[int]], File],
        dims: Sequence[str],
        attributes: Mapping[str, Any],
    ) -> None:
        self._counts = [-(-size // step) for size, step in zip(shape, chunk, strict=True)]
        self._part = part
        fill: object = 0.0 if dtype.kind == "f" else [0.0, 0.0] if dtype.kind == "c" else 0
        self.document = {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [*shape],
            "data_type": dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*chunk]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": False if dtype.kind == "b" else fill,
            "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
            "attributes": dict(attributes),
            "dimension_names": [*dims],
            "storage_transformers": [],
        }

    def __getitem__(self, name: str) -> Entry:
        if name == _DOCUMENT:
            return _file_of(self.document)
        first, *texts = name.split(".")
        if first != "c" or len(texts) != len(self._counts):
            raise KeyError(name)
        at = [int(text) if is_number(text) else -1 for text in texts]
        inside = all(0 <= i < count for i, count in zip(at, self._counts, strict=True))
        if ".".join(["c", *map(str, at)]) != name or not inside:
            raise KeyError(name)
        return self._part(at)

    def __iter__(self) -> Iterator[str]:
        yield _DOCUMENT
        for at in itertools.product(*map(range, self._counts)):
            yield ".".join(["c", *map(str, at)])

    def __len__(self) -> int:
        return 1 + math.prod(self._counts)


class ZarrGroup(Mapping[str, Entry]):
    """A group, as the folder of its metadata and of what lies in it.

    It tells the metadata of all that is below it, so that who opens it asks for none of that one by one.
    """

    def __init__(self, nodes: Mapping[str, ZarrArray | ZarrGroup], attributes: Mapping[str, Any]) -> None:
        self._nodes = nodes
        self.document = {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}

    def __getitem__(self, name: str) -> Entry:
        if name != _DOCUMENT:
            return self._nodes[name]
        below = {"kind": "inline", "must_understand": False, "metadata": dict(self._below())}
        return _file_of({**self.document, "consolidated_metadata": below})

    def __iter__(self) -> Iterator[str]:
        yield _DOCUMENT
        yield from self._nodes

    def __len__(self) -> int:
        return 1 + len(self._nodes)

    def _below(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield path and metadata of all that is below the group."""
        for name, node in self._nodes.items():
            yield name, node.document
            for path, document in node._below() if isinstance(node, ZarrGroup) else ():
                yield f"{name}/{path}", document


def state_hierarchy(source: Decoded, named: Mapping[Name, int]) -> Folder:
    """Return the tensors of a state as arrays, in groups as they are nested in the state.

    `named`: places among `Layout.wholes`, by name.
    """
    top = nested((quoted(name), tensor_array(source, name, whole)) for name, whole in named.items())
    record = source.node.record
    said = about(source.node.name.node, record.step, record.metrics)
    return _grouped(top, said | {"created": record.created})


def _grouped(inside: Mapping[str, Any], attributes: Mapping[str, Any]) -> ZarrGroup:
    nodes = {name: _grouped(one, {}) if isinstance(one, dict) else one for name, one in inside.items()}
    return ZarrGroup(nodes, attributes)


def about(node: str, step: int, metrics: Mapping[str, float]) -> dict[str, Any]:
    """Return what attributes say of a state: what is no finite number is null."""
    return {"step": step, "node": node, "metrics": {name: finite(value) for name, value in metrics.items()}}


def finite(value: float | None) -> float | None:
    """Return a number as JSON has it."""
    return value if value is not None and math.isfinite(value) else None


def dims_of(name: Name, shape: Sequence[int]) -> list[str]:
    """Return names of dimensions that no other tensor beside this one has: ``weight:0``, ``weight:1``."""
    return [f"{quoted(name)[-1]}:{axis}" for axis in range(len(shape))]


def tensor_array(source: Decoded, name: Name, whole: int) -> ZarrArray:
    """Return a tensor as an array; each of its chunks is a run of its elements."""
    spec = source.node.layout.wholes[whole]
    dtype, shape = shown_dtype(spec.dtype), spec.shape
    chunk = chunk_shape(shape, dtype.itemsize)
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    cut = next((axis for axis, size in enumerate(chunk) if size > 1), 0)

    def part(at: Sequence[int]) -> File:
        first = sum(i * step * stride for i, step, stride in zip(at, chunk, strides, strict=True))
        left = min(chunk[cut], shape[cut] - at[cut] * chunk[cut]) * strides[cut] if shape else 1
        fill = Zeros((math.prod(chunk) - left) * dtype.itemsize)
        return File([Elements(source, whole, first, left, dtype), fill], source)

    said = {"name": format_name(name), "dtype": spec.dtype, "role": spec.role}
    return ZarrArray(shape, dtype, chunk, part, dims_of(name, shape), said)


def chunk_shape(shape: Sequence[int], itemsize: int) -> list[int]:
    """Return the shape of chunks that are runs of an array's elements: one dimension is cut, those before it
    are taken index by index, and those behind it whole."""
    room = _CHUNK_BYTES // itemsize
    chunk = [max(1, size) for size in shape]
    for axis, size in enumerate(shape):
        inner = math.prod(chunk[axis + 1 :])
        chunk[axis] = max(1, min(size, room // inner))
        if inner <= room:
            break
    return chunk


def _file_of(document: Mapping[str, Any]) -> File:
    return File([Literal(json.dumps(document, separators=(",", ":")).encode())])
