"""A process that warms, or trains: at its end it prints which kernels it called, by signature, as JSON."""

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lcstore
from lcstore.compiling.jit import _TolerantCache
from lcstore.terminal.warming import warm

SHAPES = {"embedding.weight": (512, 32), "in.weight": (64, 128), "in.bias": (128,), "out.weight": (128, 64)}


def called() -> Iterator[str]:
    """Yield each kernel that was compiled or read from the cache, with its signature."""
    for name, module in sorted(sys.modules.items()):
        for kernel in vars(module).values() if name.startswith("lcstore.kernels.") else ():
            if isinstance(getattr(kernel, "_cache", None), _TolerantCache):
                yield from (f"{kernel.py_func.__qualname__} {signature}" for signature in kernel.signatures)


class Training:
    """Adam on weights with noise for gradients; one tensor rests. JAX gives arrays that are read only."""

    def __init__(self, read_only: bool) -> None:
        self.rng = np.random.default_rng(0)
        self.read_only = read_only
        self.weights = {name: self.noise(shape) for name, shape in SHAPES.items()}
        self.moments = {name: (np.zeros_like(w), np.zeros_like(w)) for name, w in self.weights.items()}
        self.rests = self.noise((64, 64))

    def noise(self, shape: tuple[int, ...]) -> Any:
        return self.rng.standard_normal(shape).astype(np.float32)

    def step(self) -> None:
        for name, shape in SHAPES.items():
            gradient, (first, second) = self.noise(shape), self.moments[name]
            first = first * np.float32(0.9) + gradient * np.float32(0.1)
            second = second * np.float32(0.999) + np.square(gradient) * np.float32(0.001)
            self.weights[name] = self.weights[name] - np.float32(1e-3) * first / np.sqrt(second)
            self.moments[name] = first, second

    def state(self, step: int) -> dict[str, Any]:
        moments = {
            number: {"step": np.float32(step), "exp_avg": first, "exp_avg_sq": second}
            for number, (first, second) in enumerate(self.moments.values())
        }
        pairs = self.moments.values()
        arrays = [*self.weights.values(), self.rests, *(one for pair in pairs for one in pair)]
        for array in arrays:
            array.flags.writeable = not self.read_only
        model = {**self.weights, "rests.weight": self.rests}
        random = np.arange(5000, dtype=np.uint8)
        return {"model": model, "optim": {"state": moments}, "random": random, "epoch": step}


def train(folder: str, read_only: bool, policy: str) -> None:
    """Save, save beside the training, resume, restore, count and verify."""
    training = Training(read_only)
    with lcstore.open(folder, policy=policy) as store:
        for step in range(8):
            training.step()
            save = store.save_async if step % 2 else store.save
            save(step, training.state(step), metrics={"loss": 1 / (step + 1)})
        store.wait()
        store.restore(3)
    with lcstore.open(folder) as store:
        state = store.resume()
        store.save(8, state)
        for step in (9, 10):
            training.step()
            store.save(step, training.state(step))
        for step in store.steps():
            store.restore(step)
        store.stats()
        assert store.verify(level="restore").ok


def code() -> None:
    """Code fields with the codec alone: whole ones, and one of which a part is missing."""
    field = np.sin(np.arange(20_000) / 50).reshape(100, 200).astype(np.float32)
    masked = field.copy()
    masked[3:50, 20:80] = np.nan
    for given in (field, masked):
        for codec in (lcstore.LCCodec(max_error=1e-3), lcstore.LCCodec(bits=4), lcstore.LCCodec("lossless")):
            codec.decode(codec.encode(given))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "warm":
        warm()
    else:
        for read_only in (False, True):
            for policy in ("balanced", "lossless"):
                train(str(Path(sys.argv[2]) / f"{policy}-{read_only}"), read_only, policy)
        code()
    print(json.dumps(sorted(called())))
