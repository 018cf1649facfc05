"""Typed keys of JAX: the integers that they are made of, and the name of what draws from them."""

from __future__ import annotations

import sys
from typing import Any, Final

from lcstore.errors import InvalidInputError

#: The first word of what a store says that a key was; the implementation's name follows.
_PREFIX: Final = "jax-key-"
#: Implementations, by the dtype of their keys; those of somebody else's cannot be made again by name.
_IMPLEMENTATIONS: Final = {"key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg"}
#: Integers in a key, by what a store says that it was.
WIDTHS: Final = {f"{_PREFIX}threefry2x32": 2, f"{_PREFIX}rbg": 4, f"{_PREFIX}unsafe_rbg": 4}


def is_key_dtype(dtype: object) -> bool:
    """Return whether this is the dtype of typed keys."""
    return str(dtype).startswith("key<")


def kind_of(dtype: object) -> str:
    """Return what a store says of keys of this dtype."""
    name = _IMPLEMENTATIONS.get(str(dtype))
    if name is None:
        raise InvalidInputError(
            f"a key of dtype {dtype} is none of JAX's own: store jax.random.key_data(key), and wrap it again"
        )
    return _PREFIX + name


def key_data(keys: Any) -> Any:
    """Return the integers of typed keys."""
    return sys.modules["jax"].random.key_data(keys)


def wrapped(data: Any, kind: str) -> Any:
    """Return typed keys, of their integers as an array of JAX."""
    impl = kind.removeprefix(_PREFIX)
    width = WIDTHS[kind]
    if data.shape[-1:] != (width,) or data.dtype != "uint32":
        raise InvalidInputError(
            f"{data.dtype}{list(data.shape)} is stored, and keys of {impl!r} are uint32[..., {width}]: "
            "give keys of the implementation that was saved: jax.random.key(seed, impl=...)"
        )
    return sys.modules["jax"].random.wrap_key_data(data, impl=impl)
