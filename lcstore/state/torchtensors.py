"""Tensors of torch to numpy and back. Torch is imported only to make one."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, cast

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import DTYPE_NAMES, dtype_from_name, dtype_name, storage_dtype
from lcstore.errors import InvalidInputError


def is_shard(tensor: Any) -> bool:
    """Return whether a tensor is a part of one that several processes hold."""
    return hasattr(tensor, "full_tensor")


def plain(tensor: Any) -> Any:
    """Return a tensor without its history, which holds one value for each of its elements.

    Raises
    ------
    InvalidInputError
        It has no plain values.
    """
    if tensor.layout is not sys.modules["torch"].strided or tensor.is_quantized or tensor.is_nested:
        raise InvalidInputError("it is sparse, quantized or nested")
    if tensor.is_meta:
        raise InvalidInputError("it is on the meta device, and has no values")
    if is_shard(tensor):
        raise InvalidInputError("it is a DTensor, of which this process has a shard")
    tensor = tensor.detach()
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


def from_torch(tensor: Any) -> Array:
    """Return the values of a plain tensor, shared with it where it lies in this machine's memory."""
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    bits = _bits_of(tensor.dtype)
    if bits is None:
        return cast(Array, tensor.numpy())
    # The view keeps strides, and works for 0-d.
    signed = tensor.view(getattr(sys.modules["torch"], bits)).numpy()
    return cast(Array, signed.view(dtype_from_name(_name_of(tensor.dtype))))


def is_on_gpu(tensor: Any) -> bool:
    """Return whether a plain tensor lies on a GPU, as values that numpy can have."""
    return tensor.device.type == "cuda" and _name_of(tensor.dtype) in DTYPE_NAMES


def without_values(tensor: Any) -> Array:
    """Return an array of the shape and dtype of a tensor, which takes no memory and is not to be read."""
    return np.broadcast_to(np.zeros((), dtype_from_name(_name_of(tensor.dtype))), tuple(tensor.shape))


def to_torch(array: Array) -> Any:
    """Return a tensor on the CPU that shares memory with an array, where it can.

    Raises
    ------
    InvalidInputError
        Torch has no such dtype.
    """
    import torch

    name = dtype_name(array.dtype)
    dtype = getattr(torch, name, None)
    # torch names an int4, but has no operation for it.
    if dtype is None or name in ("int4", "uint4"):
        raise InvalidInputError(f"torch has no dtype {name}: restore with to='numpy', or export to .npz")
    # torch takes neither foreign byte order nor negative strides, not even of a single row, which numpy calls
    # contiguous; and it warns about read-only memory.
    backward = any(stride < 0 for stride in array.strides)
    if backward or not array.dtype.isnative or not array.flags.writeable or not array.flags.c_contiguous:
        array = np.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    bits = storage_dtype(name)
    if bits == array.dtype:
        return torch.from_numpy(array)
    signed = array.view(np.int16) if bits.itemsize == 2 else array.view(np.uint8)
    return torch.from_numpy(signed).view(dtype)


def _name_of(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


@lru_cache
def _bits_of(dtype: Any) -> str | None:
    """Return the name of torch's integers of the same width, for a torch dtype that numpy has not."""
    name = _name_of(dtype)
    if not dtype.is_floating_point or name not in DTYPE_NAMES or storage_dtype(name) == dtype_from_name(name):
        return None
    return "int16" if dtype.itemsize == 2 else "uint8"
