"""One tensor or plain value of a state, or a part of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lcstore.read.lookup import absent, tensor_at
from lcstore.read.resolved import Resolved
from lcstore.state.names import Name, format_name


def read_one(state: Resolved, name: Name, sel: Any = ()) -> Any:
    """Return one tensor (or plain value), or what numpy's index `sel` takes of it.

    Raises
    ------
    NotFoundError
        The state has no such value, or it was let go of.
    """
    node = state.node
    tensor = tensor_at(node, name)
    if tensor is None:
        leaf = node.leaf_places.get(name)
        if leaf is None:
            raise absent(format_name(name), [node], state.reader.url)
        return state.leaves[leaf]
    spec = node.layout.tensors[tensor]
    window = row_window(spec.shape, sel)
    if window is None:
        return np.asarray(state.values([tensor])[tensor].reshape(spec.shape)[sel])
    low, high, rest = window
    return np.asarray(state.window(tensor, low, high).reshape(-1, *spec.shape[1:])[rest])


def row_window(shape: tuple[int, ...], sel: Any) -> tuple[int, int, Any] | None:
    """Return first and last element, and what is left to select, where `sel` begins with a range of rows.

    None where the selection has to be made on the whole tensor.
    """
    first = sel[0] if isinstance(sel, tuple) and sel else sel
    if 0 in shape or not shape or not isinstance(first, slice | int | np.integer) or isinstance(first, bool):
        return None
    row = math.prod(shape[1:])
    rest = sel[1:] if isinstance(sel, tuple) else ()
    if not isinstance(first, slice):
        at = int(first) + (shape[0] if first < 0 else 0)
        return (at * row, (at + 1) * row, (0, *rest)) if 0 <= at < shape[0] else None
    start, stop, step = first.indices(shape[0])
    if step != 1 or stop <= start:
        return None
    return start * row, stop * row, (slice(None), *rest)
