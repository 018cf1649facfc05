"""A training loop in a process of its own: saves, is killed or told to end, and is begun again."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

import lcstore


def trained(steps: int) -> np.ndarray:
    """What the weights are after so many steps, never interrupted."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 64)).astype(np.float32)
    for _ in range(steps):
        weight = weight + rng.standard_normal(weight.shape).astype(np.float32) * np.float32(1e-3)
    return weight


def main(url: str, steps: int, how: str, at: int) -> None:
    """Train, from where the store says; at a step kill this process, or have it told to end."""
    rng = np.random.default_rng(0)
    model = {"weight": rng.standard_normal((64, 64)).astype(np.float32)}
    acknowledged = Path(f"{url}.acknowledged")
    with lcstore.CheckpointManager(url, every=2, policy="lossless", background=how != "term-sync") as manager:
        resumed = manager.resume()
        first = 0
        if resumed is not None:
            model, first = resumed.state["model"], resumed.step + 1
            rng.bit_generator.state = resumed.state["rng"]
        for step in range(first, steps):
            model["weight"] = model["weight"] + rng.standard_normal((64, 64)).astype(np.float32) * np.float32(
                1e-3
            )
            if step == at and how.startswith("term"):
                os.kill(os.getpid(), signal.SIGTERM)
            manager.save(step, lambda: {"model": model, "rng": rng.bit_generator.state})
            if manager.reached_preemption():
                print("told to end at", step, flush=True)
                break
            if step == at and how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            done = manager.store.latest_step() if not manager.is_saving_in_progress else None
            if done is not None:
                acknowledged.write_text(str(done))
    print("ended", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
