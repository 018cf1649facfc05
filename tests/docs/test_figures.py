"""The figures of docs/choosing.md are those of the evaluation."""

from __future__ import annotations

import re

from kit.pages import ROOT

TABLE = re.compile(r"evaluation/(rate|recovery|restores)\.md\).*?\n\n((?:\|[^\n]*\n)+)", re.DOTALL)
ROW = re.compile(r"^\| ([^|]+?)(?:, [^,|]*parameters)?, (AdamW|SGD) \| (.*) \|$", re.MULTILINE)


def said_of(run: str, chapter: str) -> str:
    """Return the sections and the lines of tables that a chapter has on a training run."""
    text = (ROOT / f"docs/evaluation/{chapter}.md").read_text(encoding="utf-8")
    sections = [part for part in text.split("\n## ") if part.startswith(run)]
    return "\n".join([*sections, *(line for line in text.splitlines() if line.startswith(f"| {run} |"))])


def test_each_figure_stands_in_the_chapter_that_is_named():
    rows = 0
    for chapter, table in TABLE.findall((ROOT / "docs/choosing.md").read_text(encoding="utf-8")):
        for model, optimizer, cells in ROW.findall(table):
            rows += 1
            said = set(re.findall(r"[-+]?[\d.]*\d", said_of(f"{model}, {optimizer}", chapter)))
            assert not set(cells.split(" | ")) - said, (chapter, model)
    assert rows == 17
