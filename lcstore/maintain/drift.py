"""How saves add up: whether each moves the weights in a direction of its own, or all in much the same."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice
from typing import Final

import numpy as np

from lcstore.edges.edge import composed_dtype
from lcstore.errors import LcstoreError
from lcstore.graph.graph import Graph
from lcstore.graph.refs import ROOT, EdgeRef
from lcstore.graph.sizes import LEAST_DRIFT
from lcstore.read.reader import Reader

#: Saves that are looked at, one chunk of each.
_SAVES: Final = 8


def measured_drift(reader: Reader, graph: Graph) -> float:
    """Return how the distance that the weights move grows with the number of saves; see `graph.sizes.Sizes`.

    One chunk of the last saves is read and summed. Where that cannot be done it is as if each save moved the
    weights in a direction of its own.
    """
    try:
        variances = _variances(reader, graph)
    except LcstoreError:
        return LEAST_DRIFT
    if variances is None:
        return LEAST_DRIFT
    one, count, together = variances
    return min(1.0, max(LEAST_DRIFT, 0.5 * math.log(together / one) / math.log(count)))


def _variances(reader: Reader, graph: Graph) -> tuple[float, int, float] | None:
    """Return the mean square of the moves of single saves, their number, and that of their sum."""
    edges = reader.edges([*islice(_last_deltas(graph), _SAVES)])
    edges = [edge for edge in edges if edge.layout is edges[0].layout]
    if len(edges) < 2:
        return None
    pools = {name: pool for name, pool in edges[0].layout.pools.items() if pool.role == "weights"}
    if not pools:
        return None
    name = max(pools, key=lambda name: pools[name].size)
    moves = []
    for edge in edges:
        move = np.zeros(edge.size_of(name, 0), composed_dtype(pools[name]))
        edge.add(name, 0, move, (0, move.size))
        moves.append(move.astype(np.float64))
    one = float(np.mean([np.mean(move**2) for move in moves]))
    together = float(np.mean(np.sum(moves, axis=0) ** 2))
    return (one, len(moves), together) if one > 0 and together > 0 else None


def _last_deltas(graph: Graph) -> Iterator[EdgeRef]:
    """Yield the edges that the latest states were saved with, the last first, as far as they are deltas."""
    name = graph.latest()
    while name is not None and name.base != ROOT and not graph.is_condemned(name.ref):
        yield name.ref
        name = graph.nodes.get(name.base)
