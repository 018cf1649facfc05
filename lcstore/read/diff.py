"""How two states differ, tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.errors import CorruptionError
from lcstore.read.reader import Node, Reader
from lcstore.read.walk import Walker
from lcstore.state.layout import TensorSpec
from lcstore.state.names import Name, format_name
from lcstore.state.tree import MISSING, select, structure_names

#: Elements that are compared at a time: their float64 copies stay in the cache.
_CHUNK: Final = 1 << 16

Status: TypeAlias = Literal["same", "changed", "reshaped", "retyped", "added", "removed"]


@dataclass(frozen=True)
class Side:
    """One of the states compared: where it is, and which."""

    url: str
    step: int
    node: str


@dataclass(frozen=True)
class Described:
    """Shape and dtype of a tensor on one side."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class TensorDiff:
    """How one tensor differs.

    Attributes
    ----------
    path
        Its path.
    status
        ``"same"`` bits; ``"changed"``; ``"retyped"``: another dtype, compared by value; ``"reshaped"``;
        ``"added"``: only the second state has it; ``"removed"``: only the first.
    before, after
        Shape and dtype on either side; None where it is not there.
    size
        Elements compared; 0 where the two cannot be.
    norm
        Euclidean norm of the change; NaN where a value of either side is NaN, and where it cannot be had.
    relative
        That over the norm of the first; infinite where that is zero.
    changed
        Share of the elements whose bits (of another dtype: whose values) differ.
    largest
        The largest change of an element.
    scale
        Norm of the first.
    """

    path: str
    status: Status
    before: Described | None
    after: Described | None
    size: int = 0
    norm: float = math.nan
    relative: float = math.nan
    changed: float = math.nan
    largest: float = math.nan
    scale: float = math.nan


@dataclass(frozen=True)
class Diff:
    """How two states differ. Iterating gives a `TensorDiff` for each tensor, in the order of the states.

    Attributes
    ----------
    a, b
        What was compared.
    tensors
        Those of both states, then those that were removed.
    values
        Plain values that differ, by path: before and after (`MISSING` where one state has none).
    total
        All floating (and complex) tensors that can be compared, as if they were one; its path is empty.
        Counters and random state, whose numbers are no quantities beside them, count only where there is
        nothing else.
    """

    a: Side
    b: Side
    tensors: tuple[TensorDiff, ...]
    values: Mapping[str, tuple[object, object]]
    total: TensorDiff

    def __iter__(self) -> Iterator[TensorDiff]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, path: str) -> TensorDiff:
        """Return the difference of one tensor; `KeyError` if neither state has it."""
        for one in self.tensors:
            if one.path == path:
                return one
        raise KeyError(path)

    def __bool__(self) -> bool:
        """Say whether anything differs."""
        return bool(self.values) or any(one.status != "same" for one in self.tensors)

    def sorted(self, by: Literal["relative", "norm", "path"] = "relative") -> list[TensorDiff]:
        """Return the largest differences first; before them what has no number, and what is NaN."""
        if by == "path":
            return sorted(self.tensors, key=lambda one: one.path)
        return sorted(self.tensors, key=lambda one: (_rank(one), -_number(getattr(one, by)), one.path))

    def __str__(self) -> str:
        head = f"{_named(self.a)} to {_named(self.b)}"
        rows = [("tensor", "relative", "norm", "changed", "largest", ""), *map(_row, self.sorted())]
        if len(self.tensors) > 1:
            rows.append(_row(self.total))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for name, *cells, note in rows:
            numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True))
            lines.append(f"{name.ljust(widths[0])}  {numbers}  {note}".rstrip())
        changed = (f"{path}: {before!r} to {after!r}" for path, (before, after) in self.values.items())
        return "\n".join([head, *lines, *changed])


def _named(side: Side) -> str:
    return f"{side.url}@{side.step}"


def _row(one: TensorDiff) -> tuple[str, ...]:
    note = "" if one.status in ("same", "changed") else one.status
    if not one.size:
        return (one.path or "all", "", "", "", "", note)
    numbers = (f"{one.relative:.3g}", f"{one.norm:.4g}", f"{one.changed:.2%}", f"{one.largest:.3g}")
    return (one.path or "all", *numbers, note)


def _rank(one: TensorDiff) -> int:
    """Return where a tensor stands: what is not on both sides alike first, then what is not a number."""
    if one.status in ("added", "removed", "reshaped"):
        return 0
    return 1 if math.isnan(one.norm) else 2


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value


