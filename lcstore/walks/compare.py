"""Comparing two states: what their tensors' changes add up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import CorruptionError
from lcstore.format.labels import At
from lcstore.jobs.jobs import map_all
from lcstore.layout.specs import TensorSpec
from lcstore.read.find import find
from lcstore.read.lookup import Wanted
from lcstore.read.node import Node
from lcstore.read.reader import Reader
from lcstore.state.names import Name, format_name
from lcstore.state.tree import MISSING, names_in
from lcstore.walks.diff import Described, Diff, Side, Status, TensorDiff, is_quantity
from lcstore.walks.tracking import squared_errors
from lcstore.walks.walker import Walker

#: Elements that are compared at a time: their float64 copies stay in the cache.
_CHUNK: Final = 1 << 16


@dataclass
class Compared:
    """A state to compare: what its layout says of the tensors, their flat values, and its plain values.

    `errors` are the squares of the norms of the tensors' errors, by place among `Layout.wholes`. `ties` are
    further names of tensors, which do not count twice.
    """

    side: Side
    node: Node
    specs: dict[Name, TensorSpec]
    values: dict[Name, Array]
    leaves: dict[Name, object]
    errors: dict[Name, float]
    ties: frozenset[Name] = frozenset()


def diff(reader: Reader, a: At, b: At, names: str | Sequence[str] | None, other: Reader | None) -> Diff:
    """Return how two states differ, the second one of the store that `other` reads; see `Store.diff`."""
    wanted, walker = Wanted(names), Walker(reader)
    walker.goes_on = other is None
    first = compared(reader, a, wanted, walker)
    walker.goes_on = False
    if other is None:  # what was just listed has both, and the walk goes on from the one to the other
        second = compared(reader, b, wanted, walker, listed=True)
    else:
        second = compared(other, b, wanted, Walker(other))
    wanted.check([first.node, second.node], reader.url)
    return compare(first, second, reader.executor)


def compared(reader: Reader, at: At, wanted: Wanted, walker: Walker, *, listed: bool = False) -> Compared:
    """Return one side of a comparison, read from wherever `walker` stands."""
    return find(
        reader, at, lambda found: found.using(lambda state: _side(state.node, wanted, walker)), listed=listed
    )


def _side(node: Node, wanted: Wanted, walker: Walker) -> Compared:
    part = wanted.part(node)
    try:
        values = walker.values(node, part.tensors)
    except CorruptionError:  # on the way from the other state, which the path from the root may avoid
        walker.forget()
        values = walker.values(node, part.tensors)
    specs = [node.layout.wholes[t] for t in part.tensors]
    found = names_in(part.structure)
    leaves, names = walker.reader.leaves(node), [*node.leaf_places]
    squares, shards = squared_errors(node), node.layout.shards
    errors = [float(squares[list(shards[t])].sum()) for t in part.tensors]
    return Compared(
        _told(walker.reader.url, node),
        node,
        {name: specs[place] for name, place in found.places.items()},
        {name: values[part.tensors[place]] for name, place in found.places.items()},
        {names[i]: leaves[i] for i in part.leaves},
        {name: errors[place] for name, place in found.places.items()},
        frozenset(found.ties),
    )


def _told(url: str, node: Node) -> Side:
    record = node.record
    return Side(url, record.step, node.name.node, record.run, dict(record.metrics), deepcopy(record.metadata))


def compare(a: Compared, b: Compared, executor: Executor) -> Diff:
    """Compare two states; `executor` compares several tensors at a time. Their values are used up."""
    paths = [*b.specs, *(path for path in a.specs if path not in b.specs)]
    measured = list(map_all(executor, partial(_compare, a, b), paths))
    measured = [
        (replace(one, parameter=_parameter(path, b.node if path in b.specs else a.node)), sums)
        for path, (one, sums) in zip(paths, measured, strict=True)
    ]
    leaves = {
        format_name(path): (a.leaves.get(path, MISSING), b.leaves.get(path, MISSING))
        for path in [*b.leaves, *(path for path in a.leaves if path not in b.leaves)]
    }
    differing = {path: pair for path, pair in leaves.items() if not _alike(*pair)}
    counted = {path: pair for path, pair in zip(paths, measured, strict=True) if path not in a.ties & b.ties}
    quantities = [pair for path, pair in counted.items() if is_quantity(path, pair[0])]
    total = _total(quantities or [*counted.values()])
    return Diff(a.side, b.side, tuple(one for one, _ in measured), differing, total)


def _parameter(path: Name, node: Node) -> str | None:
    """Return what a moment is of, where an optimizer of torch keeps it under the number of a parameter."""
    optimizer, kept = path[:-3], path[-3:]
    updates = node.layout.notes.updates.get(optimizer, ())
    if len(kept) == 3 and kept[0] == "state" and isinstance(kept[1], int) and kept[1] < len(updates):
        return format_name(updates[kept[1]])
    return None


def _alike(one: object, other: object) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _compare(a: Compared, b: Compared, path: Name) -> tuple[TensorDiff, _Sums]:
    text, before, after = format_name(path), a.specs.get(path), b.specs.get(path)
    x, y = a.values.pop(path, None), b.values.pop(path, None)
    sides = (_described(before), _described(after))
    if before is None or after is None or x is None or y is None:
        return TensorDiff(text, "added" if before is None else "removed", *sides), _Sums()
    if before.shape != after.shape:
        return TensorDiff(text, "reshaped", *sides), _Sums()
    sums = _sums(x, y)
    sums.error = 0 if a.side == b.side else a.errors[path] + b.errors[path]
    status: Status = "changed" if sums.changed else "same"
    return _difference(text, "retyped" if before.dtype != after.dtype else status, *sides, sums), sums


def _described(spec: TensorSpec | None) -> Described | None:
    return None if spec is None else Described(spec.shape, spec.dtype)


@dataclass
class _Sums:
    """What adds up over chunks, and over tensors."""

    size: int = 0
    changed: int = 0
    change: float = 0.0
    scale: float = 0.0
    second: float = 0.0
    largest: float = 0.0
    error: float = 0.0
    nans: int = 0

    def add(self, other: _Sums) -> None:
        self.size += other.size
        self.changed += other.changed
        self.change += other.change
        self.scale += other.scale
        self.second += other.second
        self.largest = _larger(self.largest, other.largest)
        self.error += other.error
        self.nans += other.nans


def _larger(a: float, b: float) -> float:
    """Return the larger number; NaN if either is."""
    return a if math.isnan(a) or a >= b else b


def _sums(x: Array, y: Array) -> _Sums:
    total = _Sums()
    for start in range(0, x.size, _CHUNK):
        total.add(_chunk_sums(x[start : start + _CHUNK], y[start : start + _CHUNK]))
    return total


def _chunk_sums(x: Array, y: Array) -> _Sums:
    """Sum up one chunk in float64. The same bits are no change, even if they are NaN or infinity."""
    differ = _bits(x) != _bits(y) if x.dtype == y.dtype else _values(x) != _values(y)
    if differ.ndim > 1:
        differ = differ.any(axis=1)
    changed = int(np.count_nonzero(differ))
    with np.errstate(invalid="ignore", over="ignore"):
        before, after = _values(x), _values(y)
        change = np.abs(np.where(differ, after, 0) - np.where(differ, before, 0))
        squares, scale = float(np.dot(change, change)), _square(before)
        second = _square(after) if changed else scale
    largest = float(change.max()) if change.size else 0.0
    nans = int(np.isnan(change).sum()) if math.isnan(squares) else 0
    return _Sums(x.size, changed, squares, scale, second, largest, nans=nans)


def _square(values: Array) -> float:
    """Return the square of the norm; of what is finite alone where not all of it is.

    A mask of infinities beside weights is no measure of how far they moved.
    """
    square = _dot(values)
    if not math.isfinite(square):
        square = _dot(values[np.isfinite(values)])
    return square


def _dot(values: Array) -> float:
    flat = values.view(np.float64)  # of complex numbers both parts
    return float(np.dot(flat, flat))


def _bits(values: Array) -> Array:
    """Return the bits of values as integers, a row of them where one is not enough."""
    if values.dtype.itemsize <= 8:
        return values.view(f"u{values.dtype.itemsize}")
    return values.view(np.uint64).reshape(values.size, -1)


def _values(values: Array) -> Array:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _difference(
    path: str, status: Status, before: Described | None, after: Described | None, sums: _Sums
) -> TensorDiff:
    norm, scale, second = (math.sqrt(square) for square in (sums.change, sums.scale, sums.second))
    relative = 0.0 if norm == 0 else norm / scale if scale else norm * math.inf
    share = sums.changed / sums.size if sums.size else 0.0
    error, growth = math.sqrt(sums.error), _growth(norm, scale, second)
    numbers = (norm, relative, share, sums.largest, scale, error, sums.nans, growth)
    return TensorDiff(path, status, before, after, sums.size, *numbers)


def _growth(norm: float, first: float, second: float) -> float:
    """Return the second norm over the first; of other elements are these where one is not finite any more."""
    if norm == 0:
        return 1.0
    if not math.isfinite(norm):
        return math.nan
    return second / first if first else second * math.inf


def _total(measured: list[tuple[TensorDiff, _Sums]]) -> TensorDiff:
    total = _Sums()
    for _, sums in measured:
        total.add(sums)
    same = all(one.status == "same" for one, _ in measured)
    return _difference("", "same" if same else "changed", None, None, total)
