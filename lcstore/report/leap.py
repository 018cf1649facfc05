"""Where most layers move further at once, as where a learning rate was set too high, or a step was bad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.report.note import Note

#: So many times as far as shortly before, at so many states in a row: a rate that rises step by step does not
#: make it so.
_FAR: Final = 8.0
_IN_A_ROW: Final = 3
#: What begins a leap before it is as far: the first bad updates may be a part of what a save saw.
_RISEN: Final = 3.0
#: So many times as far as at any of so many states on each side is far for fewer states: from save to save it
#: is no more than twice in sound trainings, but where a schedule begins anew, which lasts.
_PASSES: Final = 4.0
_AROUND: Final = 3
#: States whose middle is what they moved by shortly before; and states, layers from which on it is told.
_SHORTLY: Final = 8
_LEAST: Final = 4
_LAYERS: Final = 3


def leap_of(movement: Array, steps: Sequence[int]) -> Note | None:
    """Return from which step on most layers move further at once than shortly before, or where they do alone.

    None where they do neither.

    Parameters
    ----------
    movement
        ``float64[tensors, states]``: how far each moves from save to save; NaN where not known.
    steps
        Of the states.
    """
    moves = np.where(np.isfinite(movement) & (movement > 0), movement, np.nan)
    moves = moves[np.isfinite(moves).sum(axis=1) >= _LEAST]
    known = np.flatnonzero(np.isfinite(moves).sum(axis=0) >= _LAYERS)
    if len(known) < _LEAST + _IN_A_ROW:
        return None
    parts = np.nanmedian(moves[:, known] / np.nanmedian(moves, axis=1, keepdims=True), axis=0)
    at = np.array(steps)[known]
    return _lasting(parts, at) or _passing(parts, at)


def _lasting(parts: Array, steps: Array) -> Note | None:
    """Return from which step on layers move further.

    Of several such steps the first of those at which they do so by as much as ever, or half of that: or an
    earlier one, where they begin with less.
    """
    starts = range(_LEAST, len(parts) - _IN_A_ROW + 1)
    before = np.array([np.median(parts[max(0, at - _SHORTLY) : at]) for at in starts])
    times = np.array([parts[at : at + _IN_A_ROW].min() for at in starts]) / before
    most = times[np.isfinite(times)].max(initial=0)
    if most < _FAR:
        return None
    first = int(np.argmax(times >= most / 2))
    begin = first
    while begin and parts[starts[begin - 1]] >= _RISEN * before[begin - 1]:
        begin -= 1
    step = int(steps[starts[begin]])
    words = f"most layers move {times[first]:.3g} times as far from step {step} on as shortly before"
    return Note(words, steps=(step,))


def _passing(parts: Array, steps: Array) -> Note | None:
    """Return at which few saves layers moved further than at those around: the furthest of such.

    Saves further apart than most hold more movement each, so it is movement by step that counts.
    """
    apart = np.diff(steps)
    parts = parts / np.maximum(1, np.r_[1, apart / max(1, np.median(apart))])
    times, found = 0.0, range(0)
    for count in range(1, _IN_A_ROW + 1):
        for at in range(_LEAST, len(parts) - count):
            around = np.r_[parts[at - _AROUND : at], parts[at + count :][:_AROUND]]
            far = float(parts[at : at + count].max() / around.max())
            if far >= _PASSES and far > times:
                times, found = far, range(at, at + count)
    if not found:
        return None
    step, last = int(steps[found[0]]), int(steps[found[-1]])
    where, them = (f"step {step}", "it") if len(found) == 1 else (f"steps {step} to {last}", "them")
    words = f"most layers moved {times:.3g} times as far at {where} alone as at any save around {them}"
    return Note(words, steps=(step,))
