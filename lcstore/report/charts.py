"""The charts of a page: each a picture, what it says in words, and what has to be known to read it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lcstore.report.extra import needed
from lcstore.report.facts import ROLES, StoreReport, TensorFacts, TensorsSeen
from lcstore.report.series import Series, metric, metric_names
from lcstore.report.svg import AT_REST, COLOURS, SERIES, chart
from lcstore.report.thin import bins, evenly, peaks
from lcstore.report.words import middle
from lcstore.storage.masking import printable
from lcstore.units import counted, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What a chart shows at the most: bars, points of a line, lines, rows, and metrics.
MOST_BARS: Final = 96
MOST_POINTS: Final = 400
MOST_LINES: Final = len(SERIES)
MOST_ROWS: Final = 36
MOST_RATIOS: Final = 20
MOST_METRICS: Final = 6
#: Marks on an axis of bytes are so many units apart.
_ROUND: Final = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
#: Decades that the colours of movement span at the least: what differs little is not to look as if it did.
_LEAST_SPAN: Final = 1.5
#: Bars that are so many times as high as nearly all others are cut off.
_TALL: Final = 3.0


@dataclass(frozen=True)
class Figure:
    """One chart.

    Attributes
    ----------
    title, svg
        What it shows.
    told
        The same in a sentence, for those who do not see it.
    caption
        What has to be known to read it; "" where nothing does.
    legend
        The colours that tell series apart, by their names in `COLOURS`, and what each stands for.
    """

    title: str
    svg: str
    told: str
    caption: str = ""
    legend: Mapping[str, str] = field(default_factory=dict)


def bytes_per_save(report: StoreReport) -> Figure:
    """Return the bytes of each save by what they are for, in the order of commits."""
    title = "Bytes of each save"
    groups = bins(report.states, MOST_BARS)
    means = [{role: _mean(s.bytes_stored.get(role, 0) for s in group) for role in ROLES} for group in groups]
    tops = [sum(mean.values()) for mean in means]
    anchors = [place for place, group in enumerate(groups) if any(state.is_anchor for state in group)]
    usual = float(np.quantile(tops, 0.9))
    limit = max(tops) * 1.05 if max(tops) <= _TALL * usual else usual * 1.4
    legend = {}
    with chart(title) as drawn:
        axes, bottom = drawn.axes, np.zeros(len(groups))
        for colour, role in zip(SERIES, ROLES, strict=True):
            heights = np.array([mean[role] for mean in means])
            if heights.any():
                axes.bar(range(len(groups)), heights, 0.85, bottom, color=COLOURS[colour])
                bottom += heights
                legend[colour] = ROLES[role]
        tips = [min(tops[at], limit) for at in anchors]
        axes.plot(anchors, tips, "v", color=COLOURS["ink"], clip_on=False, markersize=5)
        axes.set_ylim(0, limit)
        _bytes_axis(axes, limit)
        _steps_below(axes, [group[0].step for group in groups])
    least, most = (size(function(state.total for state in report.states)) for function in (min, max))
    of = least if least == most else f"{least} to {most}"
    count = sum(state.is_anchor for state in report.states)
    told = f"{counted(len(report.states), 'save')} of {of}; anchors: {count}."
    notes = ["Triangles are anchors."] if anchors else []
    if limit < max(tops):
        notes.append(f"The highest bars are cut off: the largest save has {most}.")
    if len(groups) < len(report.states):
        notes.append(
            f"Each bar is the mean of about {math.ceil(len(report.states) / len(groups))} saves in a row."
        )
    return Figure(title, drawn.svg, told, " ".join(notes), legend)


def cumulative(report: StoreReport) -> Figure:
    """Return the sum of what was saved beside that of full saves, in the order of commits."""
    title = "All saves together"
    stored = [0, *accumulate(state.total for state in report.states)]
    full = [0, *accumulate(state.bytes_raw for state in report.states)]
    with chart(title) as drawn:
        for sums, colour in ((full, "seven"), (stored, "one")):
            points = evenly(list(enumerate(sums)), MOST_POINTS)
            drawn.axes.plot(*zip(*points, strict=True), color=COLOURS[colour])
            drawn.axes.annotate(size(sums[-1]), points[-1], (-4, 4), textcoords="offset points", ha="right")
        drawn.axes.set_xlabel("saves")
        limit = max(full[-1], stored[-1]) * 1.12
        drawn.axes.set_ylim(0, limit)
        drawn.axes.set_xlim(0, None)
        drawn.axes.locator_params(axis="x", integer=True)
        _bytes_axis(drawn.axes, limit)
    count = counted(len(report.states), "save")
    told = f"Of {count}: {size(stored[-1])} stored; as full saves {size(full[-1])}."
    caption = "As they were saved, before anything was merged or collected."
    return Figure(title, drawn.svg, told, caption, {"one": "as stored", "seven": "as full saves"})


def ratios(seen: TensorsSeen) -> Figure | None:
    """Return how many times smaller a delta is than each of the largest tensors."""
    title = "Size over bytes of a delta, by tensor"
    known = [one for one in seen.tensors if one.ratio]
    shown = sorted(known, key=lambda one: -one.bytes_raw)[:MOST_RATIOS]
    if not shown:
        return None
    with chart(title, 0.9 + 0.2 * len(shown), grid="x") as drawn:
        axes, colours = drawn.axes, dict(zip(ROLES, SERIES, strict=True))
        for place, one in enumerate(shown):
            axes.barh(place, one.ratio or 0, 0.7, color=COLOURS[colours[one.role]])
            axes.annotate(f"{one.ratio:.3g}x", (one.ratio or 0, place), (3, 0), textcoords="offset points",
                          va="center", fontsize=9)  # fmt: skip
        axes.set_yticks(range(len(shown)), [middle(one.name, 30) for one in shown])
        axes.set_ylim(len(shown) - 0.4, -0.6)
        axes.margins(x=0.12)
    least, most = (function(one.ratio or 0 for one in shown) for function in (min, max))
    told = f"The largest {len(shown)} tensors: deltas are {least:.3g} to {most:.3g} times smaller than they."
    left_out = _left_out(len(shown), seen.count, "tensors")
    legend = {colours[one.role]: ROLES[one.role] for one in shown}
    return Figure(title, drawn.svg, told, left_out, legend)


def movement(seen: TensorsSeen) -> Figure | None:
    """Return how far each layer moves from state to state."""
    title = "How far layers move"
    shown = _rows(seen, lambda one: one.movement)
    values = [one.movement for one in shown]
    finite = [value for row in values for value in row if value]
    if not finite:
        return None
    low, high = (min(math.log10(end), 0.0) for end in (min(finite), max(finite)))
    apart = max(0.0, _LEAST_SPAN - (high - low)) / 2
    logs = [[math.nan if v is None else math.log10(v) if v else -math.inf for v in row] for row in values]
    svg = _map(title, seen, shown, logs, (low - apart, high + apart), _powers, rest=True)
    told = f"{_over(shown, seen)}. {_notable(seen)}"
    caption = [
        "The root mean square of an update, as a part of the largest weight an eighth into these states.",
        "More than all of it is drawn as all." if max(finite) > 1 else "",
        "Red: it does not move." if any(0 in row for row in values) else "",
        "Empty: not known.",
        _left_out(len(shown), seen.count, "tensors"),
    ]
    return Figure(title, svg, told, " ".join(filter(None, caption)))


def error_by_layer(seen: TensorsSeen) -> Figure | None:
    """Return the error that each layer's step size stands for, from state to state."""
    title = "Error of layers"
    shown = _rows(seen, lambda one: one.error)
    values = [[math.nan if value is None else value for value in one.error] for one in shown]
    finite = [value for row in values for value in row if math.isfinite(value)]
    if not finite:
        return None
    svg = _map(title, seen, shown, values, (0.0, max(finite)), lambda value: f"{value:.2g}")
    told = f"{_over(shown, seen)}: {min(finite):.2g} to {max(finite):.2g}."
    caption = (
        "In checkpoint intervals: at 1, a restored layer is about as far from the true one as that moves "
        "between two saves. It is what the layer's step size stands for. Empty: set whole, or not known."
    )
    return Figure(title, svg, told, f"{caption} {_left_out(len(shown), seen.count, 'tensors')}".strip())


