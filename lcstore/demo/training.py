"""The training process of the demo: it saves every few steps, and kills itself in the middle of one save."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lcstore.demo.network import adam, digits, gradients, loss_of, new_parameters
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
    """What a training process is to do: `dies_at` is the step in whose save it kills itself."""

    url: str
    steps: int
    every: int
    hidden: int
    seed: int
    storage_options: dict[str, Any] = field(default_factory=dict)
    dies_at: int | None = None


def run(training: Training, events: Connection) -> None:
    """Train, telling `events` what happens. The entry point of the process."""
    from threadpoolctl import threadpool_limits  # scikit-learn brings it

    try:
        # Threads of linear algebra are in each other's way on a small network.
        with threadpool_limits(1):
            _Life(training, events).live()
    except LcstoreError as error:
        events.send({"event": "error", "error": error})
    except (BrokenPipeError, KeyboardInterrupt):
        return  # the parent is gone, or going: it says what there is to say


class _Life:
    """One life of the training process: it resumes from the store, or begins where that is empty."""

    def __init__(self, training: Training, events: Connection) -> None:
        self.training = training
        self.events = events
        self.images, self.labels = digits()
        self.rng = np.random.default_rng(training.seed)
        model = new_parameters(training.hidden, self.rng)
        first, second = ({name: np.zeros_like(value) for name, value in model.items()} for _ in range(2))
        moments = {"m": first, "v": second, "step": 0}
        self.state: dict[str, Any] = {
            "model": model,
            "adam": moments,
            "rng": self.rng.bit_generator.state,
            "step": 0,
        }

    def live(self) -> None:
        from lcstore.storage.targets import open_backend
        from lcstore.store.opening import open_store
        from lcstore.testing import FaultBackend

        backend = open_backend(self.training.url, self.training.storage_options)
        with open_store(FaultBackend(backend, {self._dies: "crash_before"})) as store:
            if store.latest_step() is None:
                self._save(store)
            else:
                self._resume(store)
            while self.state["step"] < self.training.steps:
                self._train_one()
                if self.state["step"] % self.training.every == 0:
                    self._save(store)

    def _resume(self, store: Store) -> None:
        self.state = store.resume()
        self.rng.bit_generator.state = self.state["rng"]
        self._tell("restored")

    def _train_one(self) -> None:
        model, chosen = self.state["model"], self.rng.integers(0, len(self.images), _BATCH)
        noise = self.rng.standard_normal((_BATCH, self.images.shape[1]), dtype=np.float32)
        slopes = gradients(model, self.images[chosen] + _NOISE * noise, self.labels[chosen])
        adam(model, slopes, self.state["adam"], _RATE)
        self.state |= {"step": self.state["step"] + 1, "rng": self.rng.bit_generator.state}

    def _save(self, store: Store) -> None:
        loss = self._tell("saving")
        info = store.save(self.state["step"], self.state, metrics={"loss": loss})
        self._tell("saved", seconds=info.seconds["total"])

    def _tell(self, event: str, **facts: float) -> float:
        """Send the parent what happened, and the loss; return the loss."""
        loss = loss_of(self.state["model"], self.images[:_MEASURED], self.labels[:_MEASURED])
        self.events.send({"event": event, "step": self.state["step"], "loss": loss, **facts})
        return loss

    def _dies(self, operation: Operation) -> bool:
        """Kill this process if the commit of the chosen step is what comes next; otherwise let it be."""
        commit = operation.name == "put" and operation.key.startswith("nodes/")
        if commit and self.state["step"] == self.training.dies_at:
            # Nothing in the process can catch it; on Windows any signal ends a process so.
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return False
