"""From a flattened state to the entries of a layout: which role each tensor gets, by policy and by law."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final

import numpy as np

from lcstore.arrays import Array
from lcstore.codec.dtypes import dtype_name
from lcstore.state.frameworks import HostArray
from lcstore.state.layout import Entry
from lcstore.state.names import Name
from lcstore.state.roles import guess_role
from lcstore.state.shards import Shard
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
    """
    entries = []
    for path, host in tensors:
        dtype, shape = host.array.dtype, host.array.shape
        shard = shards.get(path) if shards is not None else None
        role = policy.role(path, guess_role(path, dtype, shape if shard is None else shard.whole))
        if path in plain:
            role = "plain"
        entries.append(Entry(path, shape, dtype_name(dtype), role, host.framework, shard))
    return _small_plain(entries, [host.array.nbytes for _, host in tensors])


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
