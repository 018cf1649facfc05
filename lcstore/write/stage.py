"""Staging: a state on the host, with what is said about it. Everything that a save is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lcstore.arrays import Array
from lcstore.format.labels import Labels
from lcstore.state.tree import FlatState, flatten
from lcstore.write.entries import flat_array


@dataclass(frozen=True)
class Staged:
    """A state that is ready to be coded.

    Attributes
    ----------
    step
        The training step.
    flat
        The state taken apart.
    arrays
        Its tensors in C order, one-dimensional, in the order of `flat`.
    labels
        Metrics, metadata and tags.
    exact
        Whether the exact value is kept besides the track.
    touched
        By tensor name, the rows that have changed since the save before, where the caller says so.
    """

    step: int
    flat: FlatState
    arrays: tuple[Array, ...]
    labels: Labels = field(default_factory=Labels)
    exact: bool = False
    touched: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(array.nbytes for array in self.arrays)


def stage(
    step: int,
    state: Any,
    labels: Labels | None = None,
    *,
    exact: bool = False,
    touched: Mapping[str, Any] | None = None,
    copy: bool = True,
) -> Staged:
    """Return a state as a save needs it.

    Parameters
    ----------
    step, labels, exact, touched
        As `Staged` says.
    state
        What `lcstore.state.tree.flatten` takes.
    copy
        Copy every tensor, so that the caller may go on changing the state. Without it the tensors are
        borrowed: the caller must leave the state alone until the save is done.

    Raises
    ------
    InvalidInputError
        Something in the state cannot be stored; the message names it.
    """
    flat = flatten(state)
    arrays = [flat_array(host.array) for _, host in flat.tensors]
    if copy:
        arrays = [array.copy() for array in arrays]
        tensors = [
            (name, replace(host, array=array.reshape(host.array.shape)))
            for (name, host), array in zip(flat.tensors, arrays, strict=True)
        ]
        flat = replace(flat, tensors=tensors)
    return Staged(step, flat, tuple(arrays), labels or Labels(), exact, dict(touched or {}))
