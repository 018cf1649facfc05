"""A small real network on scikit-learn's digits, in plain numpy: forward, backward, Adam."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Parameters: TypeAlias = dict[str, Floats]

_BETAS = (0.9, 0.999)
_EPSILON = 1e-8


def digits() -> tuple[Floats, NDArray[np.int64]]:
    """Return the images, 64 pixels from 0 to 1 each, and what they show."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int64)


def new_parameters(hidden: int, rng: np.random.Generator) -> Parameters:
    """Return the parameters of a network with two hidden layers of `hidden` units."""
    sizes = (64, hidden, hidden, 10)
    parameters: Parameters = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight = rng.standard_normal((inputs, outputs), dtype=np.float32)
        parameters[f"w{layer}"] = weight * np.float32(np.sqrt(2 / inputs))
        parameters[f"b{layer}"] = np.zeros(outputs, np.float32)
    return parameters


def _forward(parameters: Parameters, images: Floats) -> tuple[list[Floats], Floats]:
    """Return the input of each layer, and the logarithms of the ten probabilities."""
    inputs, value = [], images
    layers = len(parameters) // 2
    for layer in range(layers):
        inputs.append(value)
        value = value @ parameters[f"w{layer}"] + parameters[f"b{layer}"]
        if layer < layers - 1:
            value = np.maximum(value, 0)
    value = value - value.max(axis=1, keepdims=True)
    return inputs, value - np.log(np.exp(value).sum(axis=1, keepdims=True))


def loss_of(parameters: Parameters, images: Floats, labels: NDArray[np.int64]) -> float:
    """Return the mean cross entropy."""
    _, logs = _forward(parameters, images)
    return float(-logs[np.arange(len(labels)), labels].mean(dtype=np.float64))


def gradients(parameters: Parameters, images: Floats, labels: NDArray[np.int64]) -> Parameters:
    """Return the gradient of the loss."""
    inputs, logs = _forward(parameters, images)
    slope = np.exp(logs)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= np.float32(len(labels))
    found: Parameters = {}
    for layer in reversed(range(len(inputs))):
        found[f"w{layer}"] = inputs[layer].T @ slope
        found[f"b{layer}"] = slope.sum(axis=0)
        if layer:
            slope = (slope @ parameters[f"w{layer}"].T) * (inputs[layer] > 0)
    return found


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
