"""Restored values into what a caller already has: models, optimizers, arrays, and nests of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError
from lcstore.graph.refs import NodeName
from lcstore.loading.torchload import (
    SHARDED,
    assigned,
    check_is_whole_here,
    fitted,
    in_its_order,
    is_module,
    is_schedule,
    loads_its_own_way,
)
from lcstore.state.frameworks import convert_like, is_array, to_host
from lcstore.state.names import Component, Name, format_name
from lcstore.state.torchobjects import is_made, is_optimizer, parameters_of, parts_of
from lcstore.state.torchtensors import is_shard
from lcstore.state.tree import MISSING

#: What loads or fills an object, by its name.
Job: TypeAlias = tuple[Name, Callable[[], object]]
#: What loads a state that is that of one object, where names of several are asked for.
_WHOLE: Final = "if its state_dict() alone was saved: target.load_state_dict(store.restore(step))"


def check_targets(targets: Mapping[str, Any]) -> None:
    """Refuse objects that a state cannot be loaded into, before anything is read."""
    given: object = targets
    if not isinstance(given, Mapping):
        kind = type(given).__qualname__
        whole = "; " + _WHOLE if _takes_state(given) else ""
        if isinstance(given, int | str):
            whole = f". The state comes before them: ({given!r:.100}, {{'model': ...}})"
        raise InvalidInputError(
            f"targets are given as {kind}: give a dict, by the names in the state: {{'model': ...}}{whole}"
        )
    for where, target in _all_targets((), targets):
        if not _takes_state(target) and not _is_filled(target):
            raise InvalidInputError(
                f"{format_name(where)!r} is a {type(target).__qualname__}: it has no load_state_dict, and is "
                "no numpy array or torch tensor; restore(like=...) makes a new tree like another"
            )


def load_into(
    state: Any,
    targets: Mapping[str, Any],
    name: NodeName,
    *,
    updated: Mapping[Name, list[list[Name]]] | None = None,
    assign: bool = False,
) -> None:
    """Load into each target what the state has under its name.

    All is looked at before anything is changed. Objects that load in their own way, of which nobody can say
    what they take, come first: where one of them refuses, nothing else has changed.

    Parameters
    ----------
    state, targets, name
        Which state, what into, and what the store calls the state.
    updated
        Of `Layout`: which tensors optimizers update.
    assign
        Put tensors in place of those that modules of torch have, as their `load_state_dict` does.

    Raises
    ------
    InvalidInputError
        Something is not saved, or does not fit; the message says which state it was.
    """
    try:
        _load_into(state, targets, updated or {}, assign=assign)
    except InvalidInputError as error:
        error.message += (
            f". It was step {name.step} of run {name.run}, node {name.node}, that was to be loaded; `lcstore "
            "ls` lists the others"
        )
        raise


def _load_into(
    state: Any, targets: Mapping[str, Any], updated: Mapping[Name, list[list[Name]]], *, assign: bool
) -> None:
    missing = [name for name in targets if not isinstance(state, dict) or name not in state]
    if missing:
        tops = state if isinstance(state, dict) else {}
        has = (", ".join(map(repr, tops)) or "nothing in it") if isinstance(state, dict) else "one value"
        near = get_close_matches(str(missing[0]), [str(name) for name in tops if name not in targets], n=1)
        # One that has none of the names may be the state of one module, as its state_dict() gave it.
        tensors = any(map(is_array, tops.values())) and not any(
            isinstance(part, dict) for part in tops.values()
        )
        whole = "; " + _WHOLE if tensors and any(map(_takes_state, targets.values())) else ""
        meant = f" (is {near[0]!r} meant?)" if near and not whole else ""
        raise InvalidInputError(
            f"nothing is saved under {', '.join(map(repr, missing))}{meant}: the state has {has}"
            f"{whole or _part(state, missing[0])}"
        )
    found = list(_pairs((), targets, state))
    loads = [(where, target, saved) for where, target, saved in found if _takes_state(target)]
    if assign:
        _check_apart(loads)
    found = [*_by_name(found, updated)]
    unsure: list[Job] = []
    sure: list[Job] = []
    arrays: list[Job] = []
    for where, target, saved in found:
        if not _takes_state(target):
            arrays.append((where, _filling(format_name(where), saved, target)))
            continue
        own_way, job = _loading(where, target, saved, assign)
        (unsure if own_way else sure).append((where, job))
    _run([*unsure, *sure, *arrays])


def _part(state: Any, name: object) -> str:
    """Return how to have what is below a module's name: in the keys of torch a dot joins the two."""
    outer, _, inner = str(name).rpartition("/")
    for key, part in state.items() if isinstance(state, dict) else ():
        names = part if isinstance(part, dict) and outer in ("", key) else ()
        if any(str(one).startswith(f"{inner}.") for one in names):
            return (
                f"; names in {key!r} begin so: restore(step, names='{key}/{inner}.*')[{key!r}], and take "
                f"'{inner}.' from them for load_state_dict"
            )
    return ""


