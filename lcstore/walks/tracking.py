"""How far what is given of a node may be from what was saved, tensor by tensor, as its save recorded it."""

from __future__ import annotations

import math

import numpy as np

from lcstore.arrays import Array
from lcstore.edges.columns import ADD, KEEP
from lcstore.read.node import Node
from lcstore.track.stepsizes import error_at


def squared_errors(node: Node) -> Array:
    """Return the square of the norm of each tensor's error, estimated.

    A save records the error of all weights together, and of each tensor its step size and how far it moves
    from save to save. The step sizes say how the error is divided.

    Returns
    -------
    float64[tensors]
        By place among `Layout.tensors`. 0 where every bit is given; NaN where the error is not known, as of
        moments.
    """
    columns, specs = node.columns, node.layout.tensors
    found, there, moved = np.zeros(len(specs)), np.zeros(len(specs)), 0.0
    movement = columns.movement
    for tensor, spec in enumerate(specs):
        scale, grid = float(columns.scale[tensor]), int(columns.grid[tensor])
        if spec.role != "weights" or columns.op[tensor] not in (KEEP, ADD) or scale <= 0:
            continue
        if columns.op[tensor] == KEEP and not columns.moved[tensor]:  # as near as its grid allows
            unit = math.ldexp(1.0, grid)
            there[tensor] = spec.size / 12 * unit * unit  # not by a power, which raises where it overflows
            continue
        error = error_at(int(columns.shift[tensor]), grid, scale)
        moved += spec.size * float(movement[tensor]) ** 2
        found[tensor] = spec.size * (error * scale) ** 2
    recorded = node.record.stats.get("error")
    if recorded is not None and found.any():
        found *= recorded * recorded * moved / found.sum()
    found += there
    for tensor, spec in enumerate(specs):
        if node.keeps_exact(tensor):
            found[tensor] = 0
        elif spec.role not in ("weights", "plain"):
            found[tensor] = math.nan
    return found
