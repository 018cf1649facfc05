"""The track: per pool the integers (or bytes) that a reader of the last commit would have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_from_name
from lcstore.codec.tables import TableCache
from lcstore.errors import InvalidInputError
from lcstore.kernels import grid as kernels
from lcstore.state.layout import Layout, PoolSpec, TensorSpec
from lcstore.state.names import Name, format_name
from lcstore.state.poolmap import PoolMap
from lcstore.track import grid, samples, steps
from lcstore.track.columns import ADD, EXACT, KEEP, NO_GRID, SET, Columns
from lcstore.track.draft import Draft
from lcstore.track.policy import Policy
from lcstore.track.rate import LEAST_ERROR, MOST_ERROR, Rate
from lcstore.track.scratch import Scratch
from lcstore.track.sensitivity import Sensitivity

#: Update scales are recorded as float32; those of float64 tensors may be larger.
_LARGEST_SCALE: Final = float(np.finfo(np.float32).max)


class Track:
    """What a reader of the last commit has, and what the next delta needs to know besides.

    Not thread-safe: one save at a time. The jobs of one draft may run side by side.

    Attributes
    ----------
    layout, columns
        Of the node that the track stands on; None before the first commit.
    pools
        By name: ``int32`` or ``int64`` for weights, values in their dtype for plain pools. Moments are not
        held: they are set afresh in each edge.
    samples
        By path: what the sampled elements of each tensor of weights were at the last commit.
    """

    def __init__(self) -> None:
        self.layout: Layout | None = None
        self.columns: Columns | None = None
        self.pools: dict[str, Array] = {}
        self.samples: dict[Name, Array] = {}
        self.tables = TableCache()
        self.scratch = Scratch()
        self.rate = Rate()
        self.sensitivity = Sensitivity()
        self._maps: tuple[Layout, dict[str, PoolMap]] | None = None

    def draft(
        self,
        layout: Layout,
        arrays: Sequence[Array],
        policy: Policy,
        *,
        anchor: bool,
        exact: bool = False,
        reset: Set[Name] = frozenset(),
        touched: Mapping[Name, Array] | None = None,
    ) -> Draft:
        """Begin a save.

        Parameters
        ----------
        layout
            Of the new state; extends the track's own unless `anchor`.
        arrays
            The tensors in the order of the layout: flat, contiguous, in their logical dtype.
        policy
            The quality.
        anchor
            Set everything, on new grids.
        exact
            Store the exact value of everything besides.
        reset
            Tensors of weights to set on a new grid.
        touched
            Of tensors of weights of which only some elements changed since the last commit: ``int64[r, 2]``,
            ranges of them, rising and apart. No others are looked at.
        """
        base = None if anchor else self.layout
        draft = Draft(
            track=self,
            layout=layout,
            arrays=arrays,
            columns=Columns.empty(len(layout.tensors)),
            pools=self._pools_for(layout, fresh=anchor),
            maps=self._maps_for(layout),
            policy=policy,
            rate=self.rate.copy(),
        )
        draft.shares = self.sensitivity.shares(layout, arrays, policy)
        if policy.error is not None and base is not None:
            middle = float(np.median([*draft.shares.values()])) if draft.shares else 1.0
            draft.factor = draft.rate.errors_times(policy.bytes_per_save, policy.error * middle, self.columns)
        for path, ranges in (touched or {}).items():
            draft.touched[layout.index[path]] = ranges
        places = layout.goes_on_from(base).tolist() if base is not None else [-1] * len(layout.tensors)
        for index, (spec, place) in enumerate(zip(layout.tensors, places, strict=True)):
            before = place if place >= 0 else None
            if spec.role == "weights":
                self._decide_weights(draft, index, spec, before if spec.name not in reset else None)
            elif spec.role == "plain":
                self._decide_plain(draft, index, spec, before, exact)
            else:
                draft.columns.op[index] = SET
        draft.rate.rows.watch(draft)
        draft.list_jobs(exact)
        return draft

    def accept(self, draft: Draft) -> None:
        """Take over a committed draft."""
        self.layout, self.columns, self.pools = draft.layout, draft.columns, draft.pools
        self.samples = {draft.layout.tensors[t].name: sample for t, sample in draft.samples.items()}
        self.rate = draft.rate
        self.rate.keep_only(draft.layout.index)
        if draft.steps and draft.policy.error is not None:
            self.rate.spent(draft.policy.bytes_per_save, draft.policy.error, draft.coded)

    def stand_on(
        self, layout: Layout, columns: Columns, pools: dict[str, Array], values: Sequence[Array]
    ) -> None:
        """Stand on a restored node, whose user goes on from `values`."""
        self.layout, self.columns, self.pools = layout, columns, pools
        self.samples = {
            spec.name: samples.take(flat)
            for spec, flat in zip(layout.tensors, values, strict=True)
            if spec.role == "weights"
        }

    def _decide_weights(self, draft: Draft, index: int, spec: TensorSpec, before: int | None) -> None:
        columns, flat = draft.columns, draft.arrays[index]
        draft.samples[index] = now = samples.take(flat)
        known = int(self.columns.grid[before]) if before is not None and self.columns is not None else NO_GRID
        if known == NO_GRID:
            magnitude = largest(flat, spec.dtype)
            unit = grid.exponent_of(magnitude, spec.dtype)
            columns.op[index] = SET if unit is None else EXACT
            columns.grid[index] = NO_GRID if unit is None else unit
            if unit is None and magnitude != 0:
                draft.off_grid.add(index)
            return
        if not np.isfinite(now).all():
            draft.off_grid.add(index)
            return
        assert before is not None
        self._decide_delta(draft, index, known, before)

    def _decide_delta(self, draft: Draft, index: int, unit: int, before: int) -> None:
        """Decide about a tensor of weights that has a grid: nothing to add, or a delta on which steps."""
        assert self.columns is not None
        columns, flat, spec = draft.columns, draft.arrays[index], draft.layout.tensors[index]
        last = self.samples.get(spec.name)
        change = draft.samples[index] - last if last is not None else None
        rows = samples.touched(change) if change is not None else None
        previous = float(self.columns.scale[before])
        moved = previous if change is None else samples.rms(change if rows is None else change[rows])
        columns.grid[index] = unit
        columns.digest[index] = self.columns.digest[before]
        columns.scale[index] = min(steps.follow(previous, moved, rows=rows is not None), _LARGEST_SCALE)
        columns.shift[index] = self.columns.shift[before]
        if index in draft.touched:
            self._decide_touched(draft, index, change, rows=rows is not None)
            return
        if moved == 0 and self._is_there(spec, flat, unit):
            columns.op[index] = KEEP
            return
        columns.op[index] = ADD
        trend = 0.0
        if change is not None and rows is None:
            trend = draft.rate.trend(spec.name, change, moved)
        step = self._choose_step(draft, index, rows=rows is not None, trend=trend)
        finer: Array | None = None
        if moved == 0:
            step = step.at_rest()
            flushed = self._is_there(spec, flat, unit, sampled=True)
            finer = draft.rate.rest(spec.name, spec.size, flushed=flushed)
        else:
            draft.rate.moves(spec.name)
            if change is not None and rows is None:
                finer = draft.rate.finer(spec.name, change, moved, spec.size)
        draft.steps[index] = step
        if finer is not None and finer.any():
            draft.finer[index] = finer

    def _decide_touched(self, draft: Draft, index: int, change: Array | None, *, rows: bool) -> None:
        """Decide about a tensor of which the caller says what changed, and see whether the sample agrees."""
        ranges, spec = draft.touched[index], draft.layout.tensors[index]
        if change is not None:
            places = samples.positions(spec.size)[change != 0]
            begun, ended = (
                np.searchsorted(ranges[:, 0], places, "right"),
                np.searchsorted(ranges[:, 1], places, "right"),
            )
            if (begun == ended).any():
                raise InvalidInputError(
                    f"touched leaves out elements of {format_name(spec.name)!r} that have changed since the "
                    "last save; name all rows that have, or leave the tensor out of touched"
                )
        draft.columns.op[index] = ADD if ranges.size else KEEP
        if ranges.size:
            draft.steps[index] = self._choose_step(draft, index, rows=rows)

    def _choose_step(self, draft: Draft, index: int, *, rows: bool, trend: float = 0.0) -> steps.Step:
        columns, spec = draft.columns, draft.layout.tensors[index]
        scale = float(columns.scale[index])
        error = draft.policy.error_of(spec.name)
        assert error is not None
        times = draft.factor * draft.shares.get(index, 1.0)
        if times != 1:
            error = max(LEAST_ERROR, min(MOST_ERROR, error * times))
        draft.errors[index] = error
        if rows:
            error *= steps.IN_ROWS
        most = grid.GRID_BITS[grid.working_dtype(spec.dtype).itemsize]
        shift = int(columns.shift[index]) or None
        step = steps.choose_step(scale, error, int(columns.grid[index]), shift, most, trend)
        columns.shift[index] = step.scale
        return step

    def _is_there(self, spec: TensorSpec, flat: Array, unit: int, *, sampled: bool = False) -> bool:
        """Say whether the track of a tensor, or of its sample, is its value on the grid already."""
        held = self.pools[spec.pool][spec.offset : spec.offset + spec.size]
        if sampled:
            places = samples.positions(spec.size)
            flat, held = flat[places], held[places]
        return grid.is_at(flat, unit, held, spec.dtype)

    def _decide_plain(
        self, draft: Draft, index: int, spec: TensorSpec, before: int | None, exact: bool
    ) -> None:
        if before is not None and self.columns is not None and not exact:
            held = self.pools[spec.pool][spec.offset : spec.offset + spec.size]
            if same_bits(held, draft.arrays[index]):
                draft.columns.op[index] = KEEP
                draft.columns.digest[index] = self.columns.digest[before]
                return
        draft.columns.op[index] = SET

    def _pools_for(self, layout: Layout, *, fresh: bool) -> dict[str, Array]:
        pools = {}
        for name, spec in layout.pools.items():
            held = None if fresh else self.pools.get(name)
            dtype = pool_dtype(spec)
            if dtype is None:
                continue
            if held is None or held.size > spec.size:
                held = np.zeros(spec.size, dtype)
            elif held.size < spec.size:
                held = np.concatenate((held, np.zeros(spec.size - held.size, dtype)))
            pools[name] = held
        return pools

    def _maps_for(self, layout: Layout) -> dict[str, PoolMap]:
        if self._maps is None or self._maps[0] is not layout:
            self._maps = (layout, layout.maps)
        return self._maps[1]


def pool_dtype(pool: PoolSpec) -> np.dtype | None:
    """Return what the track holds of a pool; None where it holds nothing."""
    if pool.role == "weights":
        return grid.track_dtype(pool.dtype)
    return dtype_from_name(pool.dtype) if pool.role == "plain" else None


def largest(flat: Array, name: str) -> float:
    """Return the largest magnitude of a flat tensor; infinity where a value is not finite."""
    out = np.zeros(1)
    kernels.magnitude(grid.as_working(flat, name), out)
    return float(out[0])


def same_bits(a: Array, b: Array) -> bool:
    """Say whether two flat arrays of one dtype hold the same bits."""
    if a.size != b.size:
        return False
    size = min(a.dtype.itemsize, 8)
    return bool(np.array_equal(a.view(f"u{size}"), b.view(f"u{size}")))
