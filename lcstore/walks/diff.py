"""How two states differ, tensor by tensor."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from lcstore.dtypes import dtype_from_name
from lcstore.format.labels import flat
from lcstore.state.frameworks import family_of
from lcstore.state.names import Name, parse_name
from lcstore.state.roles import is_optimizer

#: So small a part of a tensor is what its grid rounds off.
_ROUNDED: Final = 1e-5
#: Characters of a value that are told.
_MOST_TEXT: Final = 60

#: The columns of a table of differences that are numbers.
NUMBERS: Final = ("relative", "error", "growth", "norm", "changed", "largest")

#: What differences are sorted by.
Sorting: TypeAlias = Literal["relative", "growth", "norm", "path"]
Status: TypeAlias = Literal["same", "changed", "reshaped", "retyped", "added", "removed"]


@dataclass(frozen=True)
class Side:
    """One of the states compared: where it is, which it is, and what its record says.

    Attributes
    ----------
    url, step, node, run
        Its store, its step, its node, and the number of the run that saved it.
    metrics, metadata
        As given to `save`.
    """

    url: str
    step: int
    node: str
    run: int
    metrics: Mapping[str, float] = field(default_factory=dict, compare=False)
    metadata: Mapping[str, object] = field(default_factory=dict, compare=False)


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
        Its name.
    status
        ``"same"`` bits, as they restore; ``"changed"``; ``"retyped"``: another dtype, compared by value;
        ``"reshaped"``; ``"added"``: only the second state has it; ``"removed"``: only the first.
    before, after
        Shape and dtype on either side; None where it is not there.
    size
        Elements compared; 0 where the two cannot be.
    norm
        Euclidean norm of the change; NaN where a value of either side is NaN, and where it cannot be had.
    relative
        That over `scale`; infinite where that is zero.
    changed
        Share of the elements whose bits (of another dtype: whose values) differ.
    largest
        The largest change of an element.
    scale
        Norm of the first, of its values that are finite.
    error
        About how far the change may be off, as a norm: by the errors that the two saves recorded. 0 where
        every bit is given of both; NaN where it is not known, as of moments.
    nans
        Elements that differ and of which one is NaN, so that their change is none.
    growth
        Norm of the second over that of the first: above 1 where the second has the larger values, and
        infinite where the first has none but zeros. NaN where `norm` is not finite.
    parameter
        The name of the parameter that an optimizer of torch keeps it for, under a number; None for others.
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
    error: float = math.nan
    nans: int = 0
    growth: float = math.nan
    parameter: str | None = None

    @property
    def is_mostly_error(self) -> bool:
        """Whether half of the change, by its squares, or more is what `error` says."""
        return 0 < self.norm <= math.sqrt(2) * self.error

    @property
    def may_differ(self) -> bool:
        """Whether it restores the same from both states, though what was saved may differ by `error`.

        What rests on its grid may not, though that rounds.
        """
        return self.status == "same" and self.error > _ROUNDED * self.scale


@dataclass(frozen=True, repr=False)
class Diff:
    """How two states differ: it prints as a table, and iterating gives a `TensorDiff` for each tensor.

    Attributes
    ----------
    a, b
        What was compared.
    tensors
        Those of both states in their order, then those that were removed.
    values
        Plain values that differ, by name: before and after (`MISSING` where one state has none).
    total
        All floating (and complex) tensors that can be compared, as if they were one; its name is empty.
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
        """Return whether anything differs, as the states restore."""
        return bool(self.values) or any(one.status != "same" for one in self.tensors)

    @property
    def steps(self) -> tuple[str, str]:
        """The step of each state; where both are of one, with its run and the beginning of its node."""
        a, b = self.a, self.b
        more = [f" (run {side.run}, node {side.node[:8]})" * (a.step == b.step) for side in (a, b)]
        return f"{a.step}{more[0]}", f"{b.step}{more[1]}"

    def sorted(self, by: Sorting = "relative") -> list[TensorDiff]:
        """Return the largest differences first; before them what has no number, and what is NaN.

        By ``"growth"`` come those first whose norm grew or shrank by the largest factor. What optimizers keep
        comes behind the model, by ``"relative"`` too in that order: most of what changes in moments from save
        to save is error, which hides one that died. Counters and random state are last.
        """
        if by == "path":
            return sorted(self.tensors, key=lambda one: one.path)
        return sorted(self.tensors, key=lambda one: (*_rank(one), -_measure(one, by), one.path))

    def said_of_same(self) -> list[str]:
        """Return lines that say how many tensors are the same, and how many of these may truly differ."""
        same = sum(one.status == "same" for one in self)
        # A layer that comes and goes within its error is never sent, and is the same by nothing but that.
        unsure = [one for one in self if one.may_differ]
        said = [f"Same in both: {same} of {len(self)} tensors."] if same else []
        if unsure:
            error, most = max((one.error / one.scale if one.scale else math.inf, one.path) for one in unsure)
            said.append(
                f"{len(unsure)} of these may truly differ, by the errors of both saves: {most} the most, by "
                f"about {error:.2g} of its norm."
            )
        return said

    def said_of_labels(self) -> list[str]:
        """Return a line for each metric, and for each value of metadata, that differs."""
        a, b = self.a, self.b
        metadata = dict(flat(a.metadata)), dict(flat(b.metadata))
        return [*_differing("metric", a.metrics, b.metrics), *_differing("metadata", *metadata)]

    def __str__(self) -> str:
        before, after = self.steps
        head = f"{self.a.url}@{before} to {self.b.url}@{after}"
        differing = [one for one in self.sorted() if one.status != "same"]
        rows = [("tensor", *NUMBERS, ""), *map(_row, differing)]
        if len(self.tensors) > 1:
            rows.append(_row(self.total))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for name, *cells, note in rows:
            numbers = "  ".join(cell.rjust(width) for cell, width in zip(cells, widths[1:-1], strict=True))
            lines.append(f"{name.ljust(widths[0])}  {numbers}  {note}".rstrip())
        changed = (f"{path}: {before!r} to {after!r}" for path, (before, after) in self.values.items())
        return "\n".join([head, *lines, *changed, *self.said_of_same(), *self.said_of_labels()])

    __repr__ = __str__  # the fields of a thousand tensors are no answer at a prompt or in a notebook


