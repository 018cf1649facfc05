"""A small real network on scikit-learn's digits, in plain numpy: forward, backward, Adam."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Labels: TypeAlias = NDArray[np.int64]
Parameters: TypeAlias = dict[str, Floats]

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


def digits() -> tuple[Floats, Labels]:
    """Return the images, 64 pixels from 0 to 1 each, and what they show."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int64)


def new_parameters(hidden: int, rng: np.random.Generator) -> Parameters:
    """Return the parameters of a network with one hidden layer of `hidden` units."""
    parameters: Parameters = {}
    for layer, (inputs, outputs) in enumerate([(64, hidden), (hidden, 10)]):
        weight = rng.standard_normal((inputs, outputs), dtype=np.float32)
        parameters[f"w{layer}"] = weight * np.float32(np.sqrt(2 / inputs))
        parameters[f"b{layer}"] = np.zeros(outputs, np.float32)
    return parameters


def _forward(parameters: Parameters, images: Floats) -> tuple[Floats, Floats]:
    """Return the hidden units, and the logarithms of the ten probabilities."""
    hidden = np.maximum(images @ parameters["w0"] + parameters["b0"], 0)
    value = hidden @ parameters["w1"] + parameters["b1"]
    value = value - value.max(axis=1, keepdims=True)
    return hidden, value - np.log(np.exp(value).sum(axis=1, keepdims=True))


def loss_of(parameters: Parameters, images: Floats, labels: Labels) -> float:
    """Return the mean cross entropy."""
    _, logs = _forward(parameters, images)
    return float(-logs[np.arange(len(labels)), labels].mean(dtype=np.float64))


def gradients(parameters: Parameters, images: Floats, labels: Labels) -> Parameters:
    """Return the gradient of the loss."""
    hidden, logs = _forward(parameters, images)
    outer = np.exp(logs)
    outer[np.arange(len(labels)), labels] -= 1
    outer /= np.float32(len(labels))
    inner = (outer @ parameters["w1"].T) * (hidden > 0)
    return {"w0": images.T @ inner, "b0": inner.sum(axis=0), "w1": hidden.T @ outer, "b1": outer.sum(axis=0)}


def adam(parameters: Parameters, slopes: Parameters, moments: dict[str, Any], rate: float) -> None:
    """Take one step of Adam, in place."""
    moments["step"] += 1
    fix_first, fix_second = (1 - beta ** moments["step"] for beta in _BETAS)
    for name, slope in slopes.items():
        first, second = moments["m"][name], moments["v"][name]
        first += np.float32(1 - _BETAS[0]) * (slope - first)
        second += np.float32(1 - _BETAS[1]) * (slope * slope - second)
        size = np.sqrt(second / np.float32(fix_second)) + np.float32(_EPSILON)
        parameters[name] -= np.float32(rate / fix_first) * first / size
