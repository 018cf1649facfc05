"""The page that an evaluation writes: sentences, tables, bars, figures, in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


class Page:
    """A part of the evaluation, written to `folder/name.md`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.bars: list[tuple[str, float, str, bool]] = []
        self._parts: list[str] = []

    def head(self, title: str, text: str) -> None:
        """Begin the page."""
        self._parts.append(f"# {title}\n\n{text}\n")

    def say(self, text: str) -> None:
        """Add a paragraph."""
        print(text, flush=True)
        self._parts.append(f"{text}\n")

    def bar(self, what: str, value: float, wanted: str, met: bool) -> None:
        """Note a figure that has to reach something."""
        self.bars.append((what, value, wanted, met))

    def table(self, title: str, text: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Add a table, after a sentence that says what it shows."""
        rule = "|".join(["---", *["---:"] * (len(head) - 1)])
        lines = [
            f"| {' | '.join(cells)} |" for cells in [list(head), *([number(c) for c in row] for row in rows)]
        ]
        self._parts.append("\n".join([f"## {title}", "", text, "", lines[0], f"|{rule}|", *lines[1:], ""]))

    def figure(self, file: str, text: str) -> None:
        """Add a figure and what it shows."""
        self._parts.append(f"![{text}]({file})\n\n{text}\n")

    def write(self) -> None:
        """Write the file, bars last."""
        if self.bars:
            missed = [(what, value, wanted) for what, value, wanted, met in self.bars if not met]
            text = f"{len(self.bars) - len(missed)} of {len(self.bars)} bars are met."
            text += " These are not:" * bool(missed)
            self.table("Bars", text, ["what", "measured", "wanted"], missed)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self.name}.md").write_text("\n".join(self._parts), encoding="utf-8")


def number(value: object) -> str:
    """Write a cell."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return str(value)
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    real = float(value)
    if real != real:
        return "-"
    return f"{real:.3g}" if abs(real) < 100 else f"{real:,.0f}"
