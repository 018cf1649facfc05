"""The rate-quality curve as SVG: bytes of a delta against the expected increase of loss, in logarithms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from lcstore.tune.result import Point, Tuned

_WIDTH, _HEIGHT = 640, 420
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 20, 40, 56
_TUNED, _UNIFORM, _INK, _FAINT = "#1f6feb", "#9a6700", "#24292f", "#d0d7de"
_FONT: Final = 'font-family="system-ui, sans-serif" font-size="12"'


def draw(found: Tuned) -> str:
    """Return the picture as one text."""
    preset = (found.preset.bytes_per_save, found.preset.cost.charged)
    tuned = (found.tuned.bytes_per_save, found.tuned.cost.charged)
    points = [_pair(p) for p in (*found.curve, *found.uniform)] + [preset, tuned]
    drawn = [(x, y) for x, y in points if x > 0 and y > 0] or [(1.0, 1.0)]
    axes = _Axes([x for x, _ in drawn], [y for _, y in drawn])
    title = f"{found.gain:.2f} times fewer bytes than the preset, within {found.tolerance:.3g} of loss"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 24, title, "start"),
        *axes.grid(),
        axes.line(map(_pair, found.uniform), _UNIFORM, "one error for all"),
        axes.line(map(_pair, found.curve), _TUNED, "tuned by group"),
        axes.mark(preset, _UNIFORM, "the preset, measured"),
        axes.mark(tuned, _TUNED, "the policy found, measured"),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


class _Axes:
    """From bytes and loss to places in the picture."""

    def __init__(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        self.x, self.y = _range(xs), _range(ys)

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (math.log(x) - math.log(self.x[0])) / math.log(self.x[1] / self.x[0])
        up = (math.log(y) - math.log(self.y[0])) / math.log(self.y[1] / self.y[0])
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> Iterable[str]:
        low, high = self.place(self.x[0], self.y[0]), self.place(self.x[1], self.y[1])
        for x in _ticks(*self.x):
            at, _ = self.place(x, self.y[0])
            yield f'<path d="M{at:.1f} {low[1]:.1f}V{high[1]:.1f}" stroke="{_FAINT}"/>'
            yield _text(at, low[1] + 16, _bytes(x), "middle")
        for y in _ticks(*self.y):
            _, at = self.place(self.x[0], y)
            yield f'<path d="M{low[0]:.1f} {at:.1f}H{high[0]:.1f}" stroke="{_FAINT}"/>'
            yield _text(low[0] - 6, at + 4, f"{y:.0e}" if y < 1e-3 else f"{y:g}", "end")
        yield _text((low[0] + high[0]) / 2, _HEIGHT - 14, "bytes of a delta", "middle")
        turned = f'transform="rotate(-90 16 {(low[1] + high[1]) / 2:.1f})"'
        yield _text(16, (low[1] + high[1]) / 2, "expected increase of the loss", "middle", turned)

    def line(self, points: Iterable[tuple[float, float]], colour: str, title: str) -> str:
        placed = [self.place(x, y) for x, y in points if x > 0 and y > 0]
        if len(placed) < 2:
            return ""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in placed)
        return (
            f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"><title>{title}</title></path>'
        )

    def mark(self, point: tuple[float, float], colour: str, title: str) -> str:
        if min(point) <= 0:
            return ""
        x, y = self.place(*point)
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"><title>{title}</title></circle>'


def _legend() -> Iterable[str]:
    x = _WIDTH - 170
    for place, (colour, words) in enumerate(((_UNIFORM, "one error for all"), (_TUNED, "tuned by group"))):
        y = _TOP + 16 + 18 * place
        yield f'<path d="M{x} {y - 4}h22" stroke="{colour}" stroke-width="2"/>'
        yield _text(x + 30, y, words, "start")


def _text(x: float, y: float, words: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{_INK}" {more}>{escape(words)}</text>'


def _pair(point: Point) -> tuple[float, float]:
    return point.bytes_per_save, point.increase


def _range(values: Sequence[float]) -> tuple[float, float]:
    return min(values) / 1.25, max(values) * 1.25


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times powers of ten in a range; powers alone where it is wide."""
    wide = math.log10(high / low) > 3
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = [part * 10.0**decade for decade in decades for part in ((1,) if wide else (1, 2, 5))]
    return [tick for tick in every if low <= tick <= high]


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:g} {unit}"
        value /= 1000
    return f"{value:g} TB"