def _differing(what: str, before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[str]:
    for name in {**before, **after}:
        texts = [repr(side[name]) if name in side else "none" for side in (before, after)]
        if len({*texts}) > 1:
            shown = (text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..." for text in texts)
            yield f"{what} {name}: {' to '.join(shown)}"


def is_quantity(path: Name, one: TensorDiff) -> bool:
    """Return whether a tensor counts beside others: no integer, and no number of an optimizer."""
    side = one.before or one.after
    floating = side is not None and family_of(dtype_from_name(side.dtype)) in ("float", "complex")
    return floating and not (one.size == 1 and is_optimizer(path))


def cells_of(one: TensorDiff) -> tuple[tuple[str, ...], str]:
    """Return the numbers of a difference as text, the error beside what it is relative to; and a note."""
    note: str = "" if one.status in ("same", "changed") else one.status
    kept_for = "" if one.parameter is None else f"of {one.parameter}"
    if not one.size:
        return ("",) * len(NUMBERS), ", ".join(filter(None, (note, kept_for)))
    relative = "NaN" if math.isnan(one.norm) else f"{one.relative:.3g}"
    growth = "" if math.isnan(one.growth) else f"{one.growth:.4g}"
    known = one.scale > 0 and not math.isnan(one.error)
    error = f"{one.error / one.scale:.2g}" if known else ""
    note = note or "mostly error" * one.is_mostly_error or f"{one.nans:,} NaN" * bool(one.nans)
    numbers = (relative, error, growth, f"{one.norm:.4g}", f"{one.changed:.2%}", f"{one.largest:.3g}")
    return numbers, ", ".join(filter(None, (note, kept_for)))


def _row(one: TensorDiff) -> tuple[str, ...]:
    numbers, note = cells_of(one)
    return (one.path or "all", *numbers, note)


def _rank(one: TensorDiff) -> tuple[int, int]:
    """Return where a tensor stands: what is not on both sides alike first, then what is not a number."""
    path = parse_name(one.path)
    besides = 2 if not is_quantity(path, one) else 1 if is_optimizer(path) else 0
    if one.status in ("added", "removed", "reshaped"):
        return besides, 0
    return besides, 1 if math.isnan(one.norm) else 2


def _measure(one: TensorDiff, by: Sorting) -> float:
    """Return how large a difference is; of what is in an optimizer, and has no error, `relative` is noise."""
    if by == "growth" or (by == "relative" and is_optimizer(parse_name(one.path))):
        return math.inf if one.growth in (0, math.inf) else _number(abs(math.log(one.growth)))
    return _number(one.norm if by == "norm" else one.relative)


def _number(value: float) -> float:
    return 0.0 if math.isnan(value) else value
