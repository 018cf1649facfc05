"""What became of tensors along a line of states, as tables of what records say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lcstore.arrays import Array


@dataclass(frozen=True, eq=False)
class Course:
    """What became of tensors along a line of states.

    Attributes
    ----------
    steps
        Of the states, in the order of the line.
    movement, grid
        ``float64[tensors, states]``: the update scale, and log2 of the largest weight, rounded up, as it was
        when the grid was chosen; NaN where not known. A grid stays as large as a burst made it, so movement
        is not told as a part of it.
    weights
        ``int8[tensors, states]``: 1 where it is coded as weights, -1 where it is kept bit for bit, 0 where it
        is not there, or all weights are kept so.
    jumped
        ``bool[tensors, states]``: whether it moved so far that it was set anew, on another grid. At an anchor
        it is not known how far.
    rules
        Of each state: whether its policy has rules for single tensors.
    alike
        The rows of tensors that are built alike: of one shape, and of names that differ in numbers alone.
    """

    steps: tuple[int, ...]
    movement: Array
    grid: Array
    weights: Array
    jumped: Array
    rules: tuple[bool, ...]
    alike: tuple[tuple[int, ...], ...] = ()

    @property
    def are_weights(self) -> Array:
        """Whether each tensor is coded as weights at any of these states: ``bool[tensors]``."""
        found: Array = np.any(self.weights > 0, axis=1)
        return found

    @property
    def of_weights(self) -> Array:
        """The movement of these."""
        found: Array = self.movement[self.are_weights]
        return found