def measured_error(report: StoreReport) -> Figure | None:
    """Return the error of each save as its writer measured it."""
    errors = Series(report.states, lambda state: state.error)
    return _by_run(errors, "Error of saves", "in checkpoint intervals", "measured")


def metrics(report: StoreReport) -> list[Figure]:
    """Return each metric over steps: the first few, by name."""
    names = metric_names(report.states)[:MOST_METRICS]
    drawn = (_by_run(metric(report.states, name), f"Metric: {printable(name)}") for name in names)
    return [figure for figure in drawn if figure is not None]


def restore_costs(report: StoreReport) -> list[Figure]:
    """Return what restoring each state reads: bytes and edges, now and once compacted."""
    known = [one for one in report.costs.states if one.nbytes is not None]
    costs = peaks(known, lambda one: one.nbytes or 0, MOST_POINTS)
    if not costs:
        return []
    made = []
    for title, now, then in (
        ("Bytes that a restore reads", "nbytes", "bytes_compacted"),
        ("Edges that a restore goes over", "edges", "edges_compacted"),
    ):
        values = [[getattr(one, name) for one in costs] for name in (now, then)]
        with chart(title) as drawn:
            places = range(len(costs))
            how = _marked(costs)
            drawn.axes.plot(places, values[0], color=COLOURS["two"], **how)
            if report.costs.planned and None not in values[1]:
                drawn.axes.plot(places, values[1], color=COLOURS["one"], **how)
            drawn.axes.set_ylim(0, max(values[0]) * 1.08)
            _steps_below(drawn.axes, [one.step for one in costs])
            if now == "nbytes":
                _bytes_axis(drawn.axes, max(values[0]))
            else:
                drawn.axes.locator_params(axis="y", integer=True)
        most = max(getattr(one, now) for one in known)
        told = f"At the most {size(most) if now == 'nbytes' else counted(most, 'edge')}."
        legend = {"two": "now", "one": "once compacted"} if report.costs.planned else {}
        thinned = _thinned(len(costs), len(report.costs.states))
        made.append(Figure(title, drawn.svg, told, thinned, legend))
    return made


