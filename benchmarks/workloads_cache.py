"""Traces on disk: one flat .npy file per save and kind, and two JSON files that say what is in them.

    data/<name>-seed<seed>/
        layout.json               path, shape and offset (in elements) of each tensor; fingerprint
        losses.json               held-out loss by iteration
        weights-<iteration>.npy   float32, one dimension: the weights end to end
        moments-<iteration>.npy   the same for the optimizer's slots, in the first saves of a trace

The weights file of a save is written last, so a save is complete once it exists.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

Tensors = dict[str, np.ndarray]


class Trace(Sequence[Tensors]):
    """Saves of one run, read from disk as they are asked for: a list of `{path: array}`.

    Paths are `model/<name>` for weights and, in the first saves, `optim/state/#<number>/<slot>` for moments.
    The arrays are read-only views of a memory map.

    Attributes
    ----------
    iterations : list of int
        Iteration of each save.
    losses : list of float
        Held-out loss of each save.
    parameters : list of str
        Path of the parameter that the optimizer calls `#0`, `#1`, ...
    moments : int
        The first so many saves hold moments.
    fingerprint : dict
        Seed, batch size, library versions and digest of the training data.
    """

    def __init__(self, folder: Path, iterations: Sequence[int], moments: int) -> None:
        losses = read_json(folder / "losses.json")
        self.iterations = list(iterations)
        self.losses: list[float] = [losses[str(at)] for at in self.iterations]
        self.moments = moments
        self._folder = folder
        self._layout = read_json(folder / "layout.json")
        self.parameters: list[str] = self._layout["parameters"]
        self.fingerprint: dict[str, Any] = self._layout["fingerprint"]

    def __len__(self) -> int:
        return len(self.iterations)

    @overload
    def __getitem__(self, index: int) -> Tensors: ...
    @overload
    def __getitem__(self, index: slice) -> list[Tensors]: ...
    def __getitem__(self, index: int | slice) -> Tensors | list[Tensors]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        kinds = ["weights", "moments"] if self.has_moments(index) else ["weights"]
        return {path: view for kind in kinds for path, view in self._views(kind, self.iterations[index])}

    def has_moments(self, index: int) -> bool:
        """Whether this save holds the optimizer's slots too."""
        return (index if index >= 0 else index + len(self)) < self.moments

    def state(self, index: int) -> dict[str, Any]:
        """One save as the nested state that was trained: `model`, and `optim` where moments are kept."""
        tensors = self[index]
        model = {p.removeprefix("model/"): a for p, a in tensors.items() if p.startswith("model/")}
        if not self.has_moments(index):
            return {"model": model}
        slots: dict[int, Tensors] = {}
        for path, array in tensors.items():
            if path.startswith("optim/"):
                number, slot = path.removeprefix("optim/state/#").split("/")
                slots.setdefault(int(number), {})[slot] = array
        return {"model": model, "optim": {"state": slots, "param_groups": self._groups()}}

    def _groups(self) -> list[dict[str, Any]]:
        groups = [dict(group) for group in self._layout["param_groups"]]
        for group in groups:
            if "betas" in group:  # JSON has no tuples
                group["betas"] = tuple(group["betas"])
        return groups

    def _views(self, kind: str, at: int) -> Iterator[tuple[str, np.ndarray]]:
        flat = np.asarray(np.load(save_file(self._folder, kind, at), mmap_mode="r"))
        for path, shape, offset in self._layout[kind]:
            yield path, flat[offset : offset + int(np.prod(shape))].reshape(shape)


def missing(folder: Path, iterations: Sequence[int], moments: int) -> list[int]:
    """Iterations that are not in the cache, or lack the moments that the first `moments` should have."""

    def complete(index: int, at: int) -> bool:
        kinds = ["weights", "moments"] if index < moments else ["weights"]
        return all(save_file(folder, kind, at).exists() for kind in kinds)

    return [at for index, at in enumerate(iterations) if not complete(index, at)]


def check_environment(folder: Path, fingerprint: dict[str, Any]) -> None:
    """Refuse to add to a cache that was made with other versions or data: it would be two runs in one."""
    file = folder / "layout.json"
    if file.exists() and read_json(file)["fingerprint"] != fingerprint:
        raise RuntimeError(f"{folder} was made with other versions or data; delete it to make it anew")


def write_save(
    folder: Path, at: int, state: dict[str, Any], loss: float, about: dict[str, Any], *, moments: bool
) -> None:
    """Add one save. `about` holds what the layout says beside the tensors."""
    weights = {f"model/{name}": array for name, array in state["model"].items()}
    slots = {
        f"optim/state/#{number}/{slot}": array
        for number, of_one in state["optim"]["state"].items()
        for slot, array in of_one.items()
    }
    if not (folder / "layout.json").exists():
        groups = state["optim"]["param_groups"]
        tensors = {"weights": _offsets(weights), "moments": _offsets(slots)}
        _write_json(folder / "layout.json", {**about, "param_groups": groups, **tensors})
    losses = folder / "losses.json"
    _write_json(losses, {**(read_json(losses) if losses.exists() else {}), str(at): loss})
    if moments:
        _write_flat(save_file(folder, "moments", at), slots)
    _write_flat(save_file(folder, "weights", at), weights)


def save_file(folder: Path, kind: str, at: int) -> Path:
    """Name the file of one save; `kind` is `weights` or `moments`."""
    return folder / f"{kind}-{at:06d}.npy"


def read_json(file: Path) -> Any:
    """Parse a JSON file."""
    return json.loads(file.read_text(encoding="utf-8"))


def _write_json(file: Path, value: Any) -> None:
    beside = file.with_suffix(".part")
    beside.write_text(json.dumps(value, indent=1), encoding="utf-8")
    os.replace(beside, file)


def _write_flat(file: Path, tensors: Tensors) -> None:
    flat = np.concatenate([array.ravel() for array in tensors.values()] or [np.zeros(0, np.float32)])
    if file.exists():
        # A run that fills a gap passes saves that are there, and that others may have mapped.
        if not np.array_equal(np.load(file), flat):
            raise RuntimeError(f"{file} is not what training gives now; delete its folder to make it anew")
        return
    beside = file.with_suffix(".part")
    with beside.open("wb") as out:
        np.save(out, flat)
    os.replace(beside, file)


def _offsets(tensors: Tensors) -> list[tuple[str, Iterable[int], int]]:
    rows, offset = [], 0
    for path, array in tensors.items():
        rows.append((path, array.shape, offset))
        offset += array.size
    return rows
