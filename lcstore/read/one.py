"""One tensor or plain value of a state, or a part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from lcstore.errors import InvalidInputError
from lcstore.format.labels import check_choice
from lcstore.layout.shards import Box
from lcstore.read.lookup import absent
from lcstore.read.resolved import Resolved
from lcstore.state.frameworks import TARGETS, given_as, of_a_part
from lcstore.state.names import Name, format_name


class _IndexInputError(InvalidInputError, IndexError):
    """What is asked for lies outside of a tensor: also what numpy's callers look for."""


def read_one(state: Resolved, name: Name, sel: Any = (), to: str = "saved") -> Any:
    """Return one tensor (or plain value), or what numpy's index `sel` takes of it, as `given_as` does.

    Raises
    ------
    NotFoundError
        The state has no such value, or it was let go of.
    InvalidInputError
        A part of a plain value is asked for, or `sel` does not fit the tensor.
    """
    check_choice("to", to, TARGETS)
    node = state.node
    tensor = node.layout.named.get(name)
    if tensor is None:
        leaf = node.leaf_places.get(name)
        if leaf is None:
            raise absent(format_name(name), [node], state.reader.url)
        if not (isinstance(sel, tuple) and sel == ()):
            raise InvalidInputError(
                f"{format_name(name)!r} is a plain value, not a tensor: there is nothing in it to select"
            )
        return state.leaves[leaf]
    spec = node.layout.wholes[tensor]
    with _fitting(name, spec.shape):
        window = box_window(spec.shape, sel)
    if window is None:
        found, rest = state.nearby.value(node, tensor, state.values).reshape(spec.shape), sel
    else:
        box, rest = window
        found = state.region(tensor, box)
    with _fitting(name, spec.shape):
        found = found[rest]
    whole = isinstance(sel, tuple) and sel == ()
    return given_as(np.asarray(found), spec.framework if whole else of_a_part(spec.framework), to)


@contextmanager
def _fitting(name: Name, shape: tuple[int, ...]) -> Iterator[None]:
    """Say of which tensor it is that an index does not fit."""
    try:
        yield
    except (IndexError, TypeError, ValueError) as error:
        message = f"the index does not fit: {format_name(name)!r} has the shape {shape} ({error})"
        raise _IndexInputError(message) from error


def box_window(shape: tuple[int, ...], sel: Any) -> tuple[Box, Any] | None:
    """Return the indices that `sel` is within, and what is left to select of those.

    None where the selection has to be made on the whole tensor.
    """
    leading = sel if isinstance(sel, tuple) else (sel,)
    box, rest = [], []
    for size, one in zip(shape, leading, strict=False):
        bounds = _bounds(size, one)
        if bounds is None:
            break
        box.append(bounds[0])
        rest.append(bounds[1])
    if not box or 0 in shape:
        return None
    others = tuple((0, size) for size in shape[len(box) :])
    return (*box, *others), (*rest, *leading[len(box) :])


def _bounds(size: int, one: Any) -> tuple[tuple[int, int], Any] | None:
    """Return the indices that an integer or a rising slice is within, and what is left of it."""
    if isinstance(one, bool | np.bool_) or not isinstance(one, slice | int | np.integer):
        return None
    if not isinstance(one, slice):
        at = int(one) + (size if one < 0 else 0)
        return ((at, at + 1), 0) if 0 <= at < size else None
    start, stop, step = one.indices(size)
    return ((start, stop), slice(None, None, step)) if step > 0 and stop > start else None
