"""What the benchmarks share: timing, memcpy as the unit of speed, tables, and the files under results/."""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
WIDTH = 140


def arguments(description: str, **flags: str) -> argparse.Namespace:
    """Read the command line: `--quick`, and further flags by name and help."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="smaller and fewer: to see that it runs")
    for name, text in flags.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    return parser.parse_args()


class Race:
    """Rounds in which memcpy and each contender run one after the other, so that a busy moment hits all.

    The ratio to memcpy is taken within a round, and its median over the rounds reported.
    """

    def __init__(self, raw: np.ndarray) -> None:
        self.raw = raw
        self._copy = np.empty_like(raw)
        self._copy[...] = raw  # its pages are there before anything is timed
        self.contenders: dict[str, tuple[Callable[[], Any], Callable[[], Any] | None]] = {}

    def add(self, name: str, run: Callable[[], Any], after: Callable[[], Any] | None = None) -> None:
        """Enter a contender; `after` undoes it, untimed."""
        self.contenders[name] = (run, after)

    def run(self, rounds: int) -> dict[str, dict[str, float]]:
        """Run the rounds, after one that does not count; give seconds and ratios by name."""
        copies: list[float] = []
        seconds: dict[str, list[float]] = {name: [] for name in self.contenders}
        gc.collect()
        for i in range(rounds + 1):
            copied = statistics.median(self._timed(self._copy_once) for _ in range(3))
            if i:
                copies.append(copied)
            for name, (run, after) in self.contenders.items():
                took = self._timed(run)
                if i:
                    seconds[name].append(took)
                if after is not None:
                    after()
        out = {"memcpy": _summary(copies, copies, self.raw.nbytes)}
        return out | {name: _summary(times, copies, self.raw.nbytes) for name, times in seconds.items()}

    def _copy_once(self) -> None:
        np.copyto(self._copy, self.raw)

    @staticmethod
    def _timed(run: Callable[[], Any]) -> float:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began


def _summary(seconds: list[float], copies: list[float], nbytes: int) -> dict[str, float]:
    ratios = [c / s for c, s in zip(copies, seconds, strict=True)]
    median = statistics.median(seconds)
    return {
        "seconds": median,
        "gigabytes_per_second": nbytes / median / 1e9,
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
    }


@dataclass
class Report:
    """Tables on the screen, and the same figures as JSON and Markdown under results/.

    A quick run's files have names of their own, so that they do not take the place of real ones.
    """

    name: str
    quick: bool = False
    data: dict[str, Any] = field(default_factory=dict)
    _parts: list[str] = field(default_factory=list)

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Show a table."""
        shown = Table(title=title, title_justify="left")
        for i, column in enumerate(head):
            shown.add_column(column, justify="right" if i else "left", overflow="fold")
        cells = [[cell if isinstance(cell, str) else _number(cell) for cell in row] for row in rows]
        for row in cells:
            shown.add_row(*row)
        Console(width=WIDTH).print(shown)
        rule = "|".join(["---"] + ["---:"] * (len(head) - 1))
        lines = [f"| {' | '.join(row)} |" for row in [list(head), *cells]]
        self._parts.append("\n".join([f"## {title}", "", lines[0], f"|{rule}|", *lines[1:], ""]))

    def say(self, text: str) -> None:
        """Show a line."""
        print(text, flush=True)
        self._parts.append(f"{text}\n")

    def bar(self, what: str, value: float, wanted: str, met: bool) -> None:
        """Show a figure next to what it has to reach."""
        self.say(f"{'ok  ' if met else 'FAIL'} {what}: {value:,.4g} (bar: {wanted})")
        bar = {"what": what, "value": value, "bar": wanted, "met": bool(met)}
        self.data.setdefault("bars", []).append(bar)

    def write(self) -> None:
        """Write the files, and say where."""
        RESULTS.mkdir(exist_ok=True)
        name = f"{self.name}-quick" if self.quick else self.name
        body = json.dumps(self.data, indent=1, default=float)
        (RESULTS / f"{name}.json").write_text(body + "\n", encoding="utf-8")
        text = "\n".join([f"# {self.name}\n", *self._parts])
        (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
        print(f"written: benchmarks/results/{name}.json and .md", flush=True)


def one_thread() -> None:
    """Keep this process, and the threads that libraries start, on one core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    number = float(value)
    if number != number:
        return "-"
    if abs(number) < 1:
        return f"{number:.3g}"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:,.2f}"
