"""From a flattened state to the entries of a layout: which role each tensor gets, by policy and by law."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_name
from lcstore.layout.layout import Entry
from lcstore.layout.shards import Shard
from lcstore.state.frameworks import HostArray
from lcstore.state.moments import Tensor, guess_roles
from lcstore.state.names import Name
from lcstore.state.roles import Role, is_optimizer
from lcstore.track.policy import Policy

#: Small tensors are plain while all of them together stay under this part of the edge's coded bytes.
SMALL_SHARE: Final = 0.02
#: What weights and moments are expected to take, for that rule, in bytes per element.
_EXPECTED_BYTES: Final = 0.1


def layout_entries(
    tensors: Sequence[tuple[Name, HostArray]],
    policy: Policy,
    plain: Set[Name],
    shards: Mapping[Name, Shard] | None = None,
    types: Mapping[Name, str] | None = None,
    ties: Mapping[Name, Name] | None = None,
    said: Mapping[Name, Role] | None = None,
) -> list[Entry]:
    """Return the entries of a layout: every tensor with its role.

    Parameters
    ----------
    tensors
        As flattened.
    policy
        The store's.
    plain
        Names of tensors that have shown values which no grid holds, and stay plain until the next anchor.
    shards
        Of tensors of which this is a rectangle: which one.
    types
        Of `FlatState`: what named tuples are called.
    ties
        Of `FlatState`: further names of tensors, which say what they are as well.
    said
        Of `FlatState`: roles that names do not decide.
    """
    cut: Mapping[Name, Shard] = shards or {}
    whole = [
        Tensor(path, host.array.dtype, cut[path].whole if path in cut else host.array.shape)
        for path, host in tensors
    ]
    tied, names = ties or {}, {path: [path] for path, _ in tensors}
    for other, path in tied.items():
        names[path].append(other)
    alike = dict(zip(names, whole, strict=True))
    others = [alike[path]._replace(name=other) for other, path in tied.items()]
    roles = guess_roles([*whole, *others], types or {}, said or {})
    guessed = dict(zip([*names, *tied], roles, strict=True))
    entries = []
    for path, host in tensors:
        role = "plain" if path in plain else _role(names[path], guessed, policy)
        array = host.array
        entries.append(Entry(path, array.shape, dtype_name(array.dtype), role, host.framework, cut.get(path)))
    return _small_plain(entries, [host.array.nbytes for _, host in tensors])


def _role(names: Sequence[Name], guessed: Mapping[Name, Role], policy: Policy) -> Role:
    """Return the role of a tensor of one name or several: rules first, and lossy only where none objects."""
    first, *more = names
    if not more:
        return policy.role(first, guessed[first])
    said = [role for name in names if (role := policy.ruled(name)) is not None]
    guesses = said or [guessed[name] for name in names]
    role = guesses[0]
    if said or is_optimizer(first):
        role = role if len(set(guesses)) == 1 else "plain"
    elif "weights" in guesses:  # a tensor of a model that has another name besides
        role = "weights"
    return "plain" if any(policy.role(name, role) == "plain" for name in names) else role


def _small_plain(entries: list[Entry], sizes: list[int]) -> list[Entry]:
    """Make the smallest lossy tensors plain, while that costs next to nothing."""
    lossy = [i for i, entry in enumerate(entries) if entry.role != "plain"]
    room = SMALL_SHARE * _EXPECTED_BYTES * sum(math.prod(entries[i].shape) for i in lossy)
    for i in sorted(lossy, key=lambda i: sizes[i]):
        room -= sizes[i]
        if room < 0:
            break
        entries[i] = entries[i]._replace(role="plain")
    return entries


def flat_array(array: Array) -> Array:
    """Return the elements of an array in C order, flat; shares memory where it can."""
    return np.ascontiguousarray(array).reshape(-1)
