"""Folders as Transformers writes them: a model in one file or several, and what Trainer keeps beside it.

The parts have the names that `lcstore.integrations.transformers.LcstoreCallback` gives them: Trainer goes on
from a state that was imported as from one that the callback saved.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.exchange.checkpoint import Checkpoint
from lcstore.exchange.tensorfile import read_safetensors
from lcstore.exchange.torchfile import read_torch

_MODELS: Final = ("model.safetensors", "adapter_model.safetensors", "pytorch_model.bin")
_INDEX: Final = ".index.json"
_PARTS: Final = {"optim": "optimizer.pt", "schedule": "scheduler.pt", "scaler": "scaler.pt"}
_RANDOM: Final = ("rng_state.pth", "rng_state_0.pth")
_TRAINER: Final = "trainer_state.json"
#: What is kept as metadata of the state.
DESCRIBING: Final = ("config", "generation_config", "adapter_config")
#: What is logged beside metrics.
NO_METRICS: Final = ("step", "epoch", "total_flos")


def read_folder(path: str, where: str) -> Checkpoint:
    """Return what a folder holds: ``model``, and as far as it is there what else Trainer keeps.

    Raises
    ------
    CorruptionError
        A file is damaged, or one of a model's files is missing.
    InvalidInputError
        A file holds objects that are no data.
    """
    folder = Path(path)
    state: dict[str, Any] = {"model": _model(folder, where)}
    for name, file in _PARTS.items():
        if (folder / file).is_file():
            state[name] = read_torch(str(folder / file), f"{where}/{file}").state
    random = next((file for file in _RANDOM if (folder / file).is_file()), None)
    if random is not None:
        state["random"] = _random(read_torch(str(folder / random), f"{where}/{random}").state)
    metrics: dict[str, float] = {}
    if (folder / _TRAINER).is_file():
        trainer = _json(folder / _TRAINER, f"{where}/{_TRAINER}")
        state["trainer"] = zlib.compress((folder / _TRAINER).read_bytes())
        metrics = _metrics(trainer)
    metadata = {
        name: _json(folder / f"{name}.json", f"{where}/{name}.json")
        for name in DESCRIBING
        if (folder / f"{name}.json").is_file()
    }
    return Checkpoint(state, metadata, metrics)


def _model(folder: Path, where: str) -> dict[str, Any]:
    for name in _MODELS:
        if (folder / name).is_file():
            return _file(folder, name, where)
        index = folder / f"{name}{_INDEX}"
        if index.is_file():
            return _shards(folder, _json(index, f"{where}/{index.name}"), f"{where}/{index.name}")
    raise InvalidInputError(f"{where} holds no model: none of {', '.join(_MODELS)}")


def _file(folder: Path, name: str, where: str) -> dict[str, Any]:
    read: Callable[[str, str], Checkpoint] = read_safetensors if name.endswith(".safetensors") else read_torch
    found: dict[str, Any] = read(str(folder / name), f"{where}/{name}").state
    return found


def _shards(folder: Path, index: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the tensors of a model in the order of its index, each from the file that has it."""
    places = index.get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(name, str) for name in places.values()):
        raise CorruptionError(f"{where} does not say which file has which tensor")
    files = {}
    for name in dict.fromkeys(places.values()):
        if Path(name).name != name or not (folder / name).is_file():
            raise CorruptionError(f"{where} names the file {name!r:.200}, which is not there")
        files[name] = _file(folder, name, str(Path(where).parent))
    absent = [key for key, name in places.items() if key not in files[name]]
    if absent:
        raise CorruptionError(f"{where} says that {places[absent[0]]} has {absent[0]!r:.200}, and it has not")
    return {key: files[name][key] for key, name in places.items()}


def _json(path: Path, where: str) -> dict[str, Any]:
    try:
        # transformers before 5 writes numbers that JSON does not have; this is how a later one has them.
        value = json.loads(path.read_text("utf-8"), parse_constant=lambda word: {"__float__": word})
    except ValueError as error:
        raise CorruptionError(f"{where} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptionError(f"{where} holds no names with values")
    return value


def _random(saved: Any) -> Any:
    """Return states of random numbers as `lcstore.RandomState` has them, if they are as Trainer's are."""
    try:
        (version, words, gauss), (_, keys, place, has_gauss, cached) = saved["python"], saved["numpy"]
        found: dict[str, Any] = {
            "python": {"version": version, "words": np.array(words, np.uint32), "gauss": gauss},
            "numpy": {
                "keys": np.asarray(keys, np.uint32),
                "place": int(place),
                "has_gauss": int(has_gauss),
                "gauss": float(cached),
            },
            "torch": np.asarray(saved["cpu"], np.uint8),
        }
    except (KeyError, TypeError, ValueError):
        return saved
    if "cuda" in saved:
        gpus = saved["cuda"]
        found["cuda"] = [np.asarray(gpu, np.uint8) for gpu in (gpus if isinstance(gpus, list) else [gpus])]
    return found


def _metrics(trainer: Mapping[str, Any]) -> dict[str, float]:
    """Return what was logged at the step of the state."""
    logged = [entry for entry in trainer.get("log_history") or () if isinstance(entry, dict)]
    return {
        name: value
        for entry in logged
        if entry.get("step") == trainer.get("global_step")
        for name, value in entry.items()
        if isinstance(value, int | float) and name not in NO_METRICS
    }
