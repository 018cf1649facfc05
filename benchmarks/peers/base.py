"""What every peer has: `save` a state in bytes, `restore` what a reader of those bytes gets."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from importlib import import_module
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]


class Missing(Exception):
    """A library that a peer needs is not installed."""


class Peer(ABC):
    """A scheme of saving states of weights: a closed loop on what a reader would restore.

    The first state is written whole, as float32, by every peer. Then `code` says how the rest goes.
    What `save` counts is everything that a reader needs: headers, indices, tables, code books.
    """

    def __init__(self) -> None:
        self.held: Tensors | None = None

    def save(self, state: Tensors) -> int:
        """Save a state of float32 tensors by path; return the bytes written."""
        if self.held is None:
            self.held = {path: array.astype(np.float32) for path, array in state.items()}
            return self.begin(self.held)
        return self.code(state)

    def restore(self) -> Tensors:
        """Return what a reader of the last save gets (copies)."""
        assert self.held is not None
        return {path: array.copy() for path, array in self.held.items()}

    def view(self) -> Tensors:
        """Return what `restore` would, perhaps without copying or reading anything."""
        assert self.held is not None
        return self.held

    def begin(self, state: Tensors) -> int:
        """Take the first state; return its bytes."""
        return sum(array.nbytes for array in state.values())

    @abstractmethod
    def code(self, state: Tensors) -> int:
        """Write a later state, move `held` to what a reader gets; return the bytes."""


class DeltaPeer(Peer):
    """A lossy code of `state - held`, tensor by tensor."""

    def code(self, state: Tensors) -> int:
        assert self.held is not None
        size = 0
        for path, array in state.items():
            held = self.held[path]
            data = self.encode(path, array.astype(np.float32) - held)
            held += self.decode(path, data, held.shape)
            size += len(data)
        return size

    @abstractmethod
    def encode(self, path: str, delta: np.ndarray) -> bytes:
        """Code a delta."""

    @abstractmethod
    def decode(self, path: str, data: bytes, shape: tuple[int, ...]) -> np.ndarray:
        """Decode what `encode` gave."""


def optional(name: str) -> Any:
    """Import an optional library.

    Folders in `LCSTORE_BENCH_PATH` are looked into last: `zfpy` cannot be installed beside numcodecs, which
    fails to import where it sees its version, but it can be imported after it.
    """
    for folder in os.environ.get("LCSTORE_BENCH_PATH", "").split(os.pathsep):
        if folder and folder not in sys.path:
            import numcodecs  # noqa: F401  (before zfpy can be seen)

            sys.path.append(folder)
    try:
        return import_module(name)
    except ImportError as error:
        raise Missing(f"{name} is not installed ({error})") from error


def rms_steps(first: Tensors, second: Tensors) -> dict[str, float]:
    """The RMS of each tensor's move from one state to the next; 1e-8 where it did not move."""
    return {
        p: max(float(np.sqrt(np.mean((second[p] - first[p]) ** 2, dtype=np.float64))), 1e-8) for p in first
    }
