"""From a flattened state to the entries of a layout: which role each tensor gets, by policy and by law."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import Final

from lcstore.dtypes import dtype_name
from lcstore.layout.layout import Entry
from lcstore.state.moments import Tensor, guess_roles
from lcstore.state.names import Name
from lcstore.state.roles import Role, is_optimizer
from lcstore.state.tree import FlatState
from lcstore.track.policy import Policy

#: Small tensors are plain while all of them together stay under this part of the edge's coded bytes.
SMALL_SHARE: Final = 0.02
#: What a delta is expected to take, for that rule, in bytes per element of weights and moments. Moments of
#: one dimension lose little by being coded: they are exact while it holds at policies like `small`, too.
_EXPECTED_BYTES, _LEAST_BYTES = 0.1, 0.02


def layout_entries(flat: FlatState, policy: Policy, plain: Set[Name]) -> list[Entry]:
    """Return the entries of a layout: every tensor with its role.

    Parameters
    ----------
    flat
        The state.
    policy
        The store's.
    plain
        Names of tensors that no grid holds, and that are plain for it.
    """
    tensors = [Tensor(name, host.array.dtype, host.array.shape) for name, host in flat.tensors]
    alike = {tensor.name: tensor for tensor in tensors} if flat.ties else {}
    others = [alike[name]._replace(name=other) for other, name in flat.ties.items()]
    roles = guess_roles([*tensors, *others], flat.types, flat.said, flat.counted)
    names: dict[Name, dict[Name, Role]] = {}
    for (other, name), guessed in zip(flat.ties.items(), roles[len(tensors) :], strict=True):
        names.setdefault(name, {})[other] = guessed
    entries = []
    for (name, host), guessed in zip(flat.tensors, roles, strict=False):
        more = names.get(name)
        role = policy.role(name, guessed) if more is None else _role({name: guessed, **more}, policy)
        array = host.array
        role = "plain" if name in plain else role
        entries.append(Entry(name, array.shape, dtype_name(array.dtype), role, host.framework))
    return _small_plain(entries, [host.array.nbytes for _, host in flat.tensors])


def _role(guessed: Mapping[Name, Role], policy: Policy) -> Role:
    """Return the role of a tensor of several names: rules first, and lossy only where none objects."""
    said = [role for name in guessed if (role := policy.ruled(name)) is not None]
    guesses = said or [*guessed.values()]
    role = guesses[0]
    if said or is_optimizer(next(iter(guessed))):
        role = role if len(set(guesses)) == 1 else "plain"
    elif "weights" in guesses:  # a tensor of a model that has another name besides
        role = "weights"
    return "plain" if any(policy.role(name, role) == "plain" for name in guessed) else role


def _small_plain(entries: list[Entry], sizes: list[int]) -> list[Entry]:
    """Make the smallest lossy tensors plain, those of one dimension last, while it costs next to nothing."""
    lossy = [i for i, entry in enumerate(entries) if entry.role != "plain"]
    elements, taken = sum(math.prod(entries[i].shape) for i in lossy), 0
    for i in sorted(lossy, key=lambda i: (len(entries[i].shape) == 1, sizes[i])):
        expected = _LEAST_BYTES if len(entries[i].shape) == 1 else _EXPECTED_BYTES
        if taken + sizes[i] <= SMALL_SHARE * expected * elements:
            entries[i] = entries[i]._replace(role="plain")
            taken += sizes[i]
    return entries
