"""A number of each state over steps: what of it can be drawn, and what is to be told of the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final, TypeAlias

import numpy as np

from lcstore.report.facts import SavedState
from lcstore.report.note import Note
from lcstore.retention.base import is_better_greater

#: The step of a state, and its number.
Point: TypeAlias = tuple[int, float]

#: Numbers from here on are as good as infinite: no axis holds them.
_ENDLESS: Final = 1e300
#: How many times its least a loss has to be to be told as risen, or above it by what part of what it had
#: fallen by; by how many times what it varies by at the least; at how many points at the end at the least.
_FAR: Final = 1.5
_OF_FALL: Final = 0.5
_VARIES: Final = 6
_STAYED: Final = 5
#: The greatest that a share may be, as an accuracy; and the part of it that is the least fall to tell of.
_TOPS: Final = (1, 100)
_LEAST_FALL: Final = 0.05
#: By how many times what it varied by at most, from value to value of so many before, a number that jumped
#: did; and by what part of its size, and of all that it goes through, at the least.
_JUMPS: Final = 8
_SHORTLY: Final = 12
_PART: Final = 0.05
#: Metrics of which nobody wants more.
_LESS_IS_BETTER: Final = re.compile(r"loss|perplexity|ppl\b|error", re.IGNORECASE)


@dataclass(frozen=True)
class Line:
    """A number of the states of one line of training.

    Attributes
    ----------
    runs
        Their numbers and ids, of those runs that have it, each going on from the one before.
    points
        In the order of commits; of states that have the number.
    """

    runs: tuple[tuple[int, str], ...]
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """Its runs by their numbers: ``run 3``, ``runs 3 to 9, 4 of them``."""
        (first, _), (last, _), count = self.runs[0], self.runs[-1], len(self.runs)
        if count == 1:
            return f"run {first}"
        return f"runs {first} to {last}" + f", {count} of them" * (count <= last - first)

    @property
    def drawn(self) -> list[Point]:
        """The points that an axis holds."""
        return [point for point in self.points if _fits(point[1])]

    @property
    def odd(self) -> list[Point]:
        """The others: NaN, infinite, or as good as that."""
        return [point for point in self.points if not _fits(point[1])]

    @property
    def ended(self) -> Note | None:
        """What all of its points are from some step on, if the last one is odd; else None."""
        points = self.points[self._fitting :]
        if not points:
            return None
        step, _ = points[0]
        return Note(f"{_kinds(points)} from step {step} on", steps=(step,))

    def lapsed(self, *, more_is_better: bool = False) -> Note | None:
        """Return since when all points are far above where the number was at its least, as a loss that broke.

        Of what more is better of: far below where it was at its most. Then what is left to the greatest value
        that there may be (1, or 100 for percents) takes the place of the number, and a fall of a twentieth of
        that is the least that is told.

        A loss of a language model that diverges comes back to what a guess costs, 1.1 to 1.3 times its least:
        so the least is not all that it is judged by, but how far it had fallen to that is, too.
        """
        size = max(_STAYED, len(self.points) // 20)
        if len(self.points) < 3 * size or self.odd:
            return None
        steps, given = zip(*self.points, strict=True)
        numbers = [-number for number in given] if more_is_better else list(given)
        medians = [median(numbers[at : at + size]) for at in range(0, len(numbers) - size + 1, size)]
        least, varies = min(medians), median(abs(one - other) for one, other in pairwise(numbers))
        risen = _OF_FALL * (medians[0] - least)
        if more_is_better:
            top = next((top for top in _TOPS if max(given) <= top), math.inf)
            risen = min(risen, (_FAR - 1) * (top + least))
            risen = max(risen, _LEAST_FALL * top) if top < math.inf else risen
        elif least > 0:
            risen = min(risen, (_FAR - 1) * least)
        far = least + max(risen, _VARIES * varies)
        low = max((at for at, number in enumerate(numbers) if number <= far), default=len(numbers))
        if len(numbers) - low - 1 < size:
            return None
        best = numbers.index(min(numbers))
        way, end = ("down", "most") if more_is_better else ("up", "least")
        was = f"at the {end} {given[best]:.4g} at step {steps[best]}"
        since = steps[low + 1]
        words = f"{way} since step {since}: about {median(given[-size:]):.3g} in the end, and {was}"
        return Note(words, steps=(since,))

    def jumped(self, *, more_is_better: bool = False) -> Note | None:
        """Return where the number once became worse by far more than it varied by, as after one bad step.

        Of several such jumps the largest. What came of it is not asked: it may have been taken back.
        """
        if len(self.points) <= _SHORTLY or self.odd:
            return None
        steps, given = zip(*self.points, strict=True)
        worse = np.diff(given) * (-1 if more_is_better else 1)
        varied = np.lib.stride_tricks.sliding_window_view(np.abs(worse), _SHORTLY)[:-1].max(axis=1)
        top = next((top for top in _TOPS if more_is_better and max(given) <= top), None)
        sizes = np.abs(given[_SHORTLY:-1]) if top is None else top
        least = np.maximum(_JUMPS * varied, _PART * np.maximum(sizes, np.ptp(given)))
        jumps = np.where(worse[_SHORTLY:] > least, worse[_SHORTLY:], 0)
        if not jumps.any():
            return None
        at = _SHORTLY + int(np.argmax(jumps))
        words = f"{given[at + 1]:.4g} at step {steps[at + 1]}, after {given[at]:.4g} at step {steps[at]}"
        return Note(words, steps=(steps[at + 1],))

    @property
    def warning(self) -> str:
        """What is to be told of odd points; "" where there is none."""
        return "; ".join(filter(None, [self.before, self.ended.text if self.ended else ""]))

    @property
    def before(self) -> str:
        """What odd points there are before the last one that an axis holds; "" where there is none."""
        before = [point for point in self.points[: self._fitting] if not _fits(point[1])]
        if not before:
            return ""
        steps = [step for step, _ in before]
        many = f"{len(steps)} saves of steps {min(steps)} to {max(steps)}"
        return f"{_kinds(before)} at {many if len(steps) > 1 else f'step {steps[0]}'}"

    @property
    def _fitting(self) -> int:
        """How many points there are up to the last one that an axis holds."""
        return max((place for place, (_, number) in enumerate(self.points) if _fits(number)), default=-1) + 1


class Series:
    """A number of each state, by lines of training.

    Parameters
    ----------
    states
        In the order of their commits.
    value
        Returns the number of a state; None where it has none.

    Attributes
    ----------
    lines
        Those that have it, the one last that has it of the latest state.
    last
        The last of all points; None where there is none.
    is_over
        Whether the last state has it no more.
    """

    def __init__(self, states: Sequence[SavedState], value: Callable[[SavedState], float | None]) -> None:
        points: dict[str, list[tuple[tuple[int, str], Point]]] = {}
        self.last: Point | None = None
        self.is_over = False
        for state in states:
            number = value(state)
            self.is_over = number is None
            if number is not None:
                self.last, line = (state.step, number), state.line or state.run_id
                points[line] = points.pop(line, [])  # the last of them
                points[line].append(((state.run, state.run_id), self.last))
        columns = (zip(*found, strict=True) for found in points.values())
        self.lines = [Line(tuple(dict.fromkeys(runs)), tuple(found)) for runs, found in columns]

    def warnings(self, lines: Sequence[Line]) -> list[str]:
        """Return what is to be told of odd points of some of the lines; which runs, if there are several."""
        several = len(self.lines) > 1
        return [f"{line.name}: {line.warning}" if several else line.warning for line in lines if line.odd]

    def end(self, done: str) -> str:
        """Return what the number is in the end, or with which step it was last given; "" where that is odd.

        `done` says how it came to be, as "given".
        """
        if self.last is None:
            return ""
        step, number = self.last
        if self.is_over:
            return f"last {done} with step {step}" + (f": {number:.4g}" if _fits(number) else "")
        return f"{number:.4g} in the end" if _fits(number) else ""

    def told(self, lines: Sequence[Line], done: str = "given") -> str:
        """Return some of the lines in sentences; `done` as for `end`."""
        drawn = [(number, step, line) for line in lines for step, number in line.drawn]
        span, ends = "", ""
        if drawn:
            (least, first, one), (most, then, other) = (f(drawn, key=lambda at: at[0]) for f in (min, max))
            span = f"from {least:.4g} to {most:.4g}"
            runs = (f" of {line.name}" if len(self.lines) > 1 else "" for line in (one, other))
            if least < most:
                ends = f"the least at step {first}{next(runs)}, the most at step {then}{next(runs)}"
        said = ["; ".join(filter(None, [span, self.end(done)])), *self.warnings(lines), ends]
        return " ".join(f"{text[0].upper()}{text[1:]}." for text in said if text)


def wrong_in(states: Sequence[SavedState]) -> dict[str, Note]:
    """Return what metrics are that are no numbers in the end, were far better and stay so, or jumped once.

    By their names they are losses that rose, or accuracies that fell.
    """
    told = {name: _wrong(name, metric(states, name).lines[-1]) for name in metric_names(states)}
    return {name: note for name, note in told.items() if note is not None}


def _wrong(name: str, line: Line) -> Note | None:
    if line.ended:
        return line.ended + Note(f", after {line.before}" * bool(line.before))
    less, more = bool(_LESS_IS_BETTER.search(name)), is_better_greater(name)
    if less == more:
        return None
    return line.lapsed(more_is_better=more) or line.jumped(more_is_better=more)


def metric_names(states: Sequence[SavedState]) -> list[str]:
    """Return the names of all metrics."""
    return sorted({name for state in states for name in state.metrics})


def metric(states: Sequence[SavedState], name: str) -> Series:
    """Return a metric of states."""
    return Series(states, lambda state: state.metrics.get(name))


def _fits(number: float) -> bool:
    return abs(number) < _ENDLESS


def _kinds(points: Sequence[Point]) -> str:
    """Return what odd points are, in the order of the first of each kind."""
    kinds = (
        "NaN" if math.isnan(number) else "infinite" if math.isinf(number) else "too large to draw"
        for _, number in points
    )
    return " or ".join(dict.fromkeys(kinds))
