"""``lcstore plot``: bytes, errors and metrics of a store, drawn in the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from lcstore.errors import NotFoundError
from lcstore.terminal.answer import answering
from lcstore.terminal.arguments import AsJson, Options, Pairs, Url
from lcstore.terminal.printing import until_unread, width_of
from lcstore.units import counted

if TYPE_CHECKING:
    from lcstore.report.facts import SavedState

#: Where the answer goes to no terminal.
_WIDTH = 80


def plot(
    url: Url,
    metric: Annotated[
        list[str] | None, typer.Option("--metric", help="Draw this metric alone; repeatable.")
    ] = None,
    as_json: AsJson = False,
    options: Options = None,
    pairs: Pairs = None,
) -> None:
    """Draw the bytes, errors and metrics of saves in the terminal; the whole page is `lcstore report`."""
    with answering(url, as_json, options, pairs) as answer:
        from lcstore.report.gather import saved_states

        with answer.store() as store, answer.progress("reading records") as on_progress:
            states, stats = saved_states(store, on_progress)
        _check(states, metric or [])
        answer.next = ""
        if as_json:
            answer.give({"url": url, "states": states}, ())
        elif not states:
            print(f"{answer.url} is a store without a state yet: a training run has still to save into it")
        else:
            _draw(states, metric or [])
        if stats.unreadable:
            count, command = len(stats.unreadable), f"lcstore verify {answer.quoted}"
            answer.note(f"{counted(count, 'record')} could not be read, and are not drawn. Next: {command}")
            raise typer.Exit(1)


def _check(states: list[SavedState], metrics: list[str]) -> None:
    """Refuse metrics that no state has."""
    from lcstore.report.series import metric_names

    known = metric_names(states)
    for name in metrics:
        if name not in known:
            said = f"no state has a metric {name!r}; there are: {', '.join(known) or 'none'}"
            raise NotFoundError(said, missing="metric")


def _draw(states: list[SavedState], metrics: list[str]) -> None:
    from lcstore.report.plots import Plots

    plots = Plots(
        states,
        width_of(sys.stdout) or _WIDTH,
        colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ,
        letters="utf" not in (sys.stdout.encoding or "").lower(),
    )
    with until_unread():
        print(*plots.all(metrics), sep="\n\n")
