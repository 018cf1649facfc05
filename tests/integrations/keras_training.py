"""A training of Keras in a process of its own: saves, may be killed, and is begun again."""

from __future__ import annotations

import os
import signal
import sys
from importlib.util import find_spec

os.environ.setdefault("KERAS_BACKEND", "torch" if find_spec("torch") else "jax")

import keras
import numpy as np

from lcstore.integrations.keras import LcstoreCallback

EPOCHS = 6


def data() -> tuple[np.ndarray, np.ndarray]:
    """What is trained on: 10 batches of 32, the last one smaller."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((300, 64)).astype(np.float32)
    return x, np.sin(x[:, :8]) + 0.1 * rng.standard_normal((300, 8)).astype(np.float32)


def build(optimizer: object = "adam") -> keras.Model:
    """Return a small model that draws numbers and keeps statistics, always of the same weights and names."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(7)
    layers = [
        keras.Input((64,)),
        keras.layers.Dense(128, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(8),
    ]
    model = keras.Sequential(layers)
    model.compile(optimizer, loss="mse")
    return model


def train(model: keras.Model, *callbacks: keras.callbacks.Callback, epochs: int = EPOCHS) -> list[float]:
    """Train a model, and return the losses of the epochs."""
    x, y = data()
    fitted = model.fit(x, y, validation_split=0.2, epochs=epochs, callbacks=[*callbacks], verbose=0)
    return fitted.history.get("val_loss", [])


class Interrupting(keras.callbacks.Callback):
    """Calls a function when a batch of an epoch begins."""

    def __init__(self, epoch: int, batch: int, act: object) -> None:
        super().__init__()
        self.at, self.act, self.epoch = (epoch, batch), act, -1

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_begin(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            self.act()


def kill() -> None:
    """End this process as the machine would."""
    os.kill(os.getpid(), signal.SIGKILL)


def finished(url: str, *others: keras.callbacks.Callback) -> list[np.ndarray]:
    """Train, from where the store says; return all that the model is."""
    model = build()
    train(model, LcstoreCallback(url, policy="lossless"), *others)
    return [*model.get_weights(), *(variable.numpy() for variable in model.optimizer.variables)]


if __name__ == "__main__":
    if sys.argv[2:] == ["kill"]:
        finished(sys.argv[1], Interrupting(4, 3, kill))
    resumed, whole = finished(sys.argv[1]), finished(f"{sys.argv[1]}-whole")
    print([np.array_equal(one, other) for one, other in zip(resumed, whole, strict=True)])
