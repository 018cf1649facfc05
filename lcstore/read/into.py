"""Restored values into what a caller already has: models, optimizers, arrays, and nests of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError
from lcstore.state.frameworks import convert_like, is_array, to_host
from lcstore.state.names import Component, Name, format_name
from lcstore.state.tree import MISSING


def check_targets(targets: Mapping[str, Any]) -> None:
    """Refuse objects that a state cannot be loaded into, before anything is read."""
    given: object = targets
    if not isinstance(given, Mapping):
        kind = type(given).__qualname__
        raise InvalidInputError(
            f"targets is a {kind}: give a dict, by the names in the state: {{'model': ...}}"
        )
    for where, target in _all_targets((), targets):
        if not _takes_state(target) and not _is_filled(target):
            raise InvalidInputError(
                f"{format_name(where)!r} is a {type(target).__qualname__}: it has no load_state_dict, and is "
                "no numpy array or torch tensor; restore(like=...) makes a new tree like another"
            )


def load_into(state: Any, targets: Mapping[str, Any]) -> None:
    """Load into each target what the state has under its name; `InvalidInputError` where it has nothing.

    All is looked at before anything is filled.
    """
    missing = [name for name in targets if not isinstance(state, dict) or name not in state]
    if missing:
        has = ", ".join(map(repr, state)) if isinstance(state, dict) else "one value"
        raise InvalidInputError(
            f"nothing is saved under {', '.join(map(repr, missing))}: the state has {has}"
        )
    found = list(_pairs((), targets, state))
    jobs = [_filling(format_name(where), saved, t) for where, t, saved in found if not _takes_state(t)]
    for job in jobs:
        job()
    for _, target, saved in found:
        if _takes_state(target):
            target.load_state_dict(saved)


def rest_of(state: Any, targets: Mapping[str, Any]) -> dict[Component, Any]:
    """Return what a state has besides what was loaded into `targets`."""
    rest = _rest(state, targets) if isinstance(state, dict) else {}
    return {} if rest is MISSING else rest


def _takes_state(target: object) -> bool:
    return callable(getattr(target, "load_state_dict", None))


def _is_filled(target: object) -> bool:
    return isinstance(target, np.ndarray) or (
        is_array(target) and callable(getattr(target, "copy_", None))  # torch, which need not be there
    )


def _parts(target: Any) -> dict[Component, Any] | None:
    """Return what a nest holds, by key or place; None if it is none."""
    if _takes_state(target):
        return None
    if isinstance(target, Mapping):
        return dict(target)
    return dict(enumerate(target)) if isinstance(target, list | tuple) else None


def _all_targets(where: Name, target: Any) -> Iterator[tuple[Name, Any]]:
    """Yield every object that takes values, with its name: nests are taken apart."""
    parts = _parts(target)
    if parts is None:
        yield where, target
        return
    for name, part in parts.items():
        yield from _all_targets((*where, name), part)


def _pairs(where: Name, target: Any, saved: Any) -> Iterator[tuple[Name, Any, Any]]:
    """Yield every object that takes values, with its name and what is saved there."""
    parts = _parts(target)
    if parts is None:
        yield where, target, saved
        return
    there = _parts(saved) or {}
    listed = not isinstance(target, Mapping)
    if listed and len(parts) != len(there):
        raise InvalidInputError(
            f"a list of {len(parts)} is given for {format_name(where)!r}; {len(there)} values are saved there"
        )
    for name, part in parts.items():
        if name not in there:
            raise InvalidInputError(f"nothing is saved under {format_name((*where, name))!r}")
        yield from _pairs((*where, name), part, there[name])


def _filling(name: str, saved: Any, target: Any) -> Callable[[], object]:
    """Return what fills an array, once it is known to fit; refuse what is none, or would be cut."""
    if not is_array(saved):
        raise InvalidInputError(f"a {type(saved).__qualname__} is saved under {name!r}, not an array")
    value = to_host(saved).array
    if not isinstance(target, np.ndarray):
        return _filling_tensor(name, value, target)
    if value.shape != target.shape or not np.can_cast(value.dtype, target.dtype, "same_kind"):
        raise InvalidInputError(
            f"{value.dtype}{list(value.shape)} is saved under {name!r}; "
            f"it does not go into {target.dtype}{list(target.shape)}"
        )
    if not target.flags.writeable:
        raise InvalidInputError(f"the array for {name!r} is read-only")
    return lambda: np.copyto(target, saved)


def _filling_tensor(name: str, value: Array, target: Any) -> Callable[[], object]:
    try:
        converted = convert_like(value, target)
    except InvalidInputError as error:
        raise InvalidInputError(f"what is saved under {name!r} does not go in: {error.message}") from error
    return lambda: target.detach().copy_(converted)


def _rest(saved: Any, target: Any) -> Any:
    """Return what of `saved` has no place in `target`; `MISSING` where nothing is left."""
    if _takes_state(target) or not isinstance(target, Mapping) or not isinstance(saved, dict):
        return MISSING
    kept = {name: _rest(part, target[name]) if name in target else part for name, part in saved.items()}
    kept = {name: part for name, part in kept.items() if part is not MISSING}
    return kept or MISSING
