"""Which moments may be lossy: those that no optimizer sets against other statistics.

What is set against another statistic may not be a little off by itself: a centered RMSprop takes the square
root of ``square_avg - grad_avg**2``, and a `square_avg` that is low makes it NaN. So moments are looked at as
the *group* that an optimizer keeps of a parameter, and are lossy only in groups that are known. All others
stay plain, whatever they are called.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from lcstore.state.names import Component, Name
from lcstore.state.roles import Role, guess_role, may_be_lossy, moment_field

#: The groups that are known, by their fields: a lone momentum, a lone scale, and the two of Adam.
_KNOWN: Final = frozenset(
    frozenset(fields.split())
    for fields in (
        *("exp_avg exp_avg_sq", "exp_avg", "exp_avg_sq", "momentum_buffer", "square_avg"),
        "square_avg momentum_buffer",
        *("mu nu", "mu", "nu", "trace"),
        *("m v", "m", "momentum"),
    )
)
#: Copies of the parameter itself, which mixed precision keeps beside its moments.
_COPIES: Final = frozenset({"param", "master_param"})
#: Fields of Adam in Optax, and of other optimizers too (a centered RMSprop): more has to say that it is Adam.
_ADAM_OR_NOT: Final = frozenset({"mu", "nu"})
_ADAM: Final = re.compile("adam|belief", re.IGNORECASE)


class Tensor(NamedTuple):
    """What a role is guessed from."""

    name: Name
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def guess_roles(
    tensors: Sequence[Tensor], types: Mapping[Name, str], said: Mapping[Name, Role]
) -> list[Role]:
    """Return the role of each tensor of a state: as `guess_role` says, but for moments of unknown groups.

    Parameters
    ----------
    tensors
        All of the state.
    types
        Of `FlatState`: what named tuples and other objects with fields are called.
    said
        Of `FlatState`: what modules say of tensors, which goes before their names.
    """
    roles = [
        said[tensor.name]
        if tensor.name in said and may_be_lossy(tensor.dtype, tensor.shape)
        else guess_role(*tensor)
        for tensor in tensors
    ]
    groups = {
        number: found
        for number, role in enumerate(roles)
        if role in ("first_moment", "second_moment") and (found := _group(tensors[number].name)) is not None
    }
    if not groups:
        return roles
    fields = _fields(tensors, set(groups.values()))
    lossy = {group for group, its in fields.items() if _is_known(group, its, types)}
    return [
        "plain" if number in groups and groups[number] not in lossy else role
        for number, role in enumerate(roles)
    ]


def _group(path: Name) -> Name | None:
    """Return the part of the name of a moment that it shares with what is kept besides it."""
    path = _apart(path)
    found = moment_field(path)
    return None if found is None else path[: found[0]]


def _apart(path: Name) -> Name:
    """Return a name of which the last word is a part: "layers.0.weight.exp_avg" is two."""
    last = path[-1] if path else 0
    if isinstance(last, int) or "." not in last:
        return path
    owner, _, field = last.rpartition(".")
    return (*path[:-1], owner, field)


def _fields(tensors: Sequence[Tensor], groups: set[Name]) -> dict[Name, dict[Component, int]]:
    """Return the fields of each group, and of how many elements their largest tensor is."""
    found: dict[Name, dict[Component, int]] = {group: {} for group in groups}
    lengths = sorted({len(group) for group in groups})
    for tensor in tensors:
        path = _apart(tensor.name)
        for length in lengths:
            fields = found.get(path[:length]) if length < len(path) else None
            if fields is not None:
                fields[path[length]] = max(fields.get(path[length], 0), math.prod(tensor.shape))
    return found


def _is_known(group: Name, fields: Mapping[Component, int], types: Mapping[Name, str]) -> bool:
    # Numbers (a step, a rate) are exact anyway, and every optimizer has some.
    statistics = frozenset(field for field, size in fields.items() if size > 1) - _COPIES
    if statistics not in _KNOWN:
        return False
    if statistics != _ADAM_OR_NOT:
        return True
    if group in types:
        return _ADAM.search(types[group]) is not None
    return "count" in fields or any(_ADAM.search(str(part)) is not None for part in group)
