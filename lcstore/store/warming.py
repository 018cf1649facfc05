"""Compiling beforehand: a small run in memory calls the kernels that saving, reading and upkeep use."""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np

from lcstore.codec.dtypes import LOSSY_DTYPES, dtype_from_name
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.survey import OnProgress
from lcstore.store.opening import open_store

#: Saves of each run: a whole state, deltas, and enough of them to be merged.
_SAVES: Final = 6
_POLICIES: Final = ("lossless", "high", "balanced", "small")


def warm(on_progress: OnProgress | None = None) -> None:
    """Compile the kernels, into the cache that later processes read: up to a minute, once.

    Parameters
    ----------
    on_progress
        Called with "compile", how many small runs are done, and how many there are.
    """
    runs = [(name, policy) for name in sorted(LOSSY_DTYPES) for policy in _POLICIES]
    for done, (name, policy) in enumerate(runs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _run(dtype_from_name(name), policy)
        if on_progress is not None:
            on_progress("compile", done + 1, len(runs))


def _run(dtype: np.dtype[Any], policy: str) -> None:
    """Save, read and look after a few states."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((96, 64)).astype(np.float32)
    table = rng.standard_normal((512, 32)).astype(np.float32)
    square = np.square(weight)
    with open_store(MemoryBackend.fresh(), policy=policy, durability="all", grace=0) as store:
        for step in range(_SAVES):
            move = rng.standard_normal(weight.shape).astype(np.float32)
            weight = weight + move * np.float32(1e-3)
            rows = rng.integers(0, len(table), 20)
            table[rows] += rng.standard_normal((20, table.shape[1])).astype(np.float32) * np.float32(1e-2)
            square = square * np.float32(0.9) + np.square(move) * np.float32(0.1)
            # Values far apart: few of them are on the scale of the others.
            apart = move * np.logspace(-20, 4, move.shape[1], dtype=np.float32)
            moments = {0: {"exp_avg": move.astype(dtype), "exp_avg_sq": square.astype(dtype)}}
            moments[1] = {"exp_avg": apart.astype(dtype), "exp_avg_sq": np.square(apart).astype(dtype)}
            state = {
                "model": {"a.weight": weight.astype(dtype), "embedding.weight": table.astype(dtype)},
                "optim": {"state": moments},
                "ids": np.arange(step, step + 64),
                "mask": weight[0] > 0,
            }
            store.save(step, state, exact=step == _SAVES - 2)
        store.compact()
        store.restore(1)
        store.read(_SAVES - 1, "model/a.weight", sel=slice(3, 5))
        store.diff(0, _SAVES - 1)
        store.verify(level="restore")
        store.resume(2)
        store.save(_SAVES, state)