def _by_name(
    found: Sequence[tuple[Name, Any, Any]], updated: Mapping[Name, list[list[Name]]]
) -> Iterator[tuple[Name, Any, Any]]:
    """Yield targets and what is saved for them, that of optimizers in the order of their parameters here."""
    others = [(where, target) for where, target, _ in found if is_module(target) or is_array(target)]
    for where, target, saved in found:
        if is_optimizer(target):
            try:
                saved = in_its_order(target, saved, updated.get(where), others)
            except InvalidInputError as error:
                raise _cannot_load(where, error) from error
        yield where, target, saved


def _cannot_load(where: Name, error: InvalidInputError) -> InvalidInputError:
    return InvalidInputError(f"{format_name(where)!r} cannot be loaded: {error.message}")


def _run(jobs: Sequence[Job]) -> None:
    for number, (where, job) in enumerate(jobs):
        try:
            job()
        except Exception as error:
            done = ", ".join(repr(format_name(name)) for name, _ in jobs[:number])
            error.add_note(
                f"lcstore: {format_name(where)!r} refused what is saved; "
                + (f"{done} had been loaded before" if done else "nothing else was changed")
            )
            raise


def _check_apart(loads: Sequence[tuple[Name, Any, Any]]) -> None:
    """Refuse optimizers of parameters that are about to be replaced: they would update nothing."""
    modules = [target for _, target, _ in loads if is_module(target)]
    replaced = {id(parameter) for module in modules for parameter in module.parameters()}
    for where, target, _ in loads:
        if is_optimizer(target) and not replaced.isdisjoint(map(id, parameters_of(target))):
            raise InvalidInputError(
                f"{format_name(where)!r} updates parameters that assign=True replaces: load the model, make "
                "the optimizer of its new parameters, and load that"
            )


def _loading(where: Name, target: Any, saved: Any, assign: bool) -> tuple[bool, Callable[[], object]]:
    """Return whether a target may still refuse what is saved, and what loads it."""
    if not (is_module(target) or is_optimizer(target) or is_schedule(target)):
        return True, partial(target.load_state_dict, saved)
    options = {"assign": True} if assign and is_module(target) else {}
    try:
        check_is_whole_here(target, assign=assign)
        try:
            saved, own_way = fitted(target, saved, where), False
        except InvalidInputError:
            if not loads_its_own_way(target):
                raise
            own_way = True
    except InvalidInputError as error:
        raise _cannot_load(where, error) from error
    if options and not own_way:
        saved = assigned(target, saved)
    return own_way, partial(target.load_state_dict, saved, **options)


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
    if is_made(target):
        target = parts_of(target)
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
            hint = _part({where[-1]: saved}, f"{where[-1]}/{name}") if where else ""
            raise InvalidInputError(f"nothing is saved under {format_name((*where, name))!r}{hint}")
        yield from _pairs((*where, name), part, there[name])


def _filling(name: str, saved: Any, target: Any) -> Callable[[], object]:
    """Return what fills an array, once it is known to fit; refuse what is none, or would be cut."""
    if not is_array(saved):
        raise InvalidInputError(f"a {type(saved).__qualname__} is saved under {name!r}, not an array")
    value = to_host(saved).array
    if not isinstance(target, np.ndarray):
        return _filling_tensor(name, value, target)
    if not target.flags.writeable:
        raise InvalidInputError(f"the array for {name!r} is read-only")
    _check_is_apart(name, target.shape, target.strides)
    try:
        converted = convert_like(value, target)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"{value.dtype}{list(value.shape)} is saved under {name!r}; "
            f"it does not go into {target.dtype}{list(target.shape)}: {error.message}"
        ) from error
    return lambda: np.copyto(target, converted)


def _check_is_apart(name: str, shape: Sequence[int], strides: Sequence[int]) -> None:
    """Refuse what has one element at several places: torch fills none such, and numpy with the last value."""
    if 0 not in shape and any(size > 1 and not stride for size, stride in zip(shape, strides, strict=True)):
        raise InvalidInputError(
            f"elements of what is to be filled with {name!r} share memory, as after expand or broadcast_to: "
            "give a copy of it, by clone() or copy()"
        )


def _filling_tensor(name: str, value: Array, target: Any) -> Callable[[], object]:
    if target.is_meta:
        raise InvalidInputError(f"the tensor for {name!r} is on the meta device, where nothing is filled")
    if is_shard(target):
        raise InvalidInputError(f"the tensor for {name!r} cannot be filled: {SHARDED}")
    if str(target.layout) != "torch.strided":
        raise InvalidInputError(f"the tensor for {name!r} cannot be filled: it is sparse, give a dense one")
    _check_is_apart(name, target.shape, target.stride())
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