@dataclass
class Compared:
    """A state to compare: what its layout says of the tensors, their flat values, and its plain values."""

    side: Side
    specs: dict[Name, TensorSpec]
    values: dict[Name, Array]
    leaves: dict[Name, object]


def compared(
    url: str, node: Node, matches: Callable[[Name], bool], walker: Walker, reader: Reader
) -> Compared:
    """Return one side of a comparison, read from wherever `walker` stands."""
    part = select(node.layout.structure, matches)
    try:
        values = walker.values(node, part.tensors)
    except CorruptionError:  # on the way from the other state, which the path from the root may avoid
        walker.forget()
        values = walker.values(node, part.tensors)
    specs = [node.layout.wholes[t] for t in part.tensors]
    leaves = reader.leaves(node)
    _, paths = structure_names(node.layout.structure)
    return Compared(
        Side(url, node.record.step, node.name.node),
        {spec.name: spec for spec in specs},
        {spec.name: values[t] for spec, t in zip(specs, part.tensors, strict=True)},
        {paths[i]: leaves[i] for i in part.leaves},
    )


def compare(a: Compared, b: Compared, executor: Executor) -> Diff:
    """Compare two states; `executor` compares several tensors at a time. Their values are used up."""
    paths = [*b.specs, *(path for path in a.specs if path not in b.specs)]
    jobs = [partial(_compare, path, a, b) for path in paths]
    measured = list(executor.map(_call, jobs))
    leaves = {
        format_name(path): (a.leaves.get(path, MISSING), b.leaves.get(path, MISSING))
        for path in [*b.leaves, *(path for path in a.leaves if path not in b.leaves)]
    }
    differing = {path: pair for path, pair in leaves.items() if not _alike(*pair)}
    return Diff(a.side, b.side, tuple(one for one, _ in measured), differing, _total(measured))


def _alike(one: object, other: object) -> bool:
    return type(one) is type(other) and (one == other or (one != one and other != other))


def _call(job: Callable[[], tuple[TensorDiff, _Sums]]) -> tuple[TensorDiff, _Sums]:
    return job()


def _compare(path: Name, a: Compared, b: Compared) -> tuple[TensorDiff, _Sums]:
    text, before, after = format_name(path), a.specs.get(path), b.specs.get(path)
    x, y = a.values.pop(path, None), b.values.pop(path, None)
    sides = (_described(before), _described(after))
    if before is None or after is None or x is None or y is None:
        return TensorDiff(text, "added" if before is None else "removed", *sides), _Sums()
    if before.shape != after.shape:
        return TensorDiff(text, "reshaped", *sides), _Sums()
    sums = _sums(x, y)
    status: Status = "changed" if sums.changed else "same"
    return _difference(text, "retyped" if before.dtype != after.dtype else status, *sides, sums), sums


def _is_floating(one: TensorDiff) -> bool:
    side = one.before or one.after
    # numpy has no letter for bfloat16 and its like.
    return side is not None and dtype_from_name(side.dtype).kind in "fcV"


def _described(spec: TensorSpec | None) -> Described | None:
    return None if spec is None else Described(spec.shape, spec.dtype)


@dataclass
class _Sums:
    """What adds up over chunks, and over tensors."""

    size: int = 0
    changed: int = 0
    change: float = 0.0
    scale: float = 0.0
    largest: float = 0.0

    def add(self, other: _Sums) -> None:
        self.size += other.size
        self.changed += other.changed
        self.change += other.change
        self.scale += other.scale
        self.largest = _larger(self.largest, other.largest)


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
    with np.errstate(invalid="ignore", over="ignore"):
        before = _values(x)
        change = np.abs(np.where(differ, _values(y), 0) - np.where(differ, before, 0))
        squares = float(np.dot(change, change))
        size = np.abs(before)
        scale = float(np.dot(size, size))
    largest = float(change.max()) if change.size else 0.0
    return _Sums(x.size, int(np.count_nonzero(differ)), squares, scale, largest)


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
    norm, scale = math.sqrt(sums.change), math.sqrt(sums.scale)
    relative = 0.0 if norm == 0 else norm / scale if scale else norm * math.inf
    share = sums.changed / sums.size if sums.size else 0.0
    return TensorDiff(path, status, before, after, sums.size, norm, relative, share, sums.largest, scale)


def _total(measured: list[tuple[TensorDiff, _Sums]]) -> TensorDiff:
    total = _Sums()
    floats = [pair for pair in measured if _is_floating(pair[0])]
    for _, sums in floats or measured:
        total.add(sums)
    same = all(one.status == "same" for one, _ in floats or measured)
    return _difference("", "same" if same else "changed", None, None, total)
