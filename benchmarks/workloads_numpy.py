"""Training runs in plain numpy: logistic regression, matrix factorisation and a small DLRM.

They have the interface of `workloads_train.Run`: `advance`, `loss`, `state`, `load`, `fingerprint`,
`iteration`. A batch is drawn from the seed and the iteration alone, and the optimizer is plain SGD: weights
are all there is to save. The ratings and the clicks are made up, from models that the docstrings state.
"""

from __future__ import annotations

import hashlib
import platform
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]
#: Rows of the eight embedding tables of the DLRM.
TABLES = (20_000, 10_000, 8_000, 5_000, 4_000, 2_000, 1_200, 400)


class NumpyRun(ABC):
    """A model in training. `iteration` counts the updates made; `weights` are updated in place."""

    batch_size: int
    rate: float

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.iteration = 0
        self.weights: Arrays = {}
        data = self.prepare(np.random.default_rng((seed, 1 << 40)))
        self.fingerprint: dict[str, Any] = {
            "seed": seed,
            "batch": self.batch_size,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "data_sha256": hashlib.sha256(data).hexdigest(),
        }

    @abstractmethod
    def prepare(self, rng: np.random.Generator) -> bytes:
        """Make the data and the first weights; return bytes that stand for the data."""

    @abstractmethod
    def update(self, rng: np.random.Generator) -> None:
        """Make one update on a batch drawn from `rng`."""

    @abstractmethod
    def loss(self) -> float:
        """Mean held-out loss, over the same examples each time."""

    def advance(self, to: int) -> None:
        """Train until `to` updates have been made."""
        while self.iteration < to:
            self.update(np.random.default_rng((self.seed, self.iteration)))
            self.iteration += 1

    def state(self) -> dict[str, Any]:
        """The training state (copies)."""
        groups = [{"lr": self.rate, "params": list(range(len(self.weights)))}]
        return {
            "model": {name: array.copy() for name, array in self.weights.items()},
            "optim": {"state": {}, "param_groups": groups},
        }

    def load(self, state: dict[str, Any], iteration: int) -> None:
        """Continue from a state such as `state` gives, taken after `iteration` updates."""
        for name, array in state["model"].items():
            self.weights[name][...] = array
        self.iteration = iteration

    def parameter_paths(self) -> list[str]:
        """Paths of the weights in order."""
        return [f"model/{name}" for name in self.weights]


class LogisticRegression(NumpyRun):
    """Softmax regression on scikit-learn's digits, upsampled to 28x28: 7,850 parameters."""

    batch_size, rate = 64, 0.01

    def prepare(self, rng: np.random.Generator) -> bytes:
        from sklearn.datasets import load_digits

        digits = load_digits()
        small = digits.images.astype(np.float32) / 16
        self.images = _upsample(small, 28).reshape(len(small), -1)
        self.labels = digits.target.astype(np.int64)
        order = np.random.default_rng(self.seed).permutation(len(small))
        self.train, self.held_out = order[:1500], order[1500:]
        scale = 1 / np.sqrt(self.images.shape[1])
        self.weights["linear.weight"] = rng.uniform(-scale, scale, (10, 784)).astype(np.float32)
        self.weights["linear.bias"] = np.zeros(10, np.float32)
        return bytes(digits.images.tobytes())

    def _probabilities(self, images: np.ndarray) -> np.ndarray:
        logits = images @ self.weights["linear.weight"].T + self.weights["linear.bias"]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        out: np.ndarray = powers / powers.sum(axis=1, keepdims=True)
        return out

    def update(self, rng: np.random.Generator) -> None:
        picked = rng.choice(self.train, self.batch_size, replace=False)
        error = self._probabilities(self.images[picked])
        error[np.arange(len(picked)), self.labels[picked]] -= 1
        error *= self.rate / len(picked)
        self.weights["linear.weight"] -= error.T @ self.images[picked]
        self.weights["linear.bias"] -= error.sum(axis=0)

    def loss(self) -> float:
        right = self._probabilities(self.images[self.held_out])
        chosen = right[np.arange(len(self.held_out)), self.labels[self.held_out]]
        return float(-np.mean(np.log(np.maximum(chosen, 1e-12)), dtype=np.float64))


