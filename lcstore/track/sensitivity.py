"""Errors of weights by their second moments: less where the loss feels them, more where it hardly does.

The mean square of a tensor's gradient, which Adam and its kin keep as their second moment, estimates the
curvature of the loss there (the empirical Fisher information: Martens, "New insights and perspectives on the
natural gradient method", 2020). At the best division of bytes, errors differ by their weights alone
(reverse water-filling: Cover and Thomas, "Elements of Information Theory", 10.3.3). Measured curvature rises
more slowly than second moments do, and trusting them less errs on the safe side: the weights are the roots
of second moments, which is the metric in which Adam takes its steps.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name
from lcstore.layout.layout import Layout
from lcstore.layout.specs import TensorSpec
from lcstore.state.names import Name
from lcstore.state.roles import guess_role, second_moment_place
from lcstore.state.wrappers import bare_name
from lcstore.track import samples
from lcstore.track.policy import Policy

#: Bounds of what an error is multiplied with: what second moments do not tell may matter later.
LEAST, MOST = 0.2, 2.0
_BISECTIONS: Final = 60
#: What stands before a parameter's name where a distributed checkpoint has made keys of one part.
_FLATTENED: Final = re.compile(r"^(?:(?:optim|optimizer|optimizers|optimizer_state)\.)?(?:state\.)?")

#: Second moments by optimizer and shape, then by the parameter's number.
_Numbered: TypeAlias = dict[tuple[Name, tuple[int, ...]], dict[int, int]]


class Sensitivity:
    """Which second moment belongs to which tensor of weights, and what it makes of their errors."""

    def __init__(self) -> None:
        self._known: tuple[Layout, dict[int, int]] | None = None

    def shares(self, layout: Layout, arrays: Sequence[Array], policy: Policy) -> dict[int, float]:
        """Return what to multiply errors of weights with, by place in the layout; others stay.

        The sum of squared errors, each weighted by the root of its tensor's mean second moment, is that of
        one error for all. Tensors without a second moment stay out of it, as do those whose error a rule
        gives.

        Parameters
        ----------
        layout
            Of the state.
        arrays
            Its tensors, flat, in the order of the layout.
        policy
            Its errors are not weighted unless it says so.
        """
        if not policy.weighted or policy.error is None:
            return {}
        if self._known is None or self._known[0] is not layout:
            self._known = (layout, moments_of(layout))
        sizes: list[float] = []
        metric: list[float] = []
        places: list[int] = []
        for tensor, moment in self._known[1].items():
            if policy.gives_error(layout.tensors[tensor].name):
                continue
            mean = float(np.mean(samples.take(arrays[moment]))) if arrays[moment].size else 0.0
            if 0 < mean < math.inf:
                places.append(tensor)
                sizes.append(float(layout.tensors[tensor].size))
                metric.append(math.sqrt(mean))
        return dict(zip(places, divide(np.array(sizes), np.array(metric)).tolist(), strict=True))


def divide(sizes: Array, metric: Array) -> Array:
    """Return the factors of equal slope: as ``metric**-0.5``, within bounds.

    Parameters
    ----------
    sizes
        Elements of each tensor.
    metric
        What a squared error in each costs per element, in any unit.

    Returns
    -------
    Array
        ``float64[n]``, `LEAST` to `MOST`; the weighted sum of their squares is that of ones.
    """
    if not sizes.size:
        return np.empty(0)
    relative = metric / metric.max()
    weights, wanted = sizes * relative, 1 / np.sqrt(relative)
    low, high = LEAST / float(wanted.max()), MOST
    for _ in range(_BISECTIONS):
        middle = math.sqrt(low * high)
        if float((weights * (np.clip(middle * wanted, LEAST, MOST) ** 2 - 1)).sum()) <= 0:
            low = middle
        else:
            high = middle
    factors: Array = np.clip(low * wanted, LEAST, MOST)
    return factors


def moments_of(layout: Layout) -> dict[int, int]:
    """Return the place of the second moment of each tensor of weights that has one.

    Moments are under the parameter's name, or numbered as torch numbers them. Where nothing is noted of
    those numbers, the first of each shape is taken for that of the first tensor, where there are as many of
    one as of the other. Weights that a state has several times over (an average of them) share a moment.
    """
    noted = {
        (*optimizer, "state", number): layout.index[name]
        for optimizer, names in layout.notes.updates.items()
        for number, name in enumerate(names)
    }
    weights = [index for index, spec in enumerate(layout.tensors) if spec.role == "weights"]
    found: dict[int, int] = {}
    numbered: _Numbered = {}
    named = _Names(layout, weights)
    for index, spec in enumerate(layout.tensors):
        if not _is_second_moment(spec):
            continue
        bare, name = _parameter(spec.name)
        if bare in noted:
            found.setdefault(noted[bare], index)
        owners = named.find(bare, name, spec.shape)
        for owner in owners:
            found.setdefault(owner, index)
        if not owners and bare and isinstance(bare[-1], int):
            numbered.setdefault((bare[:-1], spec.shape), {}).setdefault(bare[-1], index)
    for owner, moment in _by_number(layout, weights, numbered):
        found.setdefault(owner, moment)
    return dict(sorted(found.items()))


class _Names:
    """Tensors of weights by the last parts of their names."""

    def __init__(self, layout: Layout, weights: Sequence[int]) -> None:
        self._layout = layout
        self._weights = weights
        self._ending: dict[int, dict[tuple[Name, tuple[int, ...]], list[int]]] = {}

    def find(self, bare: Name, name: int, shape: tuple[int, ...]) -> list[int]:
        """Return the tensors of that name: the last `name` parts, or more where a tree has several."""
        for length in range(name, len(bare) + 1):
            owners = self._of_length(length).get((bare[-length:], shape), [])
            roots = {self._layout.tensors[owner].name[0] for owner in owners}
            if len(roots) == len(owners):
                return owners
        return []

    def _of_length(self, length: int) -> dict[tuple[Name, tuple[int, ...]], list[int]]:
        if length not in self._ending:
            ending = self._ending[length] = {}
            for index in self._weights:
                spec = self._layout.tensors[index]
                if len(spec.name) >= length:
                    ending.setdefault((bare_name(spec.name)[-length:], spec.shape), []).append(index)
        return self._ending[length]


def _by_number(layout: Layout, weights: Sequence[int], numbered: _Numbered) -> Iterator[tuple[int, int]]:
    """Yield tensors and moments of the same number: those of one tree and shape, of one optimizer."""
    trees: dict[tuple[Name, tuple[int, ...]], list[int]] = {}
    for index in weights:
        spec = layout.tensors[index]
        trees.setdefault((spec.name[:1], spec.shape), []).append(index)
    fitting = Counter((shape, len(moments)) for (_, shape), moments in numbered.items())
    for (_, shape), moments in numbered.items():
        if fitting[shape, len(moments)] > 1:  # two optimizers: whose tree it is cannot be told
            continue
        for (_, of_tree), tensors in trees.items():
            if of_tree == shape and len(tensors) == len(moments):
                yield from zip(tensors, (moments[number] for number in sorted(moments)), strict=True)


def _is_second_moment(spec: TensorSpec) -> bool:
    """Return whether a tensor is a second moment, plain ones included."""
    if spec.role == "plain":
        return guess_role(spec.name, dtype_from_name(spec.dtype), spec.shape) == "second_moment"
    return spec.role == "second_moment"


def _parameter(path: Name) -> tuple[Name, int]:
    """Return the name of a second moment without its field, and how many parts name the parameter."""
    place = second_moment_place(path)
    if place < 0:
        return path, 1
    owner = str(path[place]).rpartition(".")[0]  # of a flattened key: "state.fc.weight.exp_avg_sq"
    kept = (_FLATTENED.sub("", owner),) if owner else ()
    return bare_name((*path[:place], *kept, *path[place + 1 :])), max(1, len(path) - 1 - place)
