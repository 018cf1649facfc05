"""Where updates go on from save to save thresholds fall, so that the track does not lag behind."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.track import steps
from lcstore.track.policy import PRESETS
from lcstore.track.rate import Rate
from lcstore.track.samples import rms
from tests.track.test_rate import Follower

PATH = ("w",)


def drift(part: float, saves: int, shape: tuple[int, ...] = (96, 64), seed: int = 0):
    """States of which that part of each update's energy goes on, and the rest is noise."""
    rng = np.random.default_rng(seed)
    value, going = rng.standard_normal(shape) * 0.1, rng.standard_normal(shape)
    for _ in range(saves):
        yield value.astype(np.float32)
        noise = rng.standard_normal(shape)
        going = 0.98 * going + np.sqrt(1 - 0.98**2) * rng.standard_normal(shape)
        value = value + 1e-3 * (np.sqrt(part) * going + np.sqrt(1 - part) * noise)


def trend(rate: Rate, change: np.ndarray) -> float:
    return rate.trend(PATH, change, rms(change))


def follow(policy: str, part: float, saves: int = 50) -> tuple[float, float, float]:
    """Mean error, lag and bytes of the later saves, all measured on everything."""
    follower, last, seen = Follower(PRESETS[policy]), None, []
    for save, now in enumerate(drift(part, saves)):
        follower.save({"w": now})
        if save >= 20:
            left, moved = follower.left("w", now), now.astype(np.float64) - last
            energy = np.sum(np.square(moved))
            error = np.sqrt(np.sum(np.square(left)) / energy)
            seen.append((error, np.sum(left * moved) / energy, follower.size))
        last = now.astype(np.float64)
    error, lag, size = np.mean(seen, axis=0)
    return error, lag, size


@pytest.mark.parametrize("policy", ["high", "balanced", "small"])
def test_a_trend_is_followed_closely_for_no_more_bytes(policy, monkeypatch):
    error, lag, size = follow(policy, 0.7)
    assert 0.85 <= error / PRESETS[policy].error <= 1.05
    monkeypatch.setattr(Rate, "trend", lambda self, path, change, moved: 0.0)
    error_before, lag_before, size_before = follow(policy, 0.7)
    # At fine errors zeros are hardly wider than other levels: there is less to win, and a little to pay.
    fine = policy == "high"
    assert lag < (0.65 if fine else 0.4) * lag_before
    assert lag < 0.16 * error
    # A hundredth of an error costs about half a hundredth of the bytes, here at the least.
    assert size / size_before < (1.005 if fine else 1) * (error_before / error) ** 0.5


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 1.0])
def test_the_trend_is_told_from_noise(part):
    rate, states = Rate(), [s.astype(np.float64).reshape(-1) for s in drift(part, 40)]
    found = [trend(rate, now - last) for last, now in pairwise(states)]
    assert found[0] == 0
    assert np.mean(found[10:]) == pytest.approx(part, abs=0.1)


def test_what_is_done_and_undone_is_no_trend():
    rate, change = Rate(), np.random.default_rng(0).standard_normal(1024)
    assert [trend(rate, change * sign) for sign in (1, -1, 1, -1, 1, -1)] == pytest.approx(
        np.zeros(6), abs=0.01
    )


def test_a_trend_does_not_depend_on_how_fast_it_is():
    rate, change = Rate(), np.random.default_rng(0).standard_normal(1024)
    found = [trend(rate, change * speed) for speed in (1, 1e-30, 1e30, 1e-3, 0.5)]
    assert found == pytest.approx([0, 1, 1, 1, 1])
    assert trend(rate, np.zeros(1024)) == 0


def test_a_change_that_overflows_is_forgotten():
    rate, change = Rate(), np.ones(100)
    trend(rate, change)
    with np.errstate(over="ignore"):
        assert trend(rate, change * 1e308 * 10) == 0
    assert trend(rate, change) == pytest.approx(1)
    assert trend(rate, -change) == 0


def test_a_tensor_that_changes_its_size_begins_anew():
    rate = Rate()
    trend(rate, np.ones(100))
    assert trend(rate, np.ones(50)) == 0
    assert trend(rate, np.ones(50)) == pytest.approx(1)


def test_a_copy_goes_on_alone():
    rate = Rate()
    trend(rate, np.ones(100))
    other = rate.copy()
    trend(other, -np.ones(100))
    assert trend(rate, np.ones(100)) == pytest.approx(1)


@given(st.floats(0.01, 8), st.floats(0, 1), st.floats(0, 1))
def test_the_more_of_a_trend_the_lower_the_threshold(error, one, other):
    low, high = sorted((one, other))
    of_low, of_high = steps.best(error, low), steps.best(error, high)
    assert of_high[1] <= of_low[1]
    assert of_high[2] <= of_low[2] + 1e-12
    for ratio, threshold, width in (of_low, of_high):
        assert steps.LEAST_THRESHOLD <= threshold <= steps.MOST_THRESHOLD
        assert 1 <= width <= 1.1
        assert 1.5 <= ratio / error <= 3.7
