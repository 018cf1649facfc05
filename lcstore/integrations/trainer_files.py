"""What is kept of a run of Trainer, and the folder that Trainer resumes from."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import zlib
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import save_file

from lcstore.arrays import Array
from lcstore.errors import InvalidInputError
from lcstore.exchange.trainerfolder import DESCRIBING, NO_METRICS
from lcstore.integrations.processes import are_several
from lcstore.loading.torchload import as_tensors
from lcstore.manager.random_state import RandomState, state_for_numpy

_TIMES: Final = ("_runtime", "_per_second")
#: Bytes that a log begins with.
_LEAST_ROOM: Final = 4096
_PARTS: Final = frozenset({"model", "optim", "schedule", "random", "trainer"})


def state_of(
    trainer_state: Any, *, model: Any, optimizer: Any, lr_scheduler: Any, **others: Any
) -> dict[str, Any]:
    """Return what is kept of a run at the end of a step."""
    said = dataclasses.asdict(trainer_state)
    log = said.pop("log_history")
    scaler = getattr(optimizer, "scaler", None)
    return {
        "model": _weights(model),
        "optim": optimizer,
        "schedule": lr_scheduler,
        **({} if scaler is None else {"scaler": scaler}),
        "random": RandomState(),
        "trainer": zlib.compress(json.dumps(said, default=float).encode()),
        "log": _lines(log),
    }


def _lines(log: list[dict[str, Any]]) -> Array:
    """Return a log as lines of JSON in ``uint8[n]`` with room for more, of which a save stores what came."""
    text = "".join(f"{json.dumps(entry, default=float)}\n" for entry in log).encode()
    room = max(_LEAST_ROOM, 1 << len(text).bit_length())
    return np.frombuffer(text.ljust(room, b"\0"), np.uint8)


def _trainer_state(state: Mapping[str, Any]) -> bytes:
    """Return what ``trainer_state.json`` holds. What was imported has its log in that."""
    text: bytes = zlib.decompress(state["trainer"])
    if "log" not in state:
        return text
    lines = np.asarray(state["log"]).tobytes().rstrip(b"\0").splitlines()
    return json.dumps(json.loads(text) | {"log_history": [*map(json.loads, lines)]}).encode()


def is_adapted(model: Any) -> bool:
    """Return whether PEFT adapts a model."""
    peft = sys.modules.get("peft")
    return peft is not None and isinstance(model, peft.PeftModel)


def _weights(model: Any) -> dict[str, Any]:
    """Return the tensors of a model; of one of PEFT those that are trained, and buffers."""
    tensors: dict[str, Any] = model.state_dict()
    if not is_adapted(model):
        return tensors
    kept = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    kept |= {name for name, _ in model.named_buffers()}
    return {name: tensor for name, tensor in tensors.items() if name in kept}


def config_of(model: Any) -> dict[str, Any]:
    """Return what Trainer's checkpoints say of a model in ``config.json``, under ``"config"``."""
    config: Any = getattr(model, "config", None)
    if is_adapted(model) or not hasattr(config, "to_json_string"):
        return {}
    return {"config": json.loads(config.to_json_string())}


def metrics_of(log_history: list[dict[str, Any]], since: int) -> dict[str, float]:
    """Return the newest of each number that was logged after a step.

    So an evaluation counts for the first state that is saved after it, and not for later ones too.
    """
    logged = [*takewhile(lambda entry: entry["step"] > since, reversed(log_history))]
    return {
        name: value
        for entry in reversed(logged)
        for name, value in entry.items()
        if isinstance(value, int | float) and name not in NO_METRICS and not name.endswith(_TIMES)
    }


def write_folder(folder: Path, state: Any, metadata: Mapping[str, Any]) -> None:
    """Write a state as Trainer writes its checkpoints.

    An imported one of PEFT, whose `metadata` describe its adapter, has the names of a file of adapters. As
    such a file it is written: of a model's file Trainer passes over names that the model has not.

    Raises
    ------
    InvalidInputError
        The state is not one of a run of Trainer.
    """
    missing = _PARTS - (state.keys() if isinstance(state, dict) else set())
    if missing:
        raise InvalidInputError(
            f"the state has no {', '.join(sorted(missing))}: it was not saved by LcstoreCallback; load it "
            "with lcstore.open(url).resume_into"
        )
    folder.mkdir(parents=True)
    for said in metadata.keys() & {*DESCRIBING}:
        (folder / f"{said}.json").write_text(json.dumps(metadata[said]))
    adapter = metadata.get("adapter_config")
    name = "model.safetensors" if adapter is None else "adapter_model.safetensors"
    save_file(_apart(state["model"]), folder / name, metadata={"format": "pt"})
    torch.save(as_tensors(state["optim"]), folder / "optimizer.pt")
    torch.save(state["schedule"], folder / "scheduler.pt")
    if "scaler" in state:
        torch.save(state["scaler"], folder / "scaler.pt")
    name = "rng_state_0.pth" if are_several() else "rng_state.pth"
    torch.save(_random_state(state["random"]), folder / name)
    (folder / "trainer_state.json").write_bytes(_trainer_state(state))


def _apart(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors of which no two are one: the format knows no ties. Loading ties them again."""
    found: dict[str, Any] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        own = as_tensors(tensor)
        found[name] = own.clone() if id(tensor) in seen else own.contiguous()
        seen.add(id(tensor))
    return found


def _random_state(saved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of `RandomState` as Trainer keeps it."""
    python = saved["python"]
    words = tuple(python["words"].tolist())
    found = {
        "python": (python["version"], words, python["gauss"]),
        "numpy": state_for_numpy(saved["numpy"]),
        "cpu": torch.as_tensor(saved["torch"]),
    }
    if "cuda" in saved:
        gpus = [torch.as_tensor(gpu) for gpu in saved["cuda"]]
        found["cuda"] = gpus if are_several() else gpus[0]  # Trainer computes on the first
    return found


def remove_folders(where: Path) -> None:
    """Remove the folders that were written there."""
    for folder in where.glob("checkpoint-*"):
        shutil.rmtree(folder)
    if where.is_dir() and not any(where.iterdir()):
        where.rmdir()
