"""lcstore through a real store in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import lcstore
from benchmarks.peers.base import Peer, Tensors
from lcstore.edges import grid
from lcstore.state.names import format_name
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import Policy, policy_of, settled


class LCStore(Peer):
    """A store with a policy; saves are `{"model": {name: array}}`.

    Attributes
    ----------
    frames, beside
        Bytes of the last save: frames with weights, codes and tables in them; and everything else (Zarr
        metadata, layouts, records).
    info
        What the last save said.
    """

    def __init__(self, policy: str | Policy | float) -> None:
        super().__init__()
        policy = Policy(error=policy) if isinstance(policy, float) else policy_of(policy)
        self.backend = MemoryBackend.fresh()
        self.store = lcstore.open(self.backend, policy=settled(policy))
        self.frames = self.beside = 0
        self.info: lcstore.SaveInfo | None = None
        self._step = 0
        self._names: list[str] = []
        self._seen: set[str] = set()

    def save(self, state: Tensors) -> int:
        self._names = list(state)
        return self.save_tree({"model": {p.removeprefix("model/"): a for p, a in state.items()}})

    def save_tree(self, tree: Any) -> int:
        """Save any state; return the bytes written."""
        self._names = self._names or [f"model/{name}" for name in tree["model"]]
        self.info = self.store.save(self._step, tree)
        self._step += 1
        objects = self.backend.snapshot()
        new = {key: len(objects[key]) for key in objects.keys() - self._seen}
        self._seen = set(objects)
        self.frames = sum(size for key, size in new.items() if key.rsplit("/", 1)[-1].startswith("c."))
        self.beside = sum(new.values()) - self.frames
        return self.info.bytes_stored

    def code(self, state: Tensors) -> int:
        raise NotImplementedError("save does it all")

    def restore(self) -> Tensors:
        found = self.store.restore(to="numpy")["model"]
        return {path: np.array(found[path.removeprefix("model/")]) for path in self._names}

    def view(self) -> Tensors:
        """What the writer's track holds of the weights; `restore` gives the same, having read it."""
        track = self.store._writer.track
        assert track.layout is not None
        assert track.columns is not None
        out: Tensors = {}
        for index, spec in enumerate(track.layout.tensors):
            path = format_name(spec.name)
            if path not in self._names:
                continue
            values = track.pools[spec.pool][spec.offset : spec.offset + spec.size]
            if spec.role == "weights":
                integers, values = values, np.empty(spec.size, np.float32)
                grid.from_grid(integers, int(track.columns.grid[index]), spec.dtype, values)
            out[path] = values.reshape(spec.shape)  # the smallest tensors are kept exact
        return out
