"""Choosing a state by what was measured of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format.labels import check_choice
from lcstore.format.records import NodeRecord
from lcstore.read.reader import Reader


def best_step(reader: Reader, metric: str, mode: str) -> int:
    """Return the step whose newest revision has the best value of a metric; see `Store.best_step`."""
    check_choice("mode", mode, ("min", "max"))
    while True:
        graph = reader.listed()
        names = [name for step in graph.steps() if (name := graph.at_step(step)) is not None]
        try:
            records = reader.index.records([name.node for name in names], reader.requests)
        except (CorruptionError, NotFoundError):
            listed = reader.listed()
            if all(name.node in listed for name in names):
                raise
            continue  # one of them was collected meanwhile
        return best_of(records, metric, mode).step


def best_of(records: Sequence[NodeRecord], metric: str, mode: str) -> NodeRecord:
    """Return the record whose metric is the least (`mode` ``"min"``) or the greatest (``"max"``).

    NaN never wins; of equals the later commit does.

    Raises
    ------
    NotFoundError
        None of them has the metric, or all are NaN.
    """
    having = [record for record in records if metric in record.metrics]
    sign = -1 if mode == "min" else 1
    ranked = [
        ((sign * record.metrics[metric], record.run, record.seq), record)
        for record in having
        if not math.isnan(record.metrics[metric])
    ]
    if not ranked:
        known = sorted({name for record in records for name in record.metrics})
        why = f"metric {metric!r} is NaN at every step" if having else f"no step has a metric {metric!r}"
        raise NotFoundError(f"{why}; there are {', '.join(map(repr, known))}" if known else f"{why}, or any")
    return max(ranked, key=lambda pair: pair[0])[1]