class MatrixFactorisation(NumpyRun):
    """Rank-32 factors of 5,000 users and 3,000 items by SGD on 400,000 ratings: 256,000 parameters.

    The ratings are made up: the inner product of rank-8 normal factors, of variance 1 together, plus
    normal noise of 0.3. Users and items are drawn by Zipf's law with exponent 0.9.
    """

    batch_size, rate = 1000, 0.03
    shape, rank, true_rank, count = (5000, 3000), 32, 8, 400_000

    def prepare(self, rng: np.random.Generator) -> bytes:
        users, items = (rng.normal(0, self.true_rank**-0.25, (n, self.true_rank)) for n in self.shape)
        size = self.count + 20_000
        self.pairs = np.stack([_zipf(rng, n, 0.9, size) for n in self.shape], axis=1)
        exact = np.einsum("ij,ij->i", users[self.pairs[:, 0]], items[self.pairs[:, 1]])
        self.ratings = (exact + rng.normal(0, 0.3, size)).astype(np.float32)
        for name, n in zip(("users.weight", "items.weight"), self.shape, strict=True):
            self.weights[name] = rng.normal(0, 0.1, (n, self.rank)).astype(np.float32)
        return bytes(self.pairs.tobytes() + self.ratings.tobytes())

    def update(self, rng: np.random.Generator) -> None:
        picked = rng.integers(0, self.count, self.batch_size)
        users, items = self.weights["users.weight"], self.weights["items.weight"]
        u, i = self.pairs[picked].T
        left, right = users[u], items[i]
        error = (np.einsum("ij,ij->i", left, right) - self.ratings[picked])[:, None] * np.float32(self.rate)
        _subtract_rows(users, u, error * right)
        _subtract_rows(items, i, error * left)

    def loss(self) -> float:
        u, i = self.pairs[self.count :].T
        guess = np.einsum("ij,ij->i", self.weights["users.weight"][u], self.weights["items.weight"][i])
        return float(np.mean((guess - self.ratings[self.count :]) ** 2, dtype=np.float64))


