"""Restores of whole states by a scheme, to go on training from: what recovery and repeated restores need."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.evaluation.chains import matrices
from benchmarks.peers import Tensors, make
from benchmarks.peers.ours import LCStore

#: Schemes that a run is restored with. Except for lcstore on the GPT, they code weights of two dimensions
#: and keep the rest exactly.
RESTORED = ("lc2", "lc3", "high", "balanced", "small")


class Keeper:
    """A scheme fed with the nested states of a run; gives nested states back.

    ``"exact"`` keeps everything, ``"stale"`` gives the state before the last.
    """

    def __init__(self, scheme: str) -> None:
        self.scheme = scheme
        self.peer = None if scheme in ("exact", "stale") else make(scheme)
        self._last: list[dict[str, Any]] = []
        self.sizes: list[int] = []

    def save(self, state: dict[str, Any]) -> None:
        """Save a state such as a run gives."""
        weights = _weights(state)
        if isinstance(self.peer, LCStore):
            self.sizes.append(self.peer.save_tree(state))
        elif self.peer is not None:
            self.sizes.append(self.peer.save(weights))
        else:
            self.sizes.append(sum(array.nbytes for array in weights.values()))
        self._last = [*self._last[-1:], state]

    def restore(self) -> dict[str, Any]:
        """Return the state that a reader gets."""
        last = self._last[0 if self.scheme == "stale" else -1]
        if self.peer is None:
            return last
        if isinstance(self.peer, LCStore):
            found: dict[str, Any] = self.peer.store.restore(to="numpy")
            return found
        back = self.peer.restore()
        model = {name: back.get(f"model/{name}", array) for name, array in last["model"].items()}
        return {**last, "model": model}

    def share(self) -> float:
        """Bytes of the deltas, as a part of the weights in float32."""
        raw = sum(array.nbytes for array in _weights(self._last[-1]).values())
        return float(np.mean(self.sizes[1:])) / raw


def _weights(state: dict[str, Any]) -> Tensors:
    return matrices({f"model/{name}": array for name, array in state["model"].items()})
