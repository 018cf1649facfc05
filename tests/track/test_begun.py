"""The first deltas of a run: nearer than later ones, since a run moves farthest in its beginning."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import lcstore
from lcstore.storage.memory import MemoryBackend
from lcstore.track.policy import PRESETS, settled


class Run:
    """Weights that move a straight way and by chance, and the true error of each save."""

    def __init__(self, backend, policy, seed=0):
        self.rng = np.random.default_rng(seed)
        self.weights = self.rng.standard_normal((128, 256)).astype(np.float32)
        self.way = self.rng.standard_normal(self.weights.shape) * 0.6
        self.store = lcstore.open(backend, policy=policy)
        self.step = 0

    def save(self):
        """Move, save, and return how far off what is restored is, in intervals."""
        before = self.weights
        move = self.way + 0.8 * self.rng.standard_normal(before.shape)
        self.weights = before + (0.01 * move).astype(np.float32)
        self.step += 1
        self.store.save(self.step, {"weight": self.weights})
        off = lcstore.open(self.store.backend, "r").restore(self.step)["weight"] - self.weights
        return float(np.linalg.norm(off) / np.linalg.norm(self.weights - before))

    def saves(self, count):
        return [self.save() for _ in range(count)]

    def resumed(self):
        """Return the run that another process goes on with."""
        again = Run(self.store.backend, "balanced", seed=2)
        again.weights, again.step = again.store.resume()["weight"], self.step
        return again


@pytest.mark.parametrize(
    ("preset", "wanted"),
    [
        ("high", [0.35, 0.35, 0.35, 0.35]),
        ("balanced", [0.35, 0.57, 0.755, 0.92, 1, 1]),
        ("small", [0.35, 0.57, 0.755, 0.92, 1.08]),
    ],
)
def test_the_first_deltas_of_a_run_are_nearer(preset, wanted):
    run = Run(MemoryBackend.fresh(), preset)
    assert run.save() == 0
    assert run.saves(len(wanted)) == pytest.approx(wanted, rel=0.2)


def test_small_comes_to_what_it_asks_for():
    run = Run(MemoryBackend.fresh(), "small")
    assert np.mean(run.saves(24)[-6:]) == pytest.approx(2, rel=0.15)


def test_a_run_that_is_resumed_does_not_begin_again():
    run = Run(MemoryBackend.fresh(), "balanced")
    run.saves(8)
    assert min(run.resumed().saves(3)) > 0.7


def test_one_that_is_resumed_early_goes_on_beginning():
    run = Run(MemoryBackend.fresh(), "balanced")
    run.saves(2)
    assert run.resumed().save() == pytest.approx(0.57, rel=0.25)


def test_a_second_run_begins_as_the_first_one_did():
    backend = MemoryBackend.fresh()
    Run(backend, "balanced").saves(12)
    second = Run(backend, "balanced", seed=1)
    second.step = 20
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # a run beside another
        assert second.saves(2)[1] == pytest.approx(0.35, rel=0.2)
    assert second.resumed().save() == pytest.approx(0.57, rel=0.25)


def test_a_budget_is_kept_from_the_first_delta_on():
    policy = lcstore.Policy(bytes_per_save=10**9)
    run = Run(MemoryBackend.fresh(), policy)
    assert run.saves(2)[1] > 0.7
    run = Run(MemoryBackend.fresh(), settled(PRESETS["balanced"]))
    assert run.saves(2)[1] > 0.7
