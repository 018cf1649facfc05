"""Charts of a store as text, for a terminal."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from lcstore.report.extra import needed
from lcstore.report.facts import SavedState
from lcstore.report.series import Series, metric, metric_names
from lcstore.report.thin import peaks
from lcstore.storage.masking import printable
from lcstore.units import size

Line: TypeAlias = Sequence[tuple[float, float]]

_HEIGHT: Final = 10
#: Characters before a plot: the numbers, and an axis.
_NUMBERS: Final = 10
_BEFORE: Final = _NUMBERS + 3
_LEAST_WIDTH: Final = 20
#: Points are far above the others where they are so many times what this part of all points is below.
_FAR: Final = 20
_USUAL: Final = 0.9
_SOME: Final = 10
#: Of these that are told by their numbers.
_MOST_FAR: Final = 3
_COLOURS: Final = ("cyan", "yellow", "green", "magenta", "red")


class Plots:
    """Draws what is said of states, in lines of text.

    Parameters
    ----------
    states
        In the order of their commits.
    width
        Characters of a line.
    colour, letters
        Whether lines have colours, and whether they are drawn in letters that every terminal has.

    Raises
    ------
    LcstoreError
        plotille is not installed.
    """

    def __init__(
        self, states: Sequence[SavedState], width: int, *, colour: bool = False, letters: bool = False
    ) -> None:
        self.states = states
        self.width = max(width - _BEFORE, _LEAST_WIDTH)
        self.colour = colour
        self.letters = letters
        self._plotille = needed("plotille", "lcstore plot")

    def all(self, metrics: Sequence[str] = ()) -> Iterator[str]:
        """Yield the bytes of saves, beside those of full ones, errors, and metrics; or the metrics named."""
        for name in metrics:
            yield from self._by_run(f"Metric: {printable(name)}", metric(self.states, name))
        if metrics or not self.states:
            return
        stored = [state.total for state in self.states]
        full = [state.bytes_raw for state in self.states]
        yield self._drawn("Bytes of each save", {"": _numbered(stored)}, "save", size)
        sums = {"full": _numbered([*accumulate(full)]), "stored": _numbered([*accumulate(stored)])}
        yield self._drawn("Bytes of all saves together", sums, "save", size)
        errors = Series(self.states, lambda state: state.error)
        yield from self._by_run("Error of saves, in checkpoint intervals", errors, "measured")
        for name in metric_names(self.states):
            yield from self._by_run(f"Metric: {printable(name)}", metric(self.states, name))

    def _by_run(self, title: str, series: Series, done: str = "given") -> Iterator[str]:
        """Yield a number of each state over steps, a line for each of the last lines of training."""
        shown = series.lines[-len(_COLOURS) :]
        if len(shown) < len(series.lines):
            title += f", of the last {len(shown)} of {len(series.lines)} lines"
        warnings = [self._plotille.color(text, fg="red", mode="names") if self.colour else text
                    for text in series.warnings(shown)]  # fmt: skip
        notes = [*warnings, *([series.end(done)] if series.is_over else [])]
        steps = [step for line in shown for step, _ in line.points]
        lines: dict[str, Line] = {
            f"{line.name} ({line.runs[-1][1]})": line.drawn for line in shown if line.drawn
        }
        points = [point for line in lines.values() for point in line]
        far = _far_above(points)
        if far:
            said = ", ".join(f"{y:.4g} at step {step}" for step, y in far[:_MOST_FAR])
            notes.append(f"Above what is drawn: {said}{', ...' * (len(far) > _MOST_FAR)}")
            lines = _below(lines, far)
        if lines:
            notes += textwrap.wrap(_ends(points), self.width + _BEFORE)
            yield self._drawn(title, lines, "step", lambda number: f"{number:.4g}", notes, steps)
        elif shown:
            yield "\n".join([title, *notes])

    def _drawn(
        self,
        title: str,
        lines: Mapping[str, Line],
        by: str,
        words: Callable[[float], str],
        notes: Sequence[str] = (),
        also: Sequence[float] = (),
    ) -> str:
        """Return lines as a plot that holds some places besides theirs; notes are below its title."""
        xs, ys = zip(*(point for line in lines.values() for point in line), strict=True)
        xs = (*xs, *also)
        if min(xs) == max(xs):
            last = {label: line[-1][1] for label, line in lines.items()}
            said = f"{title}: {', '.join(f'{label} {words(y)}'.strip() for label, y in last.items())}"
            return "\n".join([said, *notes])
        figure = self._plotille.Figure()
        figure.width, figure.height = self.width, _HEIGHT
        figure.with_colors, figure.color_mode = self.colour, "names"
        figure.origin, figure.x_label, figure.y_label = False, "", ""
        figure.x_ticks_fkt = lambda number, _: f"{number:.0f}"
        figure.y_ticks_fkt = lambda number, _: words(number).rjust(_NUMBERS)
        figure.set_x_limits(min(xs), max(xs))
        figure.set_y_limits(*_limits(min(ys), max(ys)))
        marks = self._marks(list(lines))
        for line, (colour, marker) in zip(lines.values(), marks.values(), strict=True):
            x, y = zip(*peaks(line, lambda point: point[1], 4 * self.width), strict=True)
            figure.plot(x, y, lc=colour, marker=marker)
        _, *drawn, axis, numbers = figure.show().split("\n")  # the first names an axis
        above, axis = [f"{title}, by {by}", *notes], axis[: self.width + _BEFORE]
        text = "\n".join([*above, *drawn, axis, numbers.rstrip()])
        text = re.sub("[\u2801-\u28ff]", "*", text).replace("\u2800", " ") if self.letters else text
        return text + self._legend(marks)

    def _marks(self, labels: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
        """Return the colour of each line; without colours the letter that several are drawn with.

        Digits would be taken for the numbers of runs.
        """
        if self.colour:
            return {label: (colour, None) for label, colour in zip(labels, _COLOURS, strict=False)}
        several = len(labels) > 1
        return {
            label: (None, letter if several else None) for label, letter in zip(labels, "abcde", strict=False)
        }

    def _legend(self, marks: Mapping[str, tuple[str | None, str | None]]) -> str:
        """Return what the lines stand for; nothing where there is one alone."""
        if len(marks) < 2:
            return ""
        told = (
            f"{marker}: {label}" if colour is None else self._plotille.color(label, fg=colour, mode="names")
            for label, (colour, marker) in marks.items()
        )
        return "\n" + "   ".join(told)


def _numbered(values: Sequence[int]) -> Line:
    return [(place + 1, value) for place, value in enumerate(values)]


def _ends(points: Line) -> str:
    """Return where the least and the most of some numbers are; "" where all are the same."""
    (first, least), (then, most) = (f(points, key=lambda point: point[1]) for f in (min, max))
    return f"Least {least:.4g} at step {first}, most {most:.4g} at step {then}" if least < most else ""


def _far_above(points: Line) -> Line:
    """Return the few points beside which all others would be one row, as of a loss that exploded."""
    ys = sorted(y for _, y in points)
    usual = ys[int(_USUAL * (len(ys) - 1))] if len(ys) >= _SOME else 0.0
    return [(step, y) for step, y in points if y > _FAR * usual > 0]


def _below(lines: Mapping[str, Line], far: Line) -> dict[str, Line]:
    """Return lines of which what is far above is as high as the highest of the rest."""
    least = min(y for _, y in far)
    top = max(y for line in lines.values() for _, y in line if y < least)
    return {name: [(step, min(y, top)) for step, y in line] for name, line in lines.items()}


def _limits(low: float, high: float) -> tuple[float, float]:
    """Return the limits of a plot: from zero on where that is near; with room for what is highest."""
    low = 0.0 if 0 <= low <= high / 10 or low == high > 0 else low
    return low, high + ((high - low) * 0.05 or 1.0)
