"""Charts as SVG that takes its colours from the page around it, drawn by matplotlib without a screen."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from lcstore.report.extra import needed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The colours that charts are drawn in, and what the page calls them: it has two of each, light and dark.
COLOURS: Final = {
    "ink": "#1f2328",
    "faint": "#59636e",
    "rule": "#d1d9e0",
    "bad": "#b3001b",
    "one": "#0969da",
    "two": "#bc4c00",
    "three": "#1a7f37",
    "four": "#8250df",
    "five": "#bf3989",
    "six": "#9a6700",
    "seven": "#57606a",
}
#: Those that tell series apart.
SERIES: Final = tuple(COLOURS)[4:]
#: Of weights that do not move: none of the map that shows how far others do.
AT_REST: Final = "#d1242f"
#: Inches, of 96 of the page's pixels: charts are shown from three quarters of this size to one and a quarter.
WIDTH: Final = 4.8

_STYLE: Final[dict[str, Any]] = {
    "svg.fonttype": "none",  # text stays text
    "text.parse_math": False,  # names may have dollars in them
    "font.size": 10,
    "axes.titlesize": 9.5,
    "axes.labelcolor": COLOURS["faint"],
    "axes.edgecolor": COLOURS["rule"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": False,
    "grid.color": COLOURS["rule"],
    "grid.linewidth": 0.5,
    "text.color": COLOURS["ink"],
    "xtick.color": COLOURS["faint"],
    "ytick.color": COLOURS["faint"],
    "lines.linewidth": 1.6,
}


class Chart:
    """A chart while it is drawn."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.svg = ""


@contextmanager
def chart(name: str, height: float = 2.6, *, grid: Literal["x", "y"] | None = "y") -> Iterator[Chart]:
    """Yield a chart to draw; once the ``with`` block has ended it has its SVG.

    Parameters
    ----------
    name
        No other chart of the page has it: what is within is named after it, the same each time.
    height
        In inches.
    grid
        Along which axis there are lines: ``"x"``, ``"y"``, or None for neither.

    Raises
    ------
    LcstoreError
        matplotlib is not installed.
    """
    matplotlib = needed("matplotlib")
    figures = needed("matplotlib.figure")
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of letters that a font lacks: the page has others
        figure = figures.Figure(figsize=(WIDTH, height), layout="constrained")
        drawn = Chart(figure.subplots())
        drawn.axes.grid(visible=False)
        if grid is not None:
            drawn.axes.grid(visible=True, axis=grid)
        yield drawn
        out = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(out, format="svg", transparent=True, metadata=nothing)
    drawn.svg = _inline(out.getvalue())


def _inline(svg: str) -> str:
    """Return SVG as a page has it within itself: without a preamble, in the page's colours and letters."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    used = {*re.findall(r'#([^")]+)', svg)}
    svg = re.sub(r' id="([^"]*)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"<style[^>]*>.*?</style>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for name, colour in COLOURS.items():
        svg = svg.replace(f": {colour}", f": var(--{name})")
    return svg
