"""A pretend run whose loss is known: a quadratic that is steep in some tensors and flat in others."""

from __future__ import annotations

from typing import Any

import numpy as np

STEEP = "model/first.weight"
#: Curvature by tensor: the first is a thousand times as steep as the last.
CURVATURE = {"first.weight": 30.0, "layers.0.weight": 3.0, "layers.1.weight": 0.3, "head.weight": 0.03}
SHAPE = (64, 64)


def states(count: int = 8, seed: int = 0) -> list[dict[str, Any]]:
    """States of a walk; each tensor moves alike."""
    rng = np.random.default_rng(seed)
    weights = {name: rng.standard_normal(SHAPE).astype(np.float32) * 0.1 for name in CURVATURE}
    out = []
    for step in range(count):
        weights = {n: w + rng.standard_normal(SHAPE).astype(np.float32) * 1e-3 for n, w in weights.items()}
        out.append({"model": {**weights, "bias": np.zeros(4, np.float32)}, "step": step})
    return out


class Bowl:
    """A loss whose minimum lies a little off a state; counts its calls."""

    def __init__(self, centre: dict[str, Any], off: float = 0.0) -> None:
        self.centre = {name: centre["model"][name] + np.float32(off) for name in CURVATURE}
        self.calls = 0

    def __call__(self, state: dict[str, Any]) -> float:
        self.calls += 1
        return sum(
            steep
            * float(np.mean(np.square((state["model"][name] - self.centre[name]).astype(np.float64))))
            * 1e3
            for name, steep in CURVATURE.items()
        )
