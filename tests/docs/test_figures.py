"""The figures of docs/choosing.md are those of the evaluation; those of docs/how-often.md agree."""

from __future__ import annotations

import re

import pytest
from kit.pages import ROOT

import lcstore

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


OFTEN = (ROOT / "docs/how-often.md").read_text(encoding="utf-8")
SECONDS = {"1 hour": 3600, "6 hours": 6 * 3600, "1 day": 24 * 3600, "1 week": 7 * 24 * 3600}


def measured(number: int) -> list[list[str]]:
    """The rows of a table that the benchmark put into docs/how-often.md."""
    part = OFTEN.partition(f"<!-- measured {number} -->")[2].partition(f"<!-- end {number} -->")[0]
    return [
        line.strip("| ").replace("`", "").split(" | ") for line in part.splitlines() if line.startswith("| `")
    ]


def test_the_rework_is_the_worst_of_the_evaluation():
    text = (ROOT / "docs/evaluation/recovery.md").read_text(encoding="utf-8")
    for policy, *_, rework in measured(1):
        rows = re.findall(
            rf"^\| [^|]+ \| lcstore {policy} \|(?:[^|]*\|){{3}} ([\d.]+) \|", text, re.MULTILINE
        )
        assert float(rework) == pytest.approx(max(map(float, rows), default=0), abs=0.005)
        assert f'"{policy}": {float(rework)}' in OFTEN  # as the page's own code has it


def test_the_intervals_follow_from_the_costs():
    costs = {row[0]: [float(cell) for cell in row[1:]] for row in measured(1)}
    assert len(costs) == 4
    rows = measured(2)
    assert len(rows) == 4 * len(SECONDS)
    for policy, failure, *cells in rows:
        interval, lost, a_day, kept = map(float, cells)
        waits, works, megabytes, _, of_ten, _, rework = costs[policy]
        mean = SECONDS[failure]
        best = lcstore.FailureRate(mean / (1 + 2 * rework)).interval(waits + works)
        assert interval == pytest.approx(best, rel=0.02, abs=0.6)
        part = (waits + works) / best + (0.5 + rework) * best / mean
        assert lost == pytest.approx(100 * part, rel=0.02, abs=0.006)
        assert a_day == pytest.approx(86_400 / best * megabytes / 1e3, rel=0.04, abs=0.006)
        assert kept == pytest.approx(86_400 / best * of_ten / 1e4, rel=0.04, abs=0.006)


def test_what_the_page_says_of_one_gigabyte_a_day():
    (said,) = re.findall(r"with 1 GB a day\s(.*?)\.\n", OFTEN, re.DOTALL)
    parts = dict(re.findall(r"([\d.]+) % [^%]*?under `(\w+)`", said))
    for row in measured(1):
        waits, works, megabytes, *_, rework = map(float, row[1:])
        interval = 86_400 * megabytes / 1e3
        lost = 100 * ((waits + works) / interval + (0.5 + rework) * interval / (6 * 3600))
        if row[0] == "lossless":
            assert lost > 4
            assert "more than 4 %" in said
        else:
            (share,) = [share for share, policy in parts.items() if policy == row[0]]
            assert float(share) == pytest.approx(lost, abs=0.06)
