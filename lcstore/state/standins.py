"""Numpy arrays that were given in the place of tensors, of a library that this process had not imported.

Such an array is saved as what it stands for: so a state that was restored without torch, and is saved again,
is still one of torch. It is known by itself as long as it lives: what is computed or copied of it is numpy's.
"""

from __future__ import annotations

import weakref
from typing import Final, Generic, TypeVar

import numpy as np

from lcstore.arrays import Array

Kind = TypeVar("Kind", bound=str)


class StandIns(Generic[Kind]):
    """Which arrays stand for tensors of which library."""

    def __init__(self) -> None:
        #: By the identity of an array: the array, its dtype and shape when it was given, and the library.
        self._known: Final[
            dict[int, tuple[weakref.ref[Array], np.dtype[np.generic], tuple[int, ...], Kind]]
        ] = {}

    def given(self, array: Array, kind: Kind) -> Array:
        """Return `array`, which is given in the place of a tensor of the library `kind`."""
        key, known = id(array), self._known
        gone = weakref.ref(array, lambda _: known.pop(key, None))
        known[key] = gone, array.dtype, array.shape, kind
        return array

    def kind_of(self, array: Array) -> Kind | None:
        """Return the library whose tensor an array stands for; None if for none, or no more."""
        found = self._known.get(id(array))
        if found is None or found[0]() is not array or found[1:3] != (array.dtype, array.shape):
            return None
        return found[3]
