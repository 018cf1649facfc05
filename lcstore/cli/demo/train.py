"""The training process of the demo: it saves every few steps, and may be told when it is going to die."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lcstore.cli.demo.network import Parameters, adam, digits, gradients, loss_of, new_parameters
from lcstore.errors import LcstoreError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from lcstore.store.store import Store
    from lcstore.testing import Operation

_BATCH = 128
_RATE = 5e-5
#: Strength of the noise on the images: it keeps the task hard enough for a loss that goes on falling.
_NOISE = np.float32(0.4)
#: The loss is always measured on the first so many images, without noise.
_MEASURED = 768


@dataclass(frozen=True)
class Training:
    """What the training process is to do.

    Attributes
    ----------
    url, storage_options, policy
        Of the store.
    steps, every
        How many steps to take in all, and how many from save to save.
    hidden, seed
        Size of the network, and where its randomness begins.
    dies_at
        The step in whose save it waits to be killed: when all is written but the record that commits it.
    goal
        Resume, and measure the loss at every step until it is down to this.
    """

    url: str
    steps: int
    every: int
    hidden: int
    seed: int
    policy: str = "balanced"
    storage_options: dict[str, Any] = field(default_factory=dict)
    dies_at: int | None = None
    goal: float | None = None


def run(training: Training, events: Connection) -> None:
    """Train, telling `events` what happens. The entry point of the process."""
    try:
        _Run(training, events).train()
        events.send({"event": "done"})
    except LcstoreError as error:
        events.send({"event": "error", "error": error})
    except (BrokenPipeError, KeyboardInterrupt):
        return  # the parent is gone, or going: it says what there is to say


class _Run:
    """One life of the training process."""

    def __init__(self, training: Training, events: Connection) -> None:
        self.training = training
        self.events = events
        self.images, self.labels = digits()
        self.rng = np.random.default_rng(training.seed)
        self.step = 0
        self.parameters: Parameters = {}
        self.moments: dict[str, Any] = {}

    def train(self) -> None:
        from lcstore.storage.targets import open_backend
        from lcstore.store.opening import open_store
        from lcstore.testing import FaultBackend

        backend = open_backend(self.training.url, self.training.storage_options)
        # Nothing fails here: the backend only asks `_dies` before everything that it does.
        watched = FaultBackend(backend, {self._dies: "crash_before"})
        with open_store(watched, policy=self.training.policy) as store:
            if self.training.goal is None:
                self._begin()
                self._save(store)
            else:
                self._resume(store)
            self._go_on(store, self.training.goal)

    def _begin(self) -> None:
        self.parameters = new_parameters(self.training.hidden, self.rng)
        first, second = ({k: np.zeros_like(v) for k, v in self.parameters.items()} for _ in range(2))
        self.moments = {"m": first, "v": second, "step": 0}

    def _resume(self, store: Store) -> None:
        began = time.perf_counter()
        state = store.resume()
        seconds = time.perf_counter() - began
        self.step, self.parameters, self.moments = state["step"], state["model"], state["adam"]
        self.rng.bit_generator.state = state["rng"]
        self._tell("restored", loss=self._loss(), seconds=seconds)

    def _go_on(self, store: Store, goal: float | None) -> None:
        while self.step < self.training.steps:
            self._train_one()
            if goal is not None:
                loss = self._loss()
                self._tell("recovering", loss=loss)
                goal = None if loss <= goal else goal
            if self.step % self.training.every == 0:
                self._save(store)

    def _train_one(self) -> None:
        chosen = self.rng.integers(0, len(self.images), _BATCH)
        noise = self.rng.standard_normal((_BATCH, self.images.shape[1]), dtype=np.float32)
        batch = self.images[chosen] + _NOISE * noise
        adam(self.parameters, gradients(self.parameters, batch, self.labels[chosen]), self.moments, _RATE)
        self.step += 1

    def _save(self, store: Store) -> None:
        loss = self._loss()
        self._tell("saving", loss=loss)
        info = store.save(self.step, self._state(), metrics={"loss": loss})
        self._tell("saved", loss=loss, seconds=info.seconds["total"])

    def _state(self) -> dict[str, Any]:
        epoch = self.step * _BATCH // len(self.images)
        return {
            "model": self.parameters,
            "adam": self.moments,
            "rng": self.rng.bit_generator.state,
            "step": self.step,
            "epoch": epoch,
        }

    def _loss(self) -> float:
        return loss_of(self.parameters, self.images[:_MEASURED], self.labels[:_MEASURED])

    def _tell(self, event: str, **facts: float) -> None:
        self.events.send({"event": event, "step": self.step, **facts})

    def _dies(self, operation: Operation) -> bool:
        """Wait to be killed, if the commit of the chosen step is what comes next."""
        commit = operation.name == "put" and operation.key.startswith("nodes/")
        if commit and self.step == self.training.dies_at:
            self._tell("dying")
            time.sleep(600)
        return False
