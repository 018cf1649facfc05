"""Where to look for what went wrong: two states next to each other, between which something changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lcstore.report.facts import SavedState, StoreReport
from lcstore.report.series import wrong_in
from lcstore.units import counted


def not_finite_since(states: Sequence[SavedState]) -> list[str]:
    """Return since when moments of the last of some states hold NaN or infinity, and how many do.

    Weights that do are told of as layers that stand out.
    """
    begins = _began(states)
    if begins is None or not (count := states[-1].moments_not_finite):
        return []
    grew = "What is coded with them is kept bit for bit, so saves are larger"
    many = f"{counted(count, 'tensor')} of moments"
    return [f"NaN or infinity is in {many} in the end, since step {states[begins].step}. {grew}."]


def began_anew(states: Sequence[SavedState]) -> list[str]:
    """Return with which save the steps that an optimizer counts began anew: the last of them."""
    found = [(state.step, state.began_anew) for state in states if state.began_anew is not None]
    if not found:
        return []
    (step, (now, was)), more = found[-1], len(found) - 1
    often = f", as it did {counted(more, 'time')} before" * bool(more)
    why = "A resume that restores no optimizer begins without its moments"
    return [
        f"The optimizer began anew with the save of step {step}: {now:g} steps, after {was:g}{often}. {why}."
    ]


def _began(states: Sequence[SavedState]) -> int | None:
    """Return the place of the first of the last states in which not all is finite."""
    place = len(states)
    while place and (states[place - 1].moments_not_finite or states[place - 1].not_finite):
        place -= 1
    return place if place < len(states) else None


def apart(report: StoreReport) -> tuple[SavedState, SavedState] | None:
    """Return the states to compare: those that lie around where something went wrong; None where nothing did.

    What is not finite comes before what layers did, and that before what metrics came to.
    """
    states = report.looked_at
    for after, earlier in _suspected(report, states):
        for place, (before, state) in enumerate(pairwise(states)):
            if before.step < after <= state.step:
                return states[max(0, place - earlier)], state
    return None


def _suspected(report: StoreReport, states: Sequence[SavedState]) -> Iterator[tuple[int, int]]:
    """Yield steps by which something went wrong, most telling first, and how many saves earlier it may be.

    How a layer moves is known from save to save. What hurt it in the middle of such a stretch leaves most of
    its movement, so that the stretch looks sound and the state behind it is hurt already.
    """
    if (begins := _began(states)) is not None:
        yield states[begins].step, 0
    yield from ((state.step, 0) for state in reversed(states) if state.began_anew is not None)
    if report.tensors.leap_step is not None:
        yield report.tensors.leap_step, 1
    yield from ((step, 1) for note in report.tensors.notes for step in note.steps)
    metrics = (step for note in wrong_in(states).values() for step in note.steps)
    yield from ((step, 0) for step in sorted(metrics))


def named_in(report: StoreReport, state: SavedState) -> str:
    """Return what a command calls a state: its step, or its node where several states are of that step."""
    alone = sum(other.step == state.step for other in report.kept) == 1
    return str(state.step) if alone else state.node
