"""Profiles for property tests, and small states that many tests use."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from kit import servers
from kit.besides import unprotected

import lcstore
from lcstore.graph import newest

_QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", max_examples=50, **_QUIET)
settings.register_profile("ci", max_examples=50, derandomize=True, **_QUIET)
settings.register_profile("soak", max_examples=1000, **_QUIET)
# As the entry point does: where lcstore is not installed from these sources, there may be none.
fsspec.register_implementation("lcstore", "lcstore.filesystem.lcstorefs.LcstoreFileSystem", clobber=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


def pytest_collection_finish() -> None:
    """Have the garbage collector leave alone what is there for good, and look less often at the rest.

    Libraries and tests are some hundred thousand objects. Looking at them all again and again took a fifth of
    the time of tests that make many small objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True, scope="module")
def _nothing_besides(request: pytest.FixtureRequest) -> Iterator[None]:
    """Store nothing besides states in modules that are marked so, unless everything is run in full."""
    marked = request.node.get_closest_marker("unprotected") is not None
    in_full = "not soak" not in request.config.option.markexpr
    with unprotected() if marked and not in_full else nullcontext():
        yield


@pytest.fixture(autouse=True, scope="session")
def _small_as_large() -> Iterator[None]:
    """Have small states stand for large ones, of which newest states ask for edges of their own."""
    with patch.object(newest, "FREE_READS", 0):
        yield


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Have PyTorch compute on one thread: small models only wait for more of them."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Run:
    """A pretend training run: every call of `step` moves the weights a little and remakes the moments."""

    def __init__(self, seed: int = 0, scale: float = 1e-3) -> None:
        self.rng = np.random.default_rng(seed)
        self.scale = scale
        self.count = 0
        shapes = {"embed.weight": (96, 32), "fc1.weight": (128, 32), "fc2.weight": (10, 128)}
        self.weights = {name: self._normal(shape) * 0.05 for name, shape in shapes.items()}
        self.bias = np.zeros(10, np.float32)

    def _normal(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def step(self) -> dict:
        """Train one interval and return the state."""
        self.count += 1
        for name, weight in self.weights.items():
            self.weights[name] = weight + self._normal(weight.shape) * np.float32(self.scale)
        self.bias = self.bias + np.float32(0.01)
        moments = {
            i: {
                "step": np.float32(self.count),
                "exp_avg": self._normal(weight.shape) * 1e-3,
                "exp_avg_sq": self.rng.random(weight.shape).astype(np.float32) * 1e-6,
            }
            for i, weight in enumerate(self.weights.values())
        }
        return {
            "model": {**self.weights, "fc2.bias": self.bias, "bn.running_mean": self.bias * 2},
            "optim": {"state": moments, "param_groups": [{"lr": 1e-3, "params": [0, 1, 2]}]},
            "epoch": self.count,
            "rng": b"\x00\x01" * 8,
        }


@pytest.fixture
def run() -> Iterator[Run]:
    """A fresh pretend run."""
    return Run()


@pytest.fixture(scope="module")
def moto() -> Iterator[servers.Served]:
    """A bucket of moto, for the tests of a module."""
    with servers.moto() as served:
        yield served


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store of five states in ``runs/run1``."""
    folder = tmp_path_factory.mktemp("packed")
    with lcstore.open(folder / "runs/run1") as store:
        for number in range(5):
            store.save(number, servers.small_state(number))
    return folder