class SmallDLRM(NumpyRun):
    """Eight tables of 16-wide rows, 50,600 in all, and two small MLPs: 817,041 parameters.

    The top MLP sees the inner products of all pairs of rows, as in DLRM. The clicks are made up: 13 normal
    features and one row of each table (drawn by Zipf's law, exponent 1.05) have hidden weights; a click has
    the logistic of their sum as its probability. An update touches about 3 % of the rows.
    """

    batch_size, rate, width = 256, 0.3, 16

    def prepare(self, rng: np.random.Generator) -> bytes:
        self.hidden = [rng.normal(0, 1.0, n) for n in TABLES]
        self.slope = rng.normal(0, 0.3, 13)
        self.orders = [rng.permutation(n) for n in TABLES]
        self.powers = [_zipf_sums(n, 1.05) for n in TABLES]
        for number, n in enumerate(TABLES):
            self.weights[f"tables.{number}.weight"] = rng.normal(0, 0.1, (n, self.width)).astype(np.float32)
        for name, (rows, cols) in _MLPS.items():
            self.weights[f"{name}.weight"] = rng.normal(0, cols**-0.5, (rows, cols)).astype(np.float32)
            self.weights[f"{name}.bias"] = np.zeros(rows, np.float32)
        self.test = self._draw(np.random.default_rng((self.seed, 1 << 41)), 8192)
        return b"".join(part.tobytes() for part in self.test)

    def _draw(self, rng: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        dense = rng.normal(size=(size, 13))
        rows = np.stack(
            [
                order[np.searchsorted(p, rng.random(size))]
                for order, p in zip(self.orders, self.powers, strict=True)
            ],
            axis=1,
        )
        score = dense @ self.slope + sum(h[rows[:, t]] for t, h in enumerate(self.hidden))
        clicks = rng.random(size) < 1 / (1 + np.exp(-score))
        return dense.astype(np.float32), rows, clicks.astype(np.float32)

    def _forward(self, dense: np.ndarray, rows: np.ndarray) -> dict[str, np.ndarray]:
        w, out = self.weights, {"dense": dense}
        out["b1"] = np.maximum(dense @ w["bottom.0.weight"].T + w["bottom.0.bias"], 0)
        out["b2"] = np.maximum(out["b1"] @ w["bottom.1.weight"].T + w["bottom.1.bias"], 0)
        parts = [out["b2"], *(w[f"tables.{t}.weight"][rows[:, t]] for t in range(len(TABLES)))]
        out["all"] = np.stack(parts, axis=1)
        pairs = (out["all"] @ out["all"].transpose(0, 2, 1))[:, *_PAIRS]
        out["x"] = np.concatenate([out["b2"], pairs], axis=1)
        out["t1"] = np.maximum(out["x"] @ w["top.0.weight"].T + w["top.0.bias"], 0)
        out["t2"] = np.maximum(out["t1"] @ w["top.1.weight"].T + w["top.1.bias"], 0)
        out["logit"] = (out["t2"] @ w["top.2.weight"].T + w["top.2.bias"])[:, 0]
        return out

    def update(self, rng: np.random.Generator) -> None:
        dense, rows, clicks = self._draw(rng, self.batch_size)
        f = self._forward(dense, rows)
        error = (1 / (1 + np.exp(-f["logit"])) - clicks)[:, None] / np.float32(self.batch_size)
        gradients: Arrays = {}
        back = self._back(gradients, "top.2", f["t2"], error)
        back = self._back(gradients, "top.1", f["t1"], back * (f["t2"] > 0))
        back = self._back(gradients, "top.0", f["x"], back * (f["t1"] > 0))
        of_pairs = np.zeros((len(clicks), 9, 9), np.float32)
        of_pairs[:, *_PAIRS] = back[:, self.width :]
        of_all = (of_pairs + of_pairs.transpose(0, 2, 1)) @ f["all"]
        back = (back[:, : self.width] + of_all[:, 0]) * (f["b2"] > 0)
        back = self._back(gradients, "bottom.1", f["b1"], back)
        self._back(gradients, "bottom.0", dense, back * (f["b1"] > 0))
        for name, gradient in gradients.items():
            self.weights[name] -= np.float32(self.rate) * gradient
        for t in range(len(TABLES)):
            # A row is in few examples of a batch: tables take the sum of gradients at a tenth of the rate.
            step = of_all[:, t + 1] * np.float32(self.rate * self.batch_size / 10)
            _subtract_rows(self.weights[f"tables.{t}.weight"], rows[:, t], step)

    def _back(self, gradients: Arrays, name: str, inputs: np.ndarray, error: np.ndarray) -> np.ndarray:
        gradients[f"{name}.weight"] = error.T @ inputs
        gradients[f"{name}.bias"] = error.sum(axis=0)
        out: np.ndarray = error @ self.weights[f"{name}.weight"]
        return out

    def loss(self) -> float:
        dense, rows, clicks = self.test
        logit = self._forward(dense, rows)["logit"]
        return float(np.mean(np.logaddexp(0, logit) - clicks * logit, dtype=np.float64))


_MLPS = {"bottom.0": (64, 13), "bottom.1": (16, 64), "top.0": (64, 52), "top.1": (32, 64), "top.2": (1, 32)}
_PAIRS = np.tril_indices(9, -1)
RUNS: dict[str, type[NumpyRun]] = {"logreg": LogisticRegression, "mf": MatrixFactorisation, "dlrm": SmallDLRM}


def _zipf_sums(n: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, n + 1) ** -exponent
    sums: np.ndarray = np.cumsum(weights) / weights.sum()
    sums[-1] = 1
    return sums


def _zipf(rng: np.random.Generator, n: int, exponent: float, size: int) -> np.ndarray:
    order = rng.permutation(n)
    found: np.ndarray = order[np.searchsorted(_zipf_sums(n, exponent), rng.random(size))]
    return found


def _subtract_rows(table: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Subtract each of `values` from its row; a row that occurs twice is moved twice."""
    order = np.argsort(rows, kind="stable")
    first = np.flatnonzero(np.diff(rows[order], prepend=-1))
    table[rows[order][first]] -= np.add.reduceat(values[order], first, axis=0)


def _upsample(images: np.ndarray, size: int) -> np.ndarray:
    """Bilinear, with pixel centres at halves; edges repeat."""
    old = images.shape[1]
    at = np.clip((np.arange(size) + 0.5) * old / size - 0.5, 0, old - 1)
    low = np.minimum(at.astype(int), old - 2)
    part = (at - low).astype(np.float32)
    matrix = np.zeros((size, old), np.float32)
    matrix[np.arange(size), low] = 1 - part
    matrix[np.arange(size), low + 1] = part
    out: np.ndarray = np.einsum("ai,nij,bj->nab", matrix, images, matrix)
    return np.ascontiguousarray(out)
