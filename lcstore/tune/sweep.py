"""Which error each group gets: a Lagrangian sweep over measured rates and modelled costs. Pure arithmetic.

At the best division of a tolerance no group could save more bytes per unit of loss than another (equal
slope: Shoham and Gersho, "Efficient bit allocation for an arbitrary set of quantizers", 1988).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.arrays import Array

#: Errors that a group may get, between the least and the most.
CHOICES: Final = 65
_BISECTIONS: Final = 80
#: A group counts as no less sensitive, per element, than this part of the mean.
LEAST_SHARE: Final = 0.02


@dataclass(frozen=True)
class Rates:
    """The bytes and errors of one group, coded at several errors that were asked for, in rising order.

    Attributes
    ----------
    asked
        The errors asked for, in intervals.
    found
        The tracking errors that came of them.
    nbytes
        The bytes of a delta.
    """

    asked: tuple[float, ...]
    found: tuple[float, ...]
    nbytes: tuple[float, ...]

    def at(self, errors: Array) -> tuple[Array, Array]:
        """Return the tracking errors and the bytes at errors between those, by interpolation."""
        x, wanted = np.log(self.asked), np.log(errors)
        found = np.exp(np.interp(wanted, x, np.log(np.maximum.accumulate(self.found))))
        nbytes = np.minimum.accumulate(np.array(self.nbytes)) + 1.0
        return found, np.exp(np.interp(wanted, x, np.log(nbytes))) - 1.0


@dataclass(frozen=True)
class Model:
    """Bytes and expected increase of the loss by group (first axis) and error (second axis).

    Attributes
    ----------
    errors
        The errors to choose from, rising.
    nbytes, costs
        ``[groups, errors]``; bytes fall and costs rise along the second axis.
    """

    errors: Array
    nbytes: Array
    costs: Array

    def choose(self, slope: float) -> Array:
        """Return for each group the place of the error that is best at `slope` bytes per unit of loss."""
        places: Array = np.argmin(self.nbytes + slope * self.costs, axis=1)
        return places

    def within(self, tolerance: float) -> Array:
        """Return the places that take the fewest bytes among those of equal slope within `tolerance`."""
        low, high = self._slopes()
        if self.cost(self.choose(low)) <= tolerance:
            return self.choose(low)
        for _ in range(_BISECTIONS):
            middle = float(np.sqrt(low * high))
            if self.cost(self.choose(middle)) <= tolerance:
                high = middle
            else:
                low = middle
        return self._filled(self.choose(high), tolerance)

    def sweep(self, count: int) -> list[Array]:
        """Return at most `count` divisions along the whole curve, from few bytes to many."""
        found: dict[tuple[int, ...], Array] = {}
        for slope in np.geomspace(*self._slopes(), 20 * count):
            places = self.choose(float(slope))
            found.setdefault(tuple(places.tolist()), places)
        divisions = list(found.values())
        picked = np.unique(np.linspace(0, len(divisions) - 1, count).round().astype(int))
        return [divisions[i] for i in picked]

    def cost(self, places: Array) -> float:
        """Return the expected increase of the loss, added up."""
        return float(self.costs[np.arange(len(places)), places].sum())

    def size(self, places: Array) -> float:
        """Return the bytes, added up."""
        return float(self.nbytes[np.arange(len(places)), places].sum())

    def place_of(self, error: float) -> int:
        """Return the place of the error nearest to one."""
        return int(np.argmin(np.abs(np.log(self.errors / error))))

    def _slopes(self) -> tuple[float, float]:
        """Return slopes at which every group takes its coarsest error, and its finest."""
        gained = np.maximum(-np.diff(self.nbytes, axis=1), 1e-9)
        paid = np.maximum(np.diff(self.costs, axis=1), 1e-30)
        slopes = gained / paid
        return float(slopes.min()) / 1e3, float(slopes.max()) * 1e3

    def _filled(self, places: Array, tolerance: float) -> Array:
        """Return places that use up a tolerance: coarser errors for the groups that save most by them."""
        places = places.copy()
        left = tolerance - self.cost(places)
        while True:
            best, gain = -1, 0.0
            for group, place in enumerate(places):
                if place + 1 < self.errors.size:
                    paid = self.costs[group, place + 1] - self.costs[group, place]
                    gained = self.nbytes[group, place] - self.nbytes[group, place + 1]
                    if paid <= left and gained > gain:
                        best, gain = group, float(gained)
            if best < 0:
                return places
            left -= self.costs[best, places[best] + 1] - self.costs[best, places[best]]
            places[best] += 1


def make_model(
    rates: Sequence[Rates],
    costs: Sequence[float],
    elements: Sequence[int],
    probed: float,
    power: float,
    bounds: tuple[float, float],
) -> Model:
    """Return the model of bytes and costs.

    Parameters
    ----------
    rates
        The rates of each group.
    costs
        The increase of the loss that each group made alone, coded at the error `probed`.
    elements
        The number of elements of each group.
    probed
        The error asked for at which the costs were found.
    power
        With which power of the tracking error the loss rises: 2 for a quadratic.
    bounds
        The least and the most error to choose from.
    """
    errors = np.geomspace(*bounds, CHOICES)
    share = np.array(elements) / sum(elements)
    # A group that seems to cost nothing was lucky with the sign, or with this one batch.
    known = np.maximum(np.array(costs), LEAST_SHARE * share * np.maximum(costs, 0).sum())
    found = [one.at(errors) for one in rates]
    at_probe = np.array([float(one.at(np.array([probed]))[0][0]) for one in rates])
    scaled = np.array([error for error, _ in found]) / at_probe[:, None]
    return Model(errors, np.array([nbytes for _, nbytes in found]), known[:, None] * scaled**power)
