"""Choosing a state by what was measured of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format.labels import check_choice
from lcstore.format.records import NodeRecord
from lcstore.graph.refs import NodeName
from lcstore.index.resolve import check_run
from lcstore.index.states import Listed
from lcstore.read.reader import Reader


def best(reader: Reader, metric: str, mode: str, run: int | str | None = None) -> NodeName:
    """Return the state that has the best value of a metric; see `Store.best_step`.

    All states are looked at, of all runs and those of a step that was saved again, as `BestN` does.

    Parameters
    ----------
    reader, metric
        What reads, and which metric.
    mode
        ``"min"`` for the least, ``"max"`` for the greatest.
    run
        Look only at the states of this run.

    Raises
    ------
    NotFoundError
        No state has the metric, or it is finite at none; there is no such run.
    """
    check_choice("mode", mode, ("min", "max"))
    while True:
        graph = reader.listed()
        check_run(graph, reader.url, run)
        names = [
            name
            for step in graph.steps(run)
            for name in graph.revisions(step)
            if run is None or run in (name.run, name.run_id)
        ]
        try:
            records = reader.index.records([name.node for name in names], reader.requests)
        except (CorruptionError, NotFoundError):
            listed = reader.listed()
            if all(name.node in listed for name in names):
                raise
            continue  # one of them was collected meanwhile
        return names[_best_of(records, metric, mode, "" if run is None else f" of run {run}")]


def _best_of(records: Sequence[NodeRecord], metric: str, mode: str, where: str) -> int:
    """Return the place of the best record; `where` they are from, for the message that there is none."""
    place = place_of_best(records, metric, mode)
    if place is None:
        known = {name for record in records for name in record.metrics}
        why = f"no step{where} has a metric {metric!r}"
        if metric in known:
            why = f"metric {metric!r} is NaN or infinite at every step{where}"
        others = ", ".join(map(repr, sorted(known - {metric})))
        there = f"; there are {others}" if others else ", or any" * (not known)
        raise NotFoundError(f"{why}{there}", missing="metric")
    return place


def place_of_best(states: Sequence[NodeRecord | Listed], metric: str, mode: str) -> int | None:
    """Return the place of the best of some states, or None where no value is finite.

    Only finite values win; of equals the later commit does.

    An infinite loss is one that overflowed, or the logarithm of zero, and no measure of a state.
    """
    sign = -1 if mode == "min" else 1
    ranked = [
        ((sign * state.metrics[metric], state.seq, state.run), place)
        for place, state in enumerate(states)
        if metric in state.metrics and math.isfinite(state.metrics[metric])
    ]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else None
