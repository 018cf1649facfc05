"""What a store says of its states, and gives back of them, as JSON has it: for comparing versions."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import numpy as np

import lcstore

#: Longer texts stand as a digest.
_LONG = 100


def all_given(store: lcstore.Store) -> dict[str, Any]:
    """Return what is said and given of each state, by its node; of those that are retired, too."""
    return {found.node: _of(store, found) for found in store.states(retired=True)}


def _of(store: lcstore.Store, found: Any) -> dict[str, Any]:
    info = store.info(found.node)
    return {
        "step": found.step,
        "run": found.run_id,
        "base": found.base,
        "kind": found.kind,
        "exact": info.exact,
        "retired": found.retired,
        "pinned_by": sorted(found.pinned_by),
        "tags": sorted(found.tags),
        "metrics": given(info.metrics),
        "metadata": given(info.metadata),
        "state": given(store.restore(found.node, to="numpy")),
    }


def given(value: Any) -> Any:
    """Return a value as JSON has it: containers as they are, arrays as a digest of their bytes."""
    if isinstance(value, dict):
        return {repr(key): given(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [type(value).__name__, *map(given, value)]
    if isinstance(value, np.ndarray):
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        return f"{value.dtype.name} {value.shape} {sha256(little.tobytes()).hexdigest()}"
    said = repr(value)
    return said if len(said) <= _LONG else f"{type(value).__name__} {sha256(said.encode()).hexdigest()}"
