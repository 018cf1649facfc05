"""Folders of Zarr, version 3: an array for each tensor, below groups as the state is nested."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import storage_dtype
from lcstore.errors import CorruptionError, InvalidInputError, LcstoreError
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.manifest import ENTRY, Manifest
from lcstore.exchange.outgoing import Outgoing
from lcstore.limits import check_unstored
from lcstore.state.names import nested

_CHUNK_BYTES: Final = 32 << 20
_DOCUMENT: Final = "zarr.json"
#: Zarr leaves out chunks that equal zero, and so do some of which bits are set: negative zeros.
_EVERY_CHUNK: Final[Any] = {"write_empty_chunks": True}


def write_zarr(folder: str, out: Outgoing) -> None:
    """Write a state to a local folder, one tensor after another."""
    import zarr

    said: dict[str, Any] = {ENTRY: out.manifest.to_bytes().decode()}
    group = zarr.open_group(folder, mode="w", zarr_format=3, attributes=said)
    for key, value in out.tensors():
        bits = value.view(storage_dtype(out.places[key].dtype))
        try:
            if "\\" in key or _DOCUMENT in key.split("/"):
                raise ValueError(f"a backslash is a slash to it, and {_DOCUMENT} says what a folder is")
            array = group.create_array(
                key, shape=bits.shape, dtype=bits.dtype, chunks=_chunks(bits), config=_EVERY_CHUNK
            )
        except ValueError as error:
            message = f"the tensor {key!r:.200} cannot be exported: Zarr has no such name ({error})"
            raise InvalidInputError(message) from error
        if bits.size:
            array[...] = bits


def _chunks(array: Array) -> tuple[int, ...]:
    """Return how an array is cut: into whole rows, of which as many lie together as make few objects."""
    if not array.size or not array.ndim:
        return tuple(max(1, size) for size in array.shape)
    rows = max(1, _CHUNK_BYTES // (array.nbytes // array.shape[0]))
    return min(rows, array.shape[0]), *array.shape[1:]


def read_zarr(path: str, where: str) -> Checkpoint:
    """Return what a folder holds.

    Raises
    ------
    CorruptionError
        It is no group of Zarr, or damaged; or lcstore wrote it, and a chunk is missing.
    LimitError
        It claims far more values than are stored in it.
    """
    import zarr

    try:
        group = zarr.open_group(path, mode="r")
        members = {key: one for key, one in group.members(max_depth=None) if isinstance(one, zarr.Array)}
        said = group.attrs.get(ENTRY)
        check_unstored(sum(one.nbytes for one in members.values()), _bytes_in(path))
        if said is not None:  # every chunk was written: one that is not there is no zero
            lost = next((key for key, one in members.items() if one.nchunks_initialized < one.nchunks), None)
            if lost is not None:
                raise CorruptionError(f"{where} lacks chunks of {lost!r:.200}: it is no whole copy")
        arrays = {key: np.asarray(one[...]) for key, one in members.items()}
    except LcstoreError:
        raise
    except Exception as error:
        raise CorruptionError(f"{where} is no whole group of Zarr: {error!s:.200}") from error
    if isinstance(said, str):
        return Checkpoint(Manifest.from_bytes(said.encode(), where).tree(arrays, where))
    return Checkpoint(nested((key.split("/"), array) for key, array in arrays.items()))


def _bytes_in(folder: str) -> int:
    return sum(os.path.getsize(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names)
