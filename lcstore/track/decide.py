"""What a save does with each tensor, and on which step sizes: decided from values, before anything moves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from lcstore.arrays import Array
from lcstore.edges import grid
from lcstore.edges.columns import ADD, COLUMNS, EXACT, KEEP, NO_GRID, SET, Columns
from lcstore.edges.patterns import saved_by_delta, saved_by_deltas
from lcstore.layout.layout import Layout
from lcstore.layout.specs import TensorSpec
from lcstore.state.names import Name
from lcstore.track import samples, stepsizes
from lcstore.track import smallrows as rows
from lcstore.track.anew import FALLEN, fall_of, has_fallen, is_pruned, is_replaced
from lcstore.track.budget import LEAST_ERROR, MOST_ERROR, Budget
from lcstore.track.held import Held
from lcstore.track.known import Known
from lcstore.track.policy import Policy
from lcstore.track.rowcost import table_within
from lcstore.track.stepsizes import IN_ROWS, StepSize
from lcstore.track.steptable import StepTable, make_table

#: Bytes that the plain tensors of a pool have to save to be added to: each delta is read by every restore.
_LEAST_SAVED: Final = 2048
#: Plain tensors of no more elements are decided about together with all others of their size.
_SMALL: Final = 128
#: A tensor that moves so many times as far as its update scale says, which rises slowly, is told of apart.
_LAGS: Final = 1.25


@dataclass(frozen=True, eq=False)
class Asked:
    """A save that is asked for.

    Attributes
    ----------
    layout
        That of the new state; extends that of the last commit unless `anchor`.
    arrays
        The tensors in the order of the layout: flat, contiguous, in their logical dtype.
    policy
        The quality.
    shares
        What errors of single tensors are multiplied with, by place in the layout.
    anchor
        Set everything, on new grids.
    exact
        Store the exact value of everything besides.
    reset
        Tensors of weights to set on a new grid.
    delta_cost
        What a byte that is added to a plain tensor costs beside one that sets it: anchors are due by it.
    touched
        Of tensors of weights of which only some elements changed since the last commit: ``int64[r, 2]``,
        ranges of them, rising and apart. No others are looked at.
    """

    layout: Layout
    arrays: Sequence[Array]
    policy: Policy
    shares: Mapping[int, float]
    anchor: bool = False
    exact: bool = False
    reset: Set[Name] = frozenset()
    delta_cost: float = 1.0
    touched: Mapping[Name, Array] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Decision:
    """What a save does.

    Attributes
    ----------
    columns
        Those of the new node, but for what coding adds to the digests.
    tables
        The step sizes of each tensor that is added to.
    known, budget, saves
        What is remembered once the save is committed.
    watched
        The tensors that the worst row is looked for in.
    off_grid
        Tensors found not to fit their grid.
    """

    columns: Columns
    tables: dict[int, StepTable]
    known: dict[Name, Known]
    budget: Budget
    saves: int
    watched: list[int]
    off_grid: set[int]


class _Choice(NamedTuple):
    """What a save does with one tensor: its entries in the columns, and the rest as in a `Decision`."""

    op: int
    grid: int = NO_GRID
    shift: int = 0
    digest: int = 0
    scale: float = 0.0
    moved: float = 0.0
    known: Known | None = None
    table: StepTable | None = None
    risk: float | None = None
    off_grid: bool = False
    saved: float = 0.0


def decide(held: Held, asked: Asked) -> Decision:
    """Decide what a save does. Nothing is changed.

    Raises
    ------
    InvalidInputError
        `touched` leaves out elements that have changed.
    """
    tensors, columns = asked.layout.tensors, Columns.empty(len(asked.layout.tensors))
    deciding = _Deciding.of(held, asked)
    choices = _worth_it(tensors, deciding.choices())
    for name in COLUMNS:
        getattr(columns, name)[:] = [getattr(one, name) for one in choices]
    risks = {index: one.risk for index, one in enumerate(choices) if one.risk is not None}
    return Decision(
        columns=columns,
        tables={index: one.table for index, one in enumerate(choices) if one.table is not None},
        known={
            spec.name: one.known for spec, one in zip(tensors, choices, strict=True) if one.known is not None
        },
        budget=deciding.budget,
        saves=deciding.saves,
        watched=rows.endangered(risks, deciding.saves),
        off_grid={index for index, one in enumerate(choices) if one.off_grid},
    )


@dataclass(frozen=True, eq=False)
class _Deciding:
    """What all tensors of one save have in common.

    Attributes
    ----------
    before
        By place in the layout, that of the tensor which each goes on from; None where it is set.
    most
        The errors that weights may have at most in the last delta and in this one.
    """

    held: Held
    asked: Asked
    before: Sequence[int | None]
    budget: Budget
    factor: float
    saves: int
    is_anchor: bool
    most: tuple[float, float]

    @classmethod
    def of(cls, held: Held, asked: Asked) -> _Deciding:
        policy, budget, factor = asked.policy, held.budget, 1.0
        base, before = None if asked.anchor else held.layout, [None] * len(asked.layout.tensors)
        if base is not None:
            before = [None if at < 0 else at for at in asked.layout.goes_on_from(base).tolist()]
        if base is not None and policy.bytes_per_save is not None and policy.error is not None:
            if budget.factor is None:
                budget = budget.begun(_errors_before(asked, before), held.columns)
            factor = budget.factor or 1.0
        most = policy.most_error(held.saves - 1), policy.most_error(held.saves)
        return cls(held, asked, before, budget, factor, held.saves + 1, base is None, most)

    def choices(self) -> list[_Choice]:
        """Decide about all tensors, in their order."""
        alike: dict[tuple[str, int], list[int]] = {}
        tensors = self.asked.layout.tensors
        if not self.is_anchor and not self.asked.exact:
            for index, (spec, before) in enumerate(zip(tensors, self.before, strict=True)):
                if spec.role == "plain" and before is not None and 0 < (size := spec.size) <= _SMALL:
                    alike.setdefault((spec.pool, size), []).append(index)
        small = {index: one for some in alike.values() for index, one in self._plain_alike(some)}
        return [small.get(index) or self.choose(index, spec) for index, spec in enumerate(tensors)]

    def _plain_alike(self, indices: Sequence[int]) -> Iterator[tuple[int, _Choice]]:
        """Decide about plain tensors of one pool and one size, as `_plain` does about each."""
        specs = [self.asked.layout.tensors[index] for index in indices]
        size, pool = specs[0].size, self.held.pools[specs[0].pool]
        places = np.array([spec.offset for spec in specs])[:, None] + np.arange(size)
        now = np.concatenate([self.asked.arrays[index] for index in indices]).reshape(-1, size)
        held, word = pool[places], f"u{min(now.dtype.itemsize, 8)}"
        changed = (now.view(word) != held.view(word)).any(axis=1)
        saved, moved = np.zeros(changed.size), np.zeros(changed.size)
        if changed.any():
            moved[changed] = samples.movement(now[changed], held[changed])
            saved[changed] = saved_by_deltas(now[changed], held[changed], self.asked.delta_cost)
        digests = self._columns.digest[np.array([self.before[index] for index in indices])]
        each = (changed.tolist(), saved.tolist(), moved.tolist(), digests.tolist())
        for index, other, by, scale, digest in zip(indices, *each, strict=True):
            moves = _Choice(ADD if by else SET, scale=scale, saved=by)
            yield index, moves if other else _Choice(KEEP, digest=digest)

    def choose(self, index: int, spec: TensorSpec) -> _Choice:
        """Decide about one tensor."""
        flat, before = self.asked.arrays[index], self.before[index]
        if spec.role == "weights":
            return self._weights(index, spec, flat, before)
        if spec.role == "plain":
            return self._plain(spec, flat, before)
        return _Choice(SET)

    def _plain(self, spec: TensorSpec, flat: Array, before: int | None) -> _Choice:
        """Decide about a plain tensor: what it differs by from what readers have, where that is smaller."""
        if before is None or self.asked.exact:
            return _Choice(EXACT if self.is_anchor else SET)
        held = self.held.of(spec)
        if grid.same_bits(held, flat):
            return _Choice(KEEP, digest=int(self._columns.digest[before]))
        saved = saved_by_delta(flat, held, self.asked.delta_cost)
        scale = float(samples.movement(flat[None], held[None])[0])
        return _Choice(ADD if saved else SET, scale=scale, saved=saved)

    def _weights(self, index: int, spec: TensorSpec, flat: Array, before: int | None) -> _Choice:
        now = samples.take(flat)
        last = self.held.known.get(spec.name, Known(now))
        fixed = before is not None and spec.name not in self.asked.reset
        unit = int(self._columns.grid[before]) if fixed else NO_GRID
        if before is None or unit == NO_GRID:
            return _anew(spec, flat, now, last, begins=before is None)
        if not np.isfinite(now).all():
            return _Choice(KEEP, off_grid=True)
        return self._delta(index, spec, flat, before, last, now)

    def _delta(
        self, index: int, spec: TensorSpec, flat: Array, before: int, last: Known, now: Array
    ) -> _Choice:
        """Decide about weights that have a grid: nothing to add, or a delta on which step sizes."""
        columns, change, ranges = self._columns, now - last.sample, self.asked.touched.get(spec.name)
        if last.pause > 1:
            last = last._replace(pause=last.pause - 1)
        elif ranges is None and not now.all() and is_pruned(now, self.held.of(spec)):
            set_anew = _anew(spec, flat, now, last.pruned(), unit=int(columns.grid[before]))
            return set_anew._replace(scale=float(columns.scale[before]))  # what was pruned may come back
        touched = samples.touched(change)
        moved = samples.rms(change if touched is None else change[touched])
        replaced = is_replaced(now, last.sample, change)
        if replaced and ranges is None and 2 * np.count_nonzero(change) > change.size:
            return _anew(spec, flat, now, last)
        scale, last = last.follow(float(columns.scale[before]), moved, rows=touched is not None)
        kept = _Choice(
            KEEP,
            grid=int(columns.grid[before]),
            shift=int(columns.shift[before]),
            digest=int(columns.digest[before]),
            scale=min(scale, samples.LARGEST),
            moved=self._moved(before, change, moved, scale, rows=touched is not None or ranges is not None),
            known=last._replace(sample=now),
        )
        leaps = moved == 0 or moved > _LAGS * float(columns.scale[before])
        if has_fallen(spec, flat, now, kept.grid, fall_of(moved, now, kept.grid, leaps=leaps)):
            return _anew(spec, flat, now, last)
        if ranges is not None:
            samples.check_touched(spec, ranges, change)
            nothing = not ranges.size
        else:
            nothing = moved == 0 and self._is_there(spec, flat, kept.grid)
        if nothing:
            return kept
        known, trend, finer = last, 0.0, None
        if ranges is None and touched is None:
            trend, known = known.trend(change, moved)
        error, rises = self._error(index, spec)
        aimed, previous = error if touched is None else error * IN_ROWS, None if rises else kept.shift or None
        if replaced:  # of few rows: a delta that is near takes less than the whole table
            aimed = LEAST_ERROR
        chosen = usual = _step_size(spec, kept, previous, aimed, trend)
        if chosen.units == 1 and has_fallen(spec, flat, now, kept.grid, FALLEN):
            return _anew(spec, flat, now, last)
        if ranges is None and moved == 0:
            usual = chosen.at_rest()
            finer, known = known.rest(spec.size, flushed=self._is_there(spec, flat, kept.grid, sampled=True))
        elif ranges is None:
            known = known._replace(still=0) if known.still else known
            if touched is None:
                finer, known = known.by_part(change, moved, spec.size)
        bound, norms, needs, risk = self.asked.policy.row_error_of(spec.name, error), None, None, None
        if bound is not None:
            turn = rows.turn_of(index, self.saves)
            norms, needs, risk = rows.watch(
                flat, spec, kept.grid, usual, bound, known=known.norms, turn=turn, ranges=ranges
            )
        doubled = 0
        if needs is None or moved == 0 or self.asked.policy.gives_row_error(spec.name):
            table = make_table(usual, spec.size, finer, needs)
        else:
            units = np.ldexp(change, -kept.grid)
            table, doubled = table_within(usual, spec.size, finer, needs, units, known.doubled)
        return kept._replace(
            op=ADD,
            shift=chosen.scale,
            known=known._replace(sample=now, norms=norms, doubled=doubled),
            table=table,
            risk=risk,
        )

    def _moved(self, before: int, change: Array, moved: float, scale: float, *, rows: bool) -> float:
        """Return how far a tensor has `moved` as a whole where its update scale does not say it; 0 elsewhere.

        That of few `rows` which are touched is larger, and one that cannot rise at once is far smaller. What
        rests, or has no touched row in the sample, keeps what was said of its rows.
        """
        was, scale_was = float(self._columns.moved[before]), float(self._columns.scale[before])
        if rows:
            was = was or scale_was  # as `Columns.movement` has it
        if moved == 0:
            return was if was <= scale_was else 0.0
        moved = min(samples.rms(change), samples.LARGEST)
        if rows:
            return stepsizes.unlike(moved, was)
        return moved if moved > _LAGS * min(scale, samples.LARGEST) else 0.0

    @property
    def _columns(self) -> Columns:
        assert self.held.columns is not None
        return self.held.columns

    def _error(self, index: int, spec: TensorSpec) -> tuple[float, bool]:
        """Return the tracking error aimed at for a tensor, and whether the last delta had to be nearer."""
        error, times = self.asked.policy.error_of(spec.name), self.factor * self.asked.shares.get(index, 1.0)
        assert error is not None
        if times != 1:
            error = max(LEAST_ERROR, min(MOST_ERROR, error * times))
        return min(self.most[1], error), self.most[0] < error

    def _is_there(self, spec: TensorSpec, flat: Array, unit: int, *, sampled: bool = False) -> bool:
        """Return whether readers have the value of a tensor, or of its sample, as near as its grid allows."""
        has = self.held.of(spec)
        if sampled:
            places = samples.positions(spec.size)
            flat, has = flat[places], has[places]
        return grid.is_at(flat, unit, has, spec.dtype)


def _errors_before(asked: Asked, before: Sequence[int | None]) -> dict[int, float]:
    """Return the errors that weights are to have, but for a budget, by their places in the layout before."""
    found = {}
    for index, (at, spec) in enumerate(zip(before, asked.layout.tensors, strict=True)):
        error = asked.policy.error_of(spec.name) if spec.role == "weights" else None
        if at is not None and error is not None:
            found[at] = error * asked.shares.get(index, 1.0)
    return found


def _worth_it(tensors: Sequence[TensorSpec], choices: list[_Choice]) -> list[_Choice]:
    """Set plain tensors of which those of their pool together save too little for an object of their own."""
    saved = Counter[str]()
    for spec, one in zip(tensors, choices, strict=True):
        saved[spec.pool] += round(one.saved)
    return [
        one._replace(op=SET) if one.saved and saved[spec.pool] < _LEAST_SAVED else one
        for spec, one in zip(tensors, choices, strict=True)
    ]


def _anew(
    spec: TensorSpec, flat: Array, now: Array, last: Known, *, begins: bool = False, unit: int | None = None
) -> _Choice:
    """Decide about a tensor of weights that is set: exactly, and on which grid; or as all zeros.

    Where it `begins`, there is nothing that it moved from. Zeros go on the grid of `unit`, if they have one.
    """
    known = last._replace(sample=now, norms=None)
    magnitude = grid.largest(flat)
    unit = grid.exponent_of(magnitude, spec.dtype) if magnitude or unit is None else unit
    if unit is None and not magnitude and flat.view(np.uint8).any():  # zeros, some of them negative
        unit = grid.lowest(spec.dtype)
    if unit is None:
        return _Choice(SET, known=known, off_grid=magnitude != 0)
    moved = 0.0 if begins else samples.rms(now - last.sample)
    known_to_move = math.isfinite(moved)  # it may have been infinite before
    return _Choice(EXACT, unit, known=known, moved=min(moved, samples.LARGEST) if known_to_move else 0.0)


def _step_size(spec: TensorSpec, now: _Choice, previous: int | None, error: float, trend: float) -> StepSize:
    """Return the usual step size of a tensor."""
    most = grid.grid_bits(spec.dtype)
    return stepsizes.choose_step_size(now.scale, error, now.grid, previous, most, trend)
