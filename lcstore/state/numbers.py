"""Plain numbers where a tensor without dimensions is meant, and the other way round.

A counter that a program begins as ``0`` is an array once it went through ``jax.jit``: it is the same counter.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError
from lcstore.state.frameworks import cast_array, convert_like

_WIDEST: Final[dict[type, Any]] = {bool: np.bool_, float: np.float64, complex: np.complex128}


def is_number(value: object) -> bool:
    """Return whether `value` is a plain number."""
    return type(value) in (bool, int, float, complex)


def number_like(value: Any, like_leaf: Any) -> Any:
    """Return a plain number as the tensor that `like_leaf` is; errors as for `convert_like`."""
    array = np.asarray(value)
    if array.dtype == object:
        raise InvalidInputError("an integer past 64 bits is stored, which no tensor holds")
    return convert_like(array, like_leaf)


def number_of(array: Array, kind: type) -> Any:
    """Return a tensor without dimensions as a plain number of the type `kind`.

    Raises
    ------
    InvalidInputError
        It has dimensions, or would lose more than precision.
    """
    if array.ndim:
        raise InvalidInputError(f"shape {array.shape} is stored, but a single {kind.__name__} is asked for")
    wanted = _WIDEST.get(kind, np.uint64 if array.dtype.kind == "u" else np.int64)
    return kind(cast_array(array, np.dtype(wanted))[()])
