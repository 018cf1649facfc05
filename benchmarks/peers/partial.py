"""Partial checkpoints: SCAR's prioritised rows (ICML 2019), and the LC paper's baseline TOPN."""

from __future__ import annotations

import numpy as np

from benchmarks.peers.base import Peer, Tensors


class Scar(Peer):
    """Save the rows that moved most since they were saved last, up to `share` of the bytes of the state.

    A row is a row of a tensor taken as a matrix; it costs its values and a 4-byte number. A state of few
    rows saves one at least.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def code(self, state: Tensors) -> int:
        assert self.held is not None
        rows: list[tuple[str, int]] = []
        far: list[np.ndarray] = []
        for path, array in state.items():
            change = (array - self.held[path]).reshape(array.shape[0], -1)
            far.append(np.einsum("ij,ij->i", change, change) / change.shape[1])
            rows.extend((path, row) for row in range(array.shape[0]))
        room = self.share * sum(array.nbytes for array in state.values())
        size = 0
        for at in np.argsort(-np.concatenate(far), kind="stable"):
            path, row = rows[at]
            cost = state[path][row].nbytes + 4
            if size and size + cost > room:
                break
            self.held[path][row] = state[path][row]
            size += cost
        return size


class TopN(Peer):
    """Save the elements that are farthest from what is saved: 4 bytes of value and 4 of index each."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def code(self, state: Tensors) -> int:
        assert self.held is not None
        now = np.concatenate([array.reshape(-1) for array in state.values()])
        held = np.concatenate([self.held[path].reshape(-1) for path in state])
        count = max(int(self.share * now.nbytes / 8), 1)
        chosen = np.argpartition(-np.abs(now - held), count)[:count]
        held[chosen] = now[chosen]
        at = 0
        for path, array in state.items():
            self.held[path] = held[at : at + array.size].reshape(array.shape)
            at += array.size
        return 8 * count
