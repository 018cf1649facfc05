"""A checkpoint of Lightning as what a store holds, and back: each value of the type that Lightning needs."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np
import torch
from blake3 import blake3

#: Marks a dict that stands for a value of another type; what lies under it is one of `_KINDS`, or a tensor.
_TYPE: Final = "lcstore.type"
#: Where the versions of modules lie, which a state dict of torch carries as an attribute.
_VERSIONS: Final = "lcstore.versions"


def _dtype(name: str) -> torch.dtype:
    found = vars(torch).get(name.removeprefix("torch."))
    if not isinstance(found, torch.dtype):
        raise TypeError(f"{name!r} is no dtype of torch")
    return found


#: Types that are data, by the name that stands for them: what of a value is stored, and what makes it again.
_KINDS: Final[dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "counter": (Counter, dict, Counter),
    "device": (torch.device, str, torch.device),
    "dtype": (torch.dtype, str, _dtype),
    "namespace": (Namespace, vars, lambda value: Namespace(**value)),
    "path": (PurePath, str, Path),
    "set": (set, list, set),
}


def stored(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint as a state of a store."""
    state: dict[str, Any] = {key: _stored(value) for key, value in checkpoint.items()}
    metadata = getattr(checkpoint.get("state_dict"), "_metadata", {})
    versions = {name: said for name, said in metadata.items() if said != {"version": 1}}
    return state | {_VERSIONS: versions} if versions else state


def given(state: Mapping[str, Any], device: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a state of a store as the checkpoint that it was; `device` puts each tensor where it belongs."""
    checkpoint = {key: _given(value, device) for key, value in state.items()}
    versions = checkpoint.pop(_VERSIONS, None)
    if versions:
        checkpoint["state_dict"]._metadata = OrderedDict(versions)
    return checkpoint


def _stored(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value
    for kind, (cls, give, _) in _KINDS.items():
        if isinstance(value, cls):
            return {_TYPE: kind, "value": _stored(give(value))}
    return _mapped(_stored, value)


def _given(value: Any, device: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return device(value)
    if isinstance(value, dict) and value.get(_TYPE) in _KINDS:
        return _KINDS[value[_TYPE]][2](_given(value["value"], device))
    return _mapped(lambda child: _given(child, device), value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Return a container with its children changed; what is none as it is."""
    if isinstance(value, dict):
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return kind((key, change(child)) for key, child in value.items())
    if isinstance(value, list):
        return [change(child) for child in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(change(child) for child in value)
    return value


def placed(map_location: Any) -> Callable[[Any], Any]:
    """Return what puts a tensor where `map_location` of ``torch.load`` says: what is stored is on the CPU."""
    if isinstance(map_location, Mapping):
        map_location = map_location.get("cpu")
    if callable(map_location):
        moved = map_location(torch.empty(0).untyped_storage(), "cpu")
        map_location = None if moved is None else moved.device
    if map_location is None:
        return lambda tensor: tensor
    return lambda tensor: tensor.to(map_location)


# What ModelCheckpoint notes of the files -----------------------------------------------------------------


def notes_of(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return as JSON what each `ModelCheckpoint` has noted of its files, by the key of its state.

    That alone is different where one state is saved to two files. What is no JSON is not noted.
    """
    notes = {}
    for key, state in (checkpoint.get("callbacks") or {}).items():
        if isinstance(state, dict) and "best_model_path" in state:
            try:
                notes[key] = _to_json(state)
            except TypeError:
                continue
    return notes


def with_notes(checkpoint: dict[str, Any], notes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a checkpoint with other notes in their place."""
    callbacks = checkpoint.get("callbacks") or {}
    callbacks.update((key, _from_json(note)) for key, note in notes.items() if key in callbacks)
    return checkpoint


def metrics_of(checkpoint: Mapping[str, Any], path: str) -> dict[str, float]:
    """Return the values that the files' names go by: what `ModelCheckpoint` monitors, at this file."""
    metrics = {}
    for state in (checkpoint.get("callbacks") or {}).values():
        if isinstance(state, dict) and state.get("monitor") and path in state.get("best_k_models", ()):
            metrics[str(state["monitor"])] = float(state["best_k_models"][path])
    return metrics


def _to_json(value: Any) -> Any:
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, torch.Tensor) and value.ndim == 0 and not value.is_complex():
        return {_TYPE: "tensor", "dtype": str(value.dtype), "value": value.item()}
    if type(value) is list:
        return [_to_json(child) for child in value]
    if type(value) is dict and all(type(key) is str for key in value):
        return {key: _to_json(child) for key, child in value.items()}
    raise TypeError(f"{type(value)} is not noted")


def _from_json(value: Any) -> Any:
    if isinstance(value, dict) and value.get(_TYPE) == "tensor":
        return torch.tensor(value["value"], dtype=_dtype(value["dtype"]))
    return _mapped(_from_json, value)


# Whether two are the same --------------------------------------------------------------------------------


def digest(state: Mapping[str, Any], without: Collection[str]) -> bytes:
    """Return a hash of every bit of a state, but for the states of some callbacks."""
    hasher = blake3()
    callbacks = state.get("callbacks") or {}
    kept = {key: value for key, value in callbacks.items() if key not in without}
    _feed(hasher, {**state, "callbacks": kept})
    return hasher.digest()


def _feed(hasher: Any, value: Any) -> None:
    if isinstance(value, torch.Tensor | np.ndarray):
        hasher.update(_bits(value))
    elif isinstance(value, dict | list | tuple):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        hasher.update(f"{type(value)} {len(value)};".encode())
        for key, child in pairs:
            hasher.update(f"{key!r}:".encode())
            _feed(hasher, child)
    elif value is None or type(value) in (int, float, complex, str, bytes, bool):
        hasher.update(f"{value!r};".encode())
    else:
        hasher.update(os.urandom(16))  # nobody knows when two of these are the same


def _bits(value: Any) -> Any:
    """Return what a tensor is, and each bit of it."""
    try:
        tensor = torch.as_tensor(value).detach().cpu().contiguous()
        hasher = blake3(
            f"{type(value)} {tensor.dtype} {tuple(tensor.shape)};".encode(), max_threads=blake3.AUTO
        )
        return hasher.update(tensor.reshape(-1).view(torch.uint8).numpy()).digest()
    except (TypeError, RuntimeError):  # it has no plain bits
        return os.urandom(16)
