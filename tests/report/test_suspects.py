"""What a report leads on with: two saves around where something went wrong."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from reported import Layers

import lcstore
from lcstore.report.gather import gather
from lcstore.report.words import next_commands, verdict
from lcstore.storage.memory import MemoryBackend

pytestmark = pytest.mark.filterwarnings("ignore::lcstore.NotFiniteWarning")


def told(layers: Layers, spoil, saves: int = 24) -> tuple[str, str]:
    """Return what a report of a run says first, and the command that it leads on with."""
    with lcstore.open(MemoryBackend.fresh()) as store:
        for count in range(saves):
            state = layers.step()
            metrics = {"loss": 1 / (count + 1), "acc": 1 - 0.9 / (count + 1)}
            spoil(count, layers, state, metrics)
            store.save(10 * count, state, metrics=metrics)
        report = gather(store)
    return " ".join(verdict(report)), next_commands(report)[0][0]


def test_moments_with_nan_are_told_since_which_step_and_compared():
    def spoil(count, layers, state, metrics):
        if count >= 15:
            state["optim"]["exp_avg"][layers.names[1]][0, 0] = np.nan

    said, command = told(Layers(), spoil)
    assert "NaN or infinity is in 1 tensor of moments in the end, since step 150." in said
    assert command.endswith("@140 @150")
    assert command.startswith("lcstore diff memory://")


def test_moments_that_are_finite_again_are_not_told():
    def spoil(count, layers, state, metrics):
        if count == 15:
            state["optim"]["exp_avg"][layers.names[1]][0, 0] = np.nan

    said, command = told(Layers(), spoil)
    assert "NaN" not in said
    assert "diff" not in command


def test_a_layer_that_stopped_leads_on_to_the_saves_around_it():
    def spoil(count, layers, state, metrics):
        layers.factor[layers.names[2]] = float(count < 12)

    said, command = told(Layers(), spoil)
    assert "is not seen to move since step 120" in said
    # It was hurt on the way from 110 to 120: it moves as before there, and 120 is no sound state.
    assert command.endswith("@110 @130")


def test_of_a_layer_that_stands_out_twice_both_steps_are_looked_at():
    layers = Layers()
    layers.weights[layers.names[2]] *= 100

    def spoil(count, layers, state, metrics):
        layers.factor[layers.names[2]] = float(count < 12)

    said, command = told(layers, spoil)
    assert "has had larger weights than others alike since step 0" in said
    assert "is not seen to move since step 120" in said
    assert command.endswith("@110 @130")


def test_an_accuracy_that_fell_leads_on_to_the_saves_around_it():
    def spoil(count, layers, state, metrics):
        if count >= 14:
            metrics["acc"] = 0.1

    said, command = told(Layers(), spoil)
    assert "Metrics: acc is down since step 140: about 0.1 in the end" in said
    assert command.endswith("@130 @140")


def test_a_sound_run_leads_on_to_no_comparison():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        said, command = told(Layers(), lambda *_: None)
    assert "Metrics" not in said
    assert "stand out" not in said
    assert "diff" not in command


@pytest.mark.parametrize("restored", [True, False])
def test_an_optimizer_that_was_not_restored_is_told(restored, caplog):
    backend, layers = MemoryBackend.fresh(), Layers()
    counted = 0
    for run in range(2):
        with lcstore.open(backend) as store:
            if run:
                store.resume()
            counted *= restored
            for count in range(6 * run, 6 * run + 6):
                counted += 10
                state = layers.step()
                state["optim"]["step"] = np.array(counted, np.float32)
                store.save(10 * count, state)
    with lcstore.open(backend, "r") as store:
        report = gather(store)
    said, command = " ".join(verdict(report)), next_commands(report)[0][0]
    told = "The optimizer began anew with the save of step 60: 10 steps, after 60."
    assert (told in said) == (not restored)
    assert command.endswith("@50 @60") == (not restored)
    assert ("has counted 10 steps ('optim/step'), and 60" in caplog.text) == (not restored)
