"""Which weights stand out by how they move: those that stopped, fade, move ever further, or outgrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from lcstore.arrays import Array

#: States with known movement from which on anything is said.
_LEAST: Final = 4
#: So many states at rest at the end are no accident.
_AT_REST: Final = 3
#: So many times as far as before, beside the others, is too far; so small a part is next to nothing.
_FAR: Final = 8.0
_LITTLE: Final = 1 / 50
#: So many times as far is more than movement varies by, and less than a writer lets it rise in a save.
_MORE: Final = 1.2
#: Tensors from which on what the others do counts: learning rates rise and fall for all of them.
_COMPANY: Final = 4
#: Octaves of growth since the middle of the line that are worth a note.
_GROWTH: Final = 3


@dataclass(frozen=True, eq=False)
class Course:
    """What became of tensors along a line of states.

    Attributes
    ----------
    steps
        Of the states, in the order of the line.
    movement, grid
        ``float64[tensors, states]``: the update scale as a part of the largest weight, and log2 of that
        weight; NaN where not known.
    weights
        ``int8[tensors, states]``: 1 where it is coded as weights, -1 where it is kept bit for bit, 0 where it
        is not there.
    """

    steps: tuple[int, ...]
    movement: Array
    grid: Array
    weights: Array


def notes_of(course: Course) -> dict[int, str]:
    """Return what is to be said of those tensors that stand out, by row."""
    growth = {row: _growth(course.movement[row]) for row in range(len(course.movement))}
    known = [value for value in growth.values() if value is not None]
    usual = float(np.median(known)) if len(known) >= _COMPANY else 1.0
    said = {row: _note(course, row, growth[row], usual) for row in growth}
    # What stopped being a number first is the cause of the rest.
    ended = {row: _until(course.weights[row]) for row in growth}
    order = sorted(growth, key=lambda row: (ended[row] is None, ended[row] or 0))
    return {row: said[row] for row in order if said[row]}


def _until(kinds: Array) -> int | None:
    """Return the place of the last state where a tensor was coded, if it is kept bit for bit since."""
    if (kinds > 0).any() and kinds[kinds != 0][-1] < 0:
        return int(np.flatnonzero(kinds > 0)[-1])
    return None


def _growth(movement: Array) -> float | None:
    """Return how many times as far as usual a tensor moved in the end; None where that is not known."""
    moved = movement[np.isfinite(movement) & (movement > 0)]
    if len(moved) < _LEAST or not movement[np.isfinite(movement)][-1] > 0:
        return None
    return float(moved[-1] / np.median(moved[:-1]))


def _note(course: Course, row: int, growth: float | None, usual: float) -> str:
    last, moves = _until(course.weights[row]), _moves(course, row, growth, usual)
    if last is None:
        return _rest(course, row) or _grown(course, row) or moves
    since = course.steps[last + 1 + int(np.argmax(course.weights[row][last + 1 :] < 0))]
    said = f"is kept bit for bit since step {since}: values may be NaN, infinite or too large for a grid"
    grew, _ = _outgrown(course.grid[row])
    before = f"before that its largest weight was {_times(grew)}" if grew >= _GROWTH else ""
    return "; ".join(filter(None, [_rest(course, row) or moves, said, before]))


def _rest(course: Course, row: int) -> str:
    """Return that a tensor does not move in the end of what is known of its movement; "" where it does."""
    known = np.flatnonzero(np.isfinite(course.movement[row]))
    rest = _at_rest(course.movement[row][known])
    if len(known) < _LEAST or rest < _AT_REST:
        return ""
    if rest == len(known):
        return "has never moved"
    return f"is not seen to move since step {course.steps[int(known[-rest - 1])]}"


def _grown(course: Course, row: int) -> str:
    """Return that a tensor has grown; "" where it has not, or little is known of it."""
    octaves, place = _outgrown(course.grid[row])
    if octaves < _GROWTH or np.isfinite(course.movement[row]).sum() < _LEAST:
        return ""
    at = course.steps[place]
    return f"has grown, at step {at} at the latest: its largest weight is {_times(octaves)}"


def _moves(course: Course, row: int, growth: float | None, usual: float) -> str:
    """Return that a tensor moves further or less than it used to, beside the others; "" where it does not."""
    movement = course.movement[row]
    # What all do is no news; where all move less, one that goes on as before is none either.
    if growth is not None and growth >= _FAR * max(usual, 1.0):
        since = course.steps[_first_of_last(movement, lambda far: far > _MORE * max(usual, 1.0))]
        return f"moves {growth:.3g} times as far as it used to, and further since step {since}"
    if growth is not None and growth <= _LITTLE * min(usual, 1.0):
        since = course.steps[_first_of_last(movement, lambda far: far <= _LITTLE * min(usual, 1.0))]
        return f"hardly moves any more since step {since}: {1 / growth:.3g} times less than it used to"
    return ""


def _times(octaves: int) -> str:
    return f"{2.0 ** min(octaves, 1000):.2g} times that of the middle of the run"


def _first_of_last(movement: Array, is_so: Callable[[Array], Array]) -> int:
    """Return the place of the first of the last moves that are so, as parts of how far it used to move."""
    moved = np.flatnonzero(np.isfinite(movement) & (movement > 0))
    others = np.flatnonzero(~is_so(movement[moved] / np.median(movement[moved[:-1]])))
    return int(moved[others[-1] + 1]) if len(others) else int(moved[0])


def _at_rest(movement: Array) -> int:
    """Return at how many states in the end nothing moved."""
    moved = np.flatnonzero(movement > 0)
    return len(movement) - 1 - int(moved[-1]) if len(moved) else len(movement)


def _outgrown(grid: Array) -> tuple[int, int]:
    """Return by how many octaves the largest weight grew since the middle, and the place where that shows.

    A grid has room for some growth, so it begins before that place.
    """
    middle = len(grid) // 2
    known = middle + np.flatnonzero(np.isfinite(grid[middle:]))
    if not len(known):
        return 0, len(grid) - 1
    grown = grid[known] - grid[known[0]]
    as_before = np.flatnonzero(grown <= 0)
    return int(grown[-1]), int(known[min(as_before[-1] + 1, len(known) - 1)])
