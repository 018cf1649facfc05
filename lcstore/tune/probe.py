"""How much an error costs the user's loss, when noise is kept out of the answer.

A lossy restore averages the noise of training, as a moving average of the weights would, and its loss is
often *lower* than that of the exact state. So a difference of losses alone would call any error free. Here
an error `d` is added and taken away: the even part of the loss, ``(L(u + d) + L(u - d)) / 2 - L(u)``, is
half the curvature along the error, and averaging does not change it. The odd part is what the state gains or
loses by lying behind, and counts only where it costs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError, LimitError
from lcstore.state.frameworks import cast_array, given_as
from lcstore.state.names import Name
from lcstore.state.torchobjects import with_made
from lcstore.state.tree import flatten, unflatten
from lcstore.tune.result import Cost

Loss = Callable[[Any], float]


class Probe:
    """The user's loss around one state, with its calls counted; `exact` is that of the state itself."""

    def __init__(self, loss: Loss, state: Any, most: int) -> None:
        self._loss = loss
        self._flat = flatten(state)
        self._most = most
        self.evaluations = 0
        self.exact = self._evaluate({})
        self._differs = False

    @property
    def left(self) -> int:
        """How many evaluations are left."""
        return self._most - self.evaluations

    def cost(self, errors: Mapping[Name, Array]) -> Cost:
        """Return what errors (restored minus exact, by name) cost; it takes two evaluations."""
        there, back = self._evaluate(errors), self._evaluate({name: -d for name, d in errors.items()})
        self._differs = self._differs or there != self.exact or back != self.exact
        return Cost((there + back) / 2 - self.exact, (there - back) / 2)

    def errors_of(self, restored: Mapping[Name, Array]) -> dict[Name, Array]:
        """Return restored minus exact values, in double precision."""
        errors = {}
        for name, host in self._flat.tensors:
            if name in restored:
                with np.errstate(invalid="ignore"):
                    error = _wide(restored[name]) - _wide(host.array)
                errors[name] = np.where(np.isfinite(error), error, 0.0)  # what is not finite is plain
        return errors

    def check(self) -> None:
        """Refuse a loss that is the same whatever is done to the weights."""
        if not self._differs:
            raise InvalidInputError(
                "the loss is the same for very different weights: it must depend on the state it is given"
            )

    def _evaluate(self, errors: Mapping[Name, Array]) -> float:
        if self.evaluations >= self._most:
            raise LimitError(f"more than {self._most} evaluations of the loss")
        self.evaluations += 1
        objects = []
        for name, host in self._flat.tensors:
            array = np.array(host.array)  # a copy: the loss may keep it, or write to it
            if name in errors:
                array = cast_array(_wide(array) + errors[name], host.array.dtype)
            objects.append(given_as(array, host.framework, "saved"))
        tree = unflatten(self._flat.structure, objects, self._flat.leaves)
        found = self._loss(with_made(tree, self._flat.notes.made))
        try:
            value = float(found)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the loss returned {found!r:.100}, a {type(found).__name__}: it has to be one number"
            ) from error
        if not math.isfinite(value):
            raise InvalidInputError(f"the loss is {value} near the last state: it has to be a finite number")
        return value


def _wide(array: Array) -> Array:
    return array.astype(np.float64)
