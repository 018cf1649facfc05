"""What is told of tensors that lie beside weights and are kept bit for bit: biases, scales, statistics."""

from __future__ import annotations

import re

import numpy as np
import pytest
from reported import Layers

import lcstore
from lcstore.report.gather import gather
from lcstore.report.words import next_commands, verdict
from lcstore.storage.memory import MemoryBackend

BIASES = [f"layers.{place}.bias" for place in range(4)]


class Biased(Layers):
    """These layers with a bias each, a buffer that rests, statistics, and what is no part of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.biases = {name: np.zeros(64, np.float32) for name in BIASES}
        self.factor |= dict.fromkeys([*BIASES, "mean", "history", "few"], 1.0)
        self.kept = {name: np.ones(2 if name == "few" else 64) for name in ("mean", "history", "few")}

    def _moved(self, name: str, value: np.ndarray) -> np.ndarray:
        return value + (1e-3 * self.factor[name] * self.rng.standard_normal(value.shape)).astype(value.dtype)

    def step(self):
        state = super().step()
        self.biases = {name: self._moved(name, value) for name, value in self.biases.items()}
        self.kept = {name: self._moved(name, value) for name, value in self.kept.items()}
        state["model"] |= {**self.biases, "mean": self.kept["mean"], "few": self.kept["few"]}
        state["model"]["inv_freq"] = np.arange(64, dtype=np.float32)
        return state | {"history": self.kept["history"]}


def report_of(change, policy="balanced", dtype=np.float32):
    """Return a report of 24 saves of layers that something changes from the 14th on."""
    layers = Biased()
    layers.biases = {name: value.astype(dtype) for name, value in layers.biases.items()}
    with lcstore.open(MemoryBackend.fresh(), policy=policy, durability="none") as store:
        for count in range(24):
            if count >= 14:
                change(layers.factor, count)
            store.save(10 * count, layers.step())
        return gather(store)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_bias_that_explodes_is_told_with_the_step(dtype):
    report = report_of(lambda factor, _: factor.update({BIASES[2]: 40.0}), dtype=dtype)
    (note,) = report.tensors.notes
    assert note.names == (f"model/{BIASES[2]}",)
    told = r"moves [34]\d(\.\d)? times as far as it used to, beside the others, and further since step 140"
    assert re.fullmatch(told, note.text)
    assert next_commands(report)[0][0].endswith("@120 @140")


def test_a_bias_that_explodes_as_rates_fall_is_told():
    def falls(factor, count):
        for name in [*BIASES, *(name for name in factor if name.endswith("weight"))]:
            factor[name] = 0.7 ** (count - 13) * (40 if name == BIASES[2] else 1)

    (note,) = report_of(falls).tensors.notes
    assert note.names == (f"model/{BIASES[2]}",)
    assert note.text.endswith("times as far as it used to, beside the others, and further since step 140")


def test_a_bias_that_fades_is_told():
    report = report_of(lambda factor, _: factor.update({BIASES[1]: 0.015}))
    (note,) = report.tensors.notes
    assert note.names == (f"model/{BIASES[1]}",)
    assert note.text.startswith("hardly moves any more since step 140: ")


def test_a_layer_that_stopped_is_told_with_its_bias():
    report = report_of(lambda factor, _: factor.update({"layers.3.weight": 0.0, BIASES[3]: 0.0}))
    said = "each of 2 layers (model/layers.3.weight, model/layers.3.bias) is not seen to move since step 130"
    assert f"Layers that stand out: {said}." in verdict(report)


def test_of_what_goes_its_own_way_nothing_is_told():
    """Buffers rest, statistics go on as rates fall, and what lies elsewhere is nobody's layer."""

    def falls(factor, count):
        for name in [*BIASES, *(name for name in factor if name.endswith("weight"))]:
            factor[name] = 0.6 ** (count - 13)
        factor |= {"history": 1e4, "few": 1e4}

    assert report_of(falls).tensors.notable == []
    # So far they come down as they train: of a small convolutional network in which nothing died.
    assert report_of(lambda factor, _: factor.update({BIASES[1]: 0.06})).tensors.notable == []
    assert report_of(lambda *_: None).tensors.notable == []
    assert report_of(lambda factor, _: factor.update({BIASES[2]: 40.0}), "lossless").tensors.notable == []


def test_of_a_bias_before_a_norm_which_moves_by_rounding_alone_nothing_is_told():
    """Its gradient is none but for rounding, so it comes to rest as a rate falls: told as a death."""

    def rests(factor, count):
        factor[BIASES[1]] = 0.0 if count >= 18 else 1e-5 * 0.8**count

    layers = Biased()
    with lcstore.open(MemoryBackend.fresh(), durability="none") as store:
        for count in range(24):
            rests(layers.factor, count)
            store.save(10 * count, layers.step())
        assert gather(store).tensors.notes == ()
