"""The page: facts and charts put into its template. Whatever comes from the store is escaped there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any, Final

from lcstore.report import charts
from lcstore.report.extra import needed
from lcstore.report.facts import ROLES, StoreReport
from lcstore.report.series import metric_names
from lcstore.report.thin import evenly
from lcstore.report.words import next_commands, verdict, whole
from lcstore.storage.masking import printable
from lcstore.units import counted, shape_text, size

#: Rows of the tables of saves, of findings, and of groups of tensors.
MOST_SAVES: Final = 200
MOST_FINDINGS: Final = 100
MOST_GROUPS: Final = 100


def page_of(report: StoreReport) -> str:
    """Return a page of HTML that needs nothing but itself: no network and no JavaScript.

    Raises
    ------
    LcstoreError
        A library that draws is not installed.
    """
    environment = needed("jinja2").Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "size": size, "printable": printable, "shape": shape_text, "number": _number, "counted": counted,
    }  # fmt: skip
    template = environment.from_string((files("lcstore.report") / "page.html").read_text("utf-8"))
    text: str = template.render(_shown(report))
    return text.encode(errors="backslashreplace").decode()  # names of files may be no text


def _shown(report: StoreReport) -> dict[str, Any]:
    """Return what the template puts in its places."""
    saves = evenly(report.states, MOST_SAVES)
    metrics = metric_names(report.states)
    return {
        "report": report,
        "verdict": verdict(report),
        "whole": whole(report),
        "next": next_commands(report),
        "facts": _facts(report),
        "charts": _charts(report),
        "roles": {role: words for role, words in ROLES.items() if _has(report, role)},
        "saves": saves,
        "cost_of": {one.node: one for one in report.costs.states},
        "groups": report.tensors.groups[:MOST_GROUPS],
        "metrics": metrics[: charts.MOST_METRICS],
        "metrics_left_out": len(metrics[charts.MOST_METRICS :]),
        "findings": report.verified.findings[:MOST_FINDINGS],
        "shared": len({one.run_id for one in report.states}) > 1,
    }


def _has(report: StoreReport, role: str) -> bool:
    return any(role in state.bytes_stored for state in report.states)


def _facts(report: StoreReport) -> dict[str, str]:
    """Return the store in numbers."""
    stats = report.stats
    found = {
        "States": f"{stats.states:,}, of {counted(stats.steps, 'step')}, by {counted(stats.runs, 'run')}",
        "Anchors, deltas": f"{stats.anchors:,}, {stats.deltas:,}",
        "As full saves": size(stats.bytes_raw["total"]),
        "Stored": size(stats.bytes_stored["total"]),
    }
    if stats.bytes_raw["total"]:
        found["Ratio, all counted"] = f"{stats.ratio:.1f}x"
    if stats.protection_bytes:
        found["Of that against damage"] = size(stats.protection_bytes)
    if stats.shortcuts:
        found["Shortcuts"] = f"{stats.shortcuts:,}, {size(stats.bytes_stored['shortcut'])}"
    if stats.retired:
        found["Retired, still there"] = counted(stats.retired, "state")
    if stats.condemned:
        found["Condemned"] = f"{counted(stats.condemned, 'object')}, {size(stats.condemned_bytes)}"
    if stats.orphans:
        found["Of no record"] = f"{counted(stats.orphans, 'object')}, {size(stats.orphan_bytes)}"
    return found


#: By the section of the page that they are in.
_DRAWN: Final[dict[str, tuple[Callable[[StoreReport], Any], ...]]] = {
    "bytes": (charts.bytes_per_save, charts.cumulative),
    "layers": (
        lambda report: charts.movement(report.tensors),
        lambda report: charts.error_by_layer(report.tensors),
        lambda report: charts.ratios(report.tensors),
        charts.measured_error,
    ),
    "metrics": (charts.metrics,),
    "restores": (charts.restore_costs,),
}


def _charts(report: StoreReport) -> dict[str, list[charts.Figure]]:
    """Return the charts of each section; none of a store without states."""
    return {
        section: [figure for draw in drawn for figure in _each(draw(report))] if report.states else []
        for section, drawn in _DRAWN.items()
    }


def _each(drawn: charts.Figure | list[charts.Figure] | None) -> Iterator[charts.Figure]:
    if isinstance(drawn, list):
        yield from drawn
    elif drawn is not None:
        yield drawn


def _number(value: float | None) -> str:
    """Return a number in four digits or fewer; nothing of one that is not known."""
    return "" if value is None else f"{value:.4g}"