def _by_run(series: Series, title: str, below: str = "", done: str = "given") -> Figure | None:
    """Return a number of each state over steps, line by line of training; crosses where no axis holds it."""
    shown = series.lines[-MOST_LINES:]
    if not shown:
        return None
    lines = [peaks(line.drawn, lambda point: point[1], MOST_POINTS // len(shown)) for line in shown]
    odd = evenly(sorted({step for line in shown for step, _ in line.odd}), MOST_POINTS)
    with chart(title) as drawn:
        for line, colour in zip(lines, SERIES, strict=False):
            if line:
                drawn.axes.plot(*zip(*line, strict=True), color=COLOURS[colour], **_marked(line))
        if odd:
            above = drawn.axes.get_xaxis_transform()  # where no number is: one means the top
            drawn.axes.plot(odd, [1.04] * len(odd), "x", color=COLOURS["bad"], transform=above, clip_on=False)
        if not any(lines):
            drawn.axes.set_yticks([])
        drawn.axes.set_xlabel("step")
        drawn.axes.set_ylabel(below)
    notes = (
        _left_out(len(shown), len(series.lines), "lines of training, those saved to last,"),
        _thinned(sum(map(len, lines)), sum(len(line.drawn) for line in shown)),
    )
    several = zip(shown, SERIES, strict=False) if len(shown) > 1 else ()
    legend = {colour: line.name for line, colour in several}
    if odd:
        legend["bad"] = f"x: {'; '.join(series.warnings(shown))}"
    return Figure(title, drawn.svg, series.told(shown, done), " ".join(filter(None, notes)), legend)


def _marked(points: Sequence[object]) -> dict[str, Any]:
    """Return how a line is drawn: with a mark at each point, where these are few."""
    return {"marker": "o", "markersize": 3.5} if len(points) < 20 else {}


def _rows(seen: TensorsSeen, values: Callable[[TensorFacts], tuple[float | None, ...]]) -> list[TensorFacts]:
    """Return the layers that a map shows: what stands out, and the largest."""
    layers = [one for one in seen.tensors if any(value is not None for value in values(one))]
    first = sorted(layers, key=lambda one: (not one.note, -one.bytes_raw))[:MOST_ROWS]
    chosen = {one.name for one in first}
    return [one for one in layers if one.name in chosen]


def _map(
    title: str,
    seen: TensorsSeen,
    shown: Sequence[TensorFacts],
    values: Sequence[Sequence[float]],
    span: tuple[float, float],
    words: Callable[[float], str],
    *,
    rest: bool = False,
) -> str:
    """Return layers over steps, in colours."""
    with chart(title, 1.1 + 0.19 * len(shown), grid=None) as drawn:
        axes, figure = drawn.axes, drawn.axes.figure
        colours = needed("matplotlib").colormaps["viridis"].resampled(12)
        colours = colours.with_extremes(under=AT_REST, bad=(0, 0, 0, 0)) if rest else colours
        image = axes.imshow(
            np.ma.masked_invalid(np.where(np.isneginf(values), span[0] - 9, values)),
            aspect="auto", interpolation="none", cmap=colours, vmin=span[0], vmax=span[1],
        )  # fmt: skip
        axes.set_yticks(range(len(shown)), [middle(one.name, 26) for one in shown], fontsize=9)
        _steps_below(axes, seen.steps)
        bar = figure.colorbar(image, ax=axes, location="top", aspect=40, pad=0.02)
        bar.outline.set_visible(False)
        bar.set_ticks(ticks := np.linspace(*span, 4).tolist(), labels=[words(value) for value in ticks])
    return drawn.svg


def _powers(value: float) -> str:
    return f"{10**value:.1g}"


def _over(shown: Sequence[TensorFacts], seen: TensorsSeen) -> str:
    return f"{counted(len(shown), 'layer')} over {counted(len(seen.steps), 'state')}"


def _notable(seen: TensorsSeen) -> str:
    count = len(seen.notable)
    return f"{count} stand{'s' * (count == 1)} out." if count else "None stands out."


def _mean(values: Iterable[int]) -> float:
    found = list(values)
    return sum(found) / len(found)


def _bytes_axis(axes: Axes, limit: float) -> None:
    """Mark round numbers of bytes up to a limit."""
    power = min(int(math.log(max(limit, 1), 1024)), len(_UNITS) - 1)
    unit = 1024**power
    step = next(step for step in _ROUND if step * unit * 5.5 > limit)
    axes.set_yticks([place * step * unit for place in range(int(limit / step / unit) + 1)])
    axes.yaxis.set_major_formatter(lambda value, _: f"{value / unit:g} {_UNITS[power]}" if value else "0")


def _steps_below(axes: Axes, steps: Sequence[int]) -> None:
    """Name a few of the places below by their steps."""
    places = evenly(range(len(steps)), 6)
    axes.set_xticks(places, [f"{steps[place]:,}" for place in places])
    axes.set_xlabel("step")


def _left_out(shown: int, total: int, what: str) -> str:
    return f"{shown} of {total:,} {what} are shown." if shown < total else ""


def _thinned(shown: int, total: int) -> str:
    return f"{total:,} points are thinned out to {shown}; peaks stay." if shown < total else ""
