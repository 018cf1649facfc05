"""Choosing a state by what was measured of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lcstore.errors import NotFoundError
from lcstore.format.records import NodeRecord


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
