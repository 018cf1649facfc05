"""How each tensor moved, what its deltas cost, and what stands out, by what records say."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import LOSSY_DTYPES
from lcstore.edges.algebra import Effect
from lcstore.edges.columns import ADD, EXACT, KEEP, NO_GRID, Columns
from lcstore.edges.grid import grid_bits, lowest
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.frames.scales import log2_of
from lcstore.layout.layout import Layout
from lcstore.layout.qualified import stem_of
from lcstore.layout.specs import TensorSpec
from lcstore.once import once
from lcstore.report.course import Course
from lcstore.report.facts import TensorFacts, TensorGroup, TensorsSeen
from lcstore.report.growth import GROWTH
from lcstore.report.leap import leap_of
from lcstore.report.note import Note, shared
from lcstore.report.notes import notes_of
from lcstore.report.thin import evenly
from lcstore.state.names import Name, format_name
from lcstore.track.stepsizes import error_of

#: Tensors that a report lists.
MOST_TENSORS: Final = 200
#: States that it shows of each.
MOST_STATES: Final = 200
#: Deltas whose bytes are divided among tensors.
_MOST_DIVIDED: Final = 24
#: Elements from which on the movement of a tensor that is kept bit for bit is more than chance.
_LEAST_SIZE: Final = 8
#: A tensor that rests more often than once in so many moves is touched in rows.
_MOVES_PER_REST: Final = 8
_NUMBER: Final = re.compile(r"\d+")
_LOG2: Final = np.array([log2_of(scale) for scale in range(256)])


@dataclass(frozen=True)
class Look:
    """What the record of one state says of its tensors.

    Attributes
    ----------
    step, is_anchor
        Of the state.
    layout, columns, objects
        Of the edge that it was saved with.
    exact, rules
        Whether its policy keeps every bit of weights, and whether it has rules, as far as the record tells.
    """

    step: int
    is_anchor: bool
    layout: Layout
    columns: Columns
    objects: tuple[ObjectRef, ...]
    exact: bool = False
    rules: bool = False


def tensors_seen(looks: Sequence[Look], states: int) -> TensorsSeen:
    """Return what is told of tensors by looks at some of the states of a line, in its order."""
    if not looks:
        return TensorsSeen(states=states)
    # What a record says may be anything; what comes out infinite is not shown.
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        seen = _Seen(looks)
        notes, leap = notes_of(seen.course), leap_of(seen.course.of_weights, seen.course.steps)
    chosen = _chosen(seen.nbytes, notes)
    delta_bytes = seen.delta_bytes()
    left = sorted(set(range(len(seen.names))) - set(chosen))
    return TensorsSeen(
        steps=tuple(seen.course.steps[place] for place in seen.shown),
        states=states,
        looked=len(looks),
        tensors=tuple(seen.facts(row, delta_bytes[row], notes.get(row)) for row in chosen),
        left_out=len(left),
        bytes_left_out=int(seen.nbytes[left].sum()),
        groups=seen.groups(delta_bytes, notes),
        noted=tuple(chosen.index(row) for row in notes if row in chosen),
        notes=shared((seen.names[row], note) for row, note in notes.items()),
        leap=leap.text if leap else "",
        leap_step=leap.steps[0] if leap else None,
    )


def _chosen(nbytes: Array, notes: dict[int, Note]) -> list[int]:
    """Return the rows that are shown: half of the room for what stands out, the rest for what is large."""
    notable = [*notes][: MOST_TENSORS // 2]
    by_size = np.argsort(-nbytes, kind="stable").tolist()
    return sorted([*dict.fromkeys(notable + by_size)][:MOST_TENSORS])


class _Seen:
    """The tensors of all looks as the rows of tables, the looks being their columns.

    Attributes
    ----------
    names, nbytes
        By row: a tensor's name, and its bytes in the last look that has it.
    course
        What became of the weights among them.
    shown
        The places of the looks that are shown.
    movement
        Of the course, as it is shown: as a part of the largest weight early on. One weight for all looks, as
        a burst that was taken back leaves a grid that is too large.
    """

    def __init__(self, looks: Sequence[Look]) -> None:
        self.looks, self.shown = looks, evenly(range(len(looks)), MOST_STATES)
        self.specs: dict[str, list[TensorSpec]] = {}
        self._rows: dict[int, Array] = {}
        self._small: dict[int, Array] = {}
        for look in looks:
            if id(look.layout) not in self._rows:
                self._take_in(look.layout)
        self.names = list(self.specs)
        self.nbytes = np.array([sum(spec.nbytes for spec in specs) for specs in self.specs.values()])
        shape = len(self.names), len(looks)
        self._step_sizes = np.full(shape, np.nan)
        moves, scale, grid, small = (np.full(shape, np.nan) for _ in range(4))
        weights = np.zeros(shape, np.int8)
        for column, look in enumerate(looks):
            rows = self._rows[id(look.layout)]
            for table, values in zip((moves, scale, self._step_sizes, grid), _said(look), strict=True):
                np.fmax.at(table[:, column], rows, values)  # the most of the shards of a tensor
            np.fmax.at(small[:, column], rows, _moved(look.columns, self._small[id(look.layout)]))
            weights[rows, column] = np.where(look.layout.weights, 1, 0 if look.exact else -1)
        moves[at_rest(moves, scale)] = 0
        kept = (weights <= 0).all(axis=1)
        moves[kept] = small[kept]
        steps = tuple(look.step for look in looks)
        rules = tuple(look.rules for look in looks)
        self.course = Course(steps, moves, grid, weights, _jumped(grid), rules, self._alike())
        self.movement = moves * np.exp2(-np.array([_early(row) for row in grid]))[:, None]

    def _take_in(self, layout: Layout) -> None:
        found: dict[str, list[TensorSpec]] = {}
        names = [format_name(spec.name) for spec in layout.tensors]
        for name, spec in zip(names, layout.tensors, strict=True):
            found.setdefault(name, []).append(spec)
        self.specs |= found
        places = {name: place for place, name in enumerate(self.specs)}
        self._rows[id(layout)] = np.array([places[name] for name in names], np.int64)
        self._small[id(layout)] = _beside_weights(layout)

    def _alike(self) -> tuple[tuple[int, ...], ...]:
        rows: defaultdict[tuple[str, tuple[int, ...]], list[int]] = defaultdict(list)
        for row, (name, specs) in enumerate(self.specs.items()):
            rows[_NUMBER.sub("*", name), specs[0].whole_shape].append(row)
        return tuple(map(tuple, rows.values()))

    def delta_bytes(self) -> list[float | None]:
        """Return the mean of the bytes that deltas store of each tensor."""
        total, count = np.zeros(len(self.names)), np.zeros(len(self.names))
        for look in evenly([look for look in self.looks if not look.is_anchor], _MOST_DIVIDED):
            rows = self._rows[id(look.layout)]
            np.add.at(total, rows, _Divided(look).nbytes)
            count[np.unique(rows)] += 1
        return [float(all_ / times) if times else None for all_, times in zip(total, count, strict=True)]

    def groups(
        self, delta_bytes: Sequence[float | None], notes: Mapping[int, Note]
    ) -> tuple[TensorGroup, ...]:
        """Return the tensors by what their names are alike in."""
        rows: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for row, (name, specs) in enumerate(self.specs.items()):
            rows[_NUMBER.sub("*", name), specs[0].role].append(row)
        found = [
            TensorGroup(
                pattern=pattern,
                role=role,
                count=len(alike),
                notable=sum(row in notes for row in alike),
                bytes_raw=int(self.nbytes[alike].sum()),
                bytes_delta=sum(known) if (known := [b for r in alike if (b := delta_bytes[r])]) else None,
            )
            for (pattern, role), alike in rows.items()
        ]
        return tuple(sorted(found, key=lambda group: -group.bytes_raw))

    def facts(self, row: int, delta_bytes: float | None, note: Note | None) -> TensorFacts:
        """Return what is told of one tensor."""
        spec = self.specs[self.names[row]][0]
        ratios = self._step_sizes[row, self.shown].tolist()
        errors = [error_of(float(ratio)) if ratio > 0 else ratio for ratio in ratios]
        of_weights = bool((self.course.weights[row] > 0).any())
        return TensorFacts(
            name=self.names[row],
            role=spec.role,
            shape=spec.whole_shape,
            dtype=spec.dtype,
            bytes_raw=int(self.nbytes[row]),
            bytes_delta=delta_bytes,
            movement=_known(self.movement[row, self.shown].tolist()) if of_weights else (),
            error=_known(errors) if of_weights else (),
            note=note.text if note else "",
        )


def _beside_weights(layout: Layout) -> Array:
    """Return which tensors are kept bit for bit and lie where weights do, as biases and scales of norms.

    What else a state holds of numbers, such as an optimizer or a history of losses, goes its own way.
    """
    parts = {_part_of(spec.name) for spec in layout.tensors if spec.role == "weights"}
    of_model = (
        spec.role == "plain"
        and spec.dtype in LOSSY_DTYPES
        and spec.size >= _LEAST_SIZE
        and stem_of(spec.pool).partition("-")[0] == "plain"
        and _part_of(spec.name) in parts
        for spec in layout.tensors
    )
    return np.fromiter(of_model, bool, len(layout.tensors))


def _part_of(name: Name) -> object:
    return name[0] if len(name) > 1 else None


def _moved(columns: Columns, small: Array) -> Array:
    """Return how far some tensors moved that are kept bit for bit; NaN of others, and where not known."""
    moved = np.where(columns.scale > 0, columns.scale.astype(np.float64), np.nan)
    return np.where(small, np.where(columns.op == KEEP, 0.0, moved), np.nan)


def _known(values: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(value if math.isfinite(value) else None for value in values)


def _said(look: Look) -> tuple[Array, Array, Array, Array]:
    """Return per tensor: how far it moved, update scale, step size by that, log2 of its largest weight.

    NaN where that is not said: of what is no weight, has no grid, or begins anew, as all does at an anchor.
    It has not moved where the state has the tensor as its base does.
    """
    columns, weights = look.columns, look.layout.weights
    dtypes = [spec.dtype for spec in look.layout.tensors]
    of_dtype = {name: (grid_bits(name), lowest(name)) for name in set(dtypes)}
    bits, finest_grid = np.array([of_dtype[name] for name in dtypes]).reshape(-1, 2).T
    # On the finest grid there are zeros, if with a sign: none of these is the largest weight.
    on_grid = weights & (columns.grid != NO_GRID) & (columns.grid != finest_grid)
    grid = np.where(on_grid, columns.grid.astype(np.float64), np.nan)
    adds, scale = on_grid & (columns.op == ADD), columns.scale.astype(np.float64)
    moves = adds | (on_grid & (columns.op == EXACT) & (columns.moved > 0))
    known = np.where(moves, columns.movement, np.where(on_grid & (columns.op == KEEP), 0.0, np.nan))
    finest = _LOG2[columns.shift] + grid
    ratio = np.where(adds & (scale > 0), np.exp2(finest) / np.where(scale > 0, scale, 1), np.nan)
    return known, np.where(adds, scale, np.nan), ratio, grid + bits


def _early(grid: Array) -> float:
    """Return log2 of the largest weight an eighth into the states that say it; NaN where none does.

    At first it may be next to nothing, as of layers that begin with zeros; later a burst may have come.
    """
    known = grid[np.isfinite(grid)]
    return float(known[len(known) // 8]) if known.size else math.nan


def _jumped(grid: Array) -> Array:
    """Return where tensors moved so far that their grid had no room for it: ``bool``.

    Anchors choose each grid anew, so less than that says nothing of when a tensor moved.
    """
    known = np.where(np.isfinite(grid), np.arange(grid.shape[1]), -1)
    before = np.maximum.accumulate(known, axis=1)[:, :-1]  # the place where the grid was last known
    rows = np.arange(len(grid))[:, None]
    grown = np.where(before >= 0, grid[:, 1:] - grid[rows, before], np.nan)
    found = np.zeros(grid.shape, bool)
    found[:, 1:] = grown >= GROWTH
    return found


def at_rest(movement: Array, scale: Array) -> Array:
    """Return where tensors did not move, though a state still adds what was left of them: ``bool``.

    A writer that sees no movement keeps what it says of it to the bit; behind a jump, told apart from the
    update scale, it keeps that scale. Those that said of rows touched one by one only how far these move did
    so every now and then, all along.

    Parameters
    ----------
    movement
        ``float64[tensors, states]``: how far they move from save to save; NaN where not known.
    scale
        The same of their update scales.
    """
    kept = np.minimum(movement, scale)[:, :-1]
    stays = np.zeros(movement.shape, bool)
    stays[:, 1:] = (movement[:, 1:] == kept) & (movement[:, 1:] > 0)
    begins = stays & ~np.roll(stays, 1, axis=1)
    moves = np.isfinite(movement) & (movement > 0) & ~stays
    rests = begins.sum(axis=1) <= np.maximum(1, moves.sum(axis=1) // _MOVES_PER_REST)
    found: Array = stays & rests[:, None]
    return found


class _Divided:
    """The bytes of an edge, divided among its tensors: those of a chunk by the elements that it holds."""

    def __init__(self, look: Look) -> None:
        self.layout = look.layout
        self.effect = Effect.of(look.layout, look.columns.op)
        self.nbytes = np.zeros(len(look.layout.tensors))
        for ref in look.objects:
            name = keys.parse_data_key(ref.key)
            if name.pool in self.layout.maps and name.chunk is not None and name.parity is None:
                self._divide(name.pool, name.op or "", name.chunk, ref.nbytes)

    @once
    def _holds(self) -> dict[str, Array]:
        return {op: self.effect.holds(op) for op in keys.OPS}

    def _divide(self, pool: str, op: str, chunk: int, nbytes: int) -> None:
        pieces = self.layout.maps[pool].pieces(chunk)
        pieces = pieces.where(self._holds[op][pieces.tensor])
        self.nbytes[pieces.tensor] += nbytes * pieces.size / max(1, pieces.size.sum())
