"""What is told of a metric over the steps of a run."""

from __future__ import annotations

import numpy as np
import pytest

from lcstore.report.facts import SavedState
from lcstore.report.series import wrong_in


def states(losses: list[float], name: str = "loss") -> list[SavedState]:
    """Return states of one run, each ten steps, with these values of a metric."""
    about = {
        "run": 1,
        "run_id": "a",
        "kind": "delta",
        "created": "",
        "bytes_raw": 0,
        "bytes_stored": {},
        "error": None,
    }
    return [
        SavedState(10 * at, f"n{at}", seq=at, metrics={name: loss}, **about) for at, loss in enumerate(losses)
    ]


def falling(count: int, seed: int = 0, noise: float = 0.2) -> list[float]:
    """Return a noisy loss that falls."""
    random = np.random.default_rng(seed)
    return [float(4 / (1 + at / 10) * np.exp(noise * random.standard_normal())) for at in range(count)]


def test_a_loss_that_rose_and_stayed_up_is_told_with_the_step():
    broken = [*falling(80, noise=0.05), *np.linspace(28, 22, 40)]
    said = wrong_in(states(broken))["loss"].text
    assert said.startswith("up since step 800: about 22.4 in the end, ")
    assert said.endswith(f"and at the least {min(broken):.4g} at step {10 * int(np.argmin(broken))}")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("shift", [0.0, -9.0])
def test_a_loss_that_gave_back_most_of_what_it_had_fallen_by_is_told(seed, shift):
    """As of a language model that diverges: guesses cost 1.1 to 1.3 times what it had come to."""
    noise = shift + 0.04 * np.random.default_rng(seed).standard_normal(150)
    fell = np.linspace(3.87, 3.43, 70)
    said = wrong_in(states((noise + np.r_[fell, np.full(80, 3.85)]).tolist()))["loss"].text
    assert said.startswith("up since step 700: ")
    assert wrong_in(states((noise + np.r_[fell, np.full(80, 3.5)]).tolist())) == {}


@pytest.mark.parametrize("seed", range(20))
def test_a_noisy_loss_that_falls_or_has_come_to_rest_is_none(seed):
    random = np.random.default_rng(seed)
    resting = [float(0.7 * np.exp(0.3 * random.standard_normal())) for _ in range(100)]
    for losses in (falling(100, seed), falling(30, seed) + resting, resting[:6], [0.0] * 20, [2.0]):
        assert wrong_in(states(losses)) == {}


def test_a_loss_that_is_all_noise_once_it_has_come_to_rest_is_none():
    """Of few batches, at a hundredth of what it was: one of 75 of these was told as risen."""
    random = np.random.default_rng(0)
    at_rest = 2.3 * np.exp(-np.arange(60) / 6) + 1e-2
    told = [wrong_in(states((at_rest * np.exp(random.normal(0, 0.5, 60))).tolist())) for _ in range(300)]
    assert sum(map(bool, told)) <= 1  # none that was up by less than six times what it varies by


def test_a_spike_that_passes_does_not_stay_up_and_what_is_to_be_large_is_none():
    spiked = falling(100, noise=0.05)
    spiked[60:64] = [50.0] * 4
    assert "up since" not in wrong_in(states(spiked))["loss"].text
    assert wrong_in(states([float(at) for at in range(1, 50)], "tokens")) == {}
    assert wrong_in(states([float(at) for at in range(1, 50)], "accuracy")) == {}


@pytest.mark.parametrize("top", [1, 100])
def test_an_accuracy_that_fell_and_stayed_down_is_told(top):
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.01 * top, 60)
    good = top * (0.95 - 0.85 * np.exp(-np.arange(60) / 5)) + noise
    assert wrong_in(states(good.tolist(), "val_accuracy")) == {}
    for low in (0.1, 0.7):
        said = wrong_in(states([*good[:40].tolist(), *(low * top + noise[:20]).tolist()], "val_acc"))
        assert said["val_acc"].text.startswith(f"down since step 400: about {low * top:.3g}"[:24])
        assert "at the most" in said["val_acc"].text
    slips = [*good[:40].tolist(), *(0.92 * top + noise[:20]).tolist()]
    assert wrong_in(states(slips, "acc")) == {}


def test_what_is_a_loss_and_an_accuracy_by_its_name_is_neither():
    fell = [0.9] * 20 + [0.1] * 20
    assert wrong_in(states(fell, "precision_loss")) == {}
    assert wrong_in(states(fell, "reward"))


@pytest.mark.parametrize("seed", range(5))
def test_a_loss_that_jumped_at_one_save_is_told_with_both_steps(seed):
    """It varies by 0.001, and once it was 0.3 higher: nothing was told of that."""
    random = np.random.default_rng(seed)
    losses = (2.38 + 2 * np.exp(-np.arange(60) / 5) + 0.001 * random.standard_normal(60)).tolist()
    assert wrong_in(states(losses)) == {}
    losses[40] = 2.69
    told = f"2.69 at step 400, after {losses[39]:.4g} at step 390"
    assert wrong_in(states(losses))["loss"].text == told
    assert wrong_in(states(losses))["loss"].steps == (400,)
    assert wrong_in(states(losses, "gradient")) == {}  # nobody knows whether less is better
    right = (1 - np.array(losses) / 5).tolist()
    assert wrong_in(states(right, "accuracy"))["accuracy"].text.startswith(f"{right[40]:.4g} at step 400, ")
    losses[40] = 2.3
    assert wrong_in(states(losses)) == {}  # it became better


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_of_batches_that_are_harder_or_easier_has_not_jumped(seed):
    random = np.random.default_rng(seed)
    for sigma in (0.05, 0.2, 0.4):
        losses = 0.7 * np.exp(-np.arange(200) / 40) * np.exp(sigma * random.standard_normal(200))
        assert wrong_in(states(losses.tolist())) == {}


@pytest.mark.parametrize("top", [1, 100])
def test_an_accuracy_that_fell_by_a_sample_of_a_few_hundred_is_none(top):
    """Most of its values are the same, so that it varies by nothing from value to value."""
    for best, then in ((0.995, 0.992), (0.9, 0.89), (0.509, 0.5)):
        told = wrong_in(states([best * top] * 20 + [then * top] * 20, "val_acc"))
        assert told == {}
    assert "down since" in wrong_in(states([0.95 * top] * 20 + [0.85 * top] * 20, "val_acc"))["val_acc"].text
