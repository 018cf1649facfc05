"""Comparing states leaf by leaf."""

from __future__ import annotations

from typing import Any

import numpy as np

from lcstore.state.names import format_name
from lcstore.state.tree import flatten


def leaves(state: Any) -> dict[str, np.ndarray]:
    """Every tensor of a state by the text of its path."""
    return {format_name(path): host.array for path, host in flatten(state).tensors}


def same(a: Any, b: Any) -> bool:
    """Whether two states are the same trees of the same bits."""
    one, two = flatten(a), flatten(b)
    if one.structure != two.structure or one.leaves != two.leaves:
        return False
    return all(
        p == q
        and x.array.dtype == y.array.dtype
        and x.array.shape == y.array.shape
        and x.array.tobytes() == y.array.tobytes()
        for (p, x), (q, y) in zip(one.tensors, two.tensors, strict=True)
    )


def differing(a: Any, b: Any) -> list[str]:
    """Paths of the tensors whose bits differ."""
    one, two = leaves(a), leaves(b)
    assert one.keys() == two.keys()
    return [path for path in one if one[path].tobytes() != two[path].tobytes()]


def tracked(store: Any) -> dict[str, bytes]:
    """What the writer of a handle believes a reader of its last commit gets, by path."""
    from lcstore.edges import grid
    from lcstore.edges.columns import NO_GRID

    track = store._writer.track
    out = {}
    for index, spec in enumerate(track.layout.tensors):
        pool = track.pools.get(spec.pool)
        if pool is None:
            continue
        held = pool[spec.offset : spec.offset + spec.size]
        if spec.role == "weights":
            values = grid.empty_values(spec.size, spec.dtype)
            unit = int(track.columns.grid[index])
            grid.from_grid(held, 0 if unit == NO_GRID else unit, spec.dtype, values)
            held = values
        out[format_name(spec.name)] = held.tobytes()
    return out
