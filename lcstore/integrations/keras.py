"""A callback of Keras 3 that saves while `fit` trains, and goes on where an earlier `fit` was."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import keras

from lcstore.errors import InvalidInputError, NotFoundError
from lcstore.integrations.keras_state import WEIGHTS, ModelState
from lcstore.manager.manager import CheckpointManager
from lcstore.manager.options import check_options
from lcstore.manager.random_state import RandomState
from lcstore.manager.schedule import ScheduleLike, schedule_from
from lcstore.retention.base import mode_of
from lcstore.storage.backend import Backend
from lcstore.store.opening import open_store
from lcstore.store.store import Store

__all__ = ["LcstoreCallback", "ModelState"]

_log: Final = logging.getLogger("lcstore")
_OURS: Final = frozenset({"model", "random", "epoch"})


class LcstoreCallback(keras.callbacks.Callback):  # type: ignore[misc]  # it has no types
    """Saves while `fit` trains; when training begins, goes on from the latest state, if there is one.

    Give it as the last of the callbacks, so that it saves what the others changed. The step of a state is the
    number of batches that were trained until then.

    Parameters
    ----------
    url
        As for `lcstore.open`.
    every
        ``"epoch"``: at the end of each epoch. Or what `CheckpointManager` takes, where steps are batches:
        ``1000``, ``"10min"``, `Overhead` and so on. The last epoch's end is saved in any case.
    monitor
        The metric that says which state is the best.
    mode
        Which value of it is the best; if not given, the least.
    parts
        What is saved and loaded besides, by name: objects with ``state_dict`` and ``load_state_dict``.
    options
        Passed on to `CheckpointManager`: ``keep``, ``background``, ``preempted``, ``policy``,
        ``storage_options`` and so on.

    Raises
    ------
    InvalidInputError
        `every` is no schedule, a part has a name that is taken, or no mode is given for a metric of which, by
        its name, more is better.

    Examples
    --------
    ::

        checkpoint = LcstoreCallback("runs/keras", keep="latest:5 | best:1:val_loss")
        model.fit(x, y, validation_split=0.1, epochs=50, callbacks=[checkpoint])
        checkpoint.load_best(model)
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Backend,
        *,
        every: ScheduleLike = "epoch",
        monitor: str = "val_loss",
        mode: Literal["min", "max"] | None = None,
        parts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_options(options, open_store, CheckpointManager.__init__)
        self._within = every != "epoch"
        self._every = schedule_from(every if self._within else 1)
        self._url = url
        self._options = options
        self._best_at = f"best:{monitor}:{mode_of(monitor, mode)}"
        self._monitor = monitor
        self._parts = dict(parts or {})
        if not _OURS.isdisjoint(self._parts):
            raise InvalidInputError("a part cannot be called model, random or epoch: name it otherwise")
        self._manager: CheckpointManager | None = None
        #: Batches that were trained before this epoch, and in it when the last one of them began.
        self._before = self._begun = 0
        self._epoch = 0
        self._left = False

    # What Keras calls ------------------------------------------------------------------------------------

    def on_train_begin(self, logs: Mapping[str, Any] | None = None) -> None:
        """Load the latest state, and have `fit` go on with its epoch."""
        self.close()
        self._manager = CheckpointManager(self._url, every=self._every, **self._options)
        try:
            resumed = self._manager.resume_into(self._state())
        except BaseException:
            self.close()
            raise
        self._left = False
        self._before = 0 if resumed is None else resumed.step
        # This is how Keras's own BackupAndRestore says where to begin.
        self.model._initial_epoch = None if resumed is None else resumed.state["epoch"]
        if resumed is not None:
            _log.info("resumed after %d batches, with epoch %d", resumed.step, resumed.state["epoch"])

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Take note of the epoch."""
        self._epoch, self._begun = epoch, 0
        self.model._initial_epoch = None  # it was taken in, and is not for the next `fit`

    def on_train_batch_begin(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Save what the batches until this one made, if it is due; leave, if the machine goes."""
        # Not when a batch ends: that would have Keras wait for the metrics of each.
        self._begun = batch
        if self._left:
            return
        leaves = self._opened.has_notice
        if leaves or (self._within and batch):
            self._offer(batch, self._epoch, lambda: self.model.get_metrics_result())
        if leaves:
            self._leave()

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Save, if it is due."""
        if self._left:
            return
        steps, stops = self.params.get("steps"), self.model.stop_training
        batches = self._begun + self.model.steps_per_execution
        batches = min(batches, steps) if steps else batches
        broken = stops and steps and batches < steps  # the epoch is begun again then
        last = stops or epoch + 1 == self.params.get("epochs")
        self._offer(batches, epoch if broken else epoch + 1, lambda: logs or {}, force=last)
        self._before += batches
        if self._opened.reached_preemption():
            self._leave()

    def on_train_end(self, logs: Mapping[str, Any] | None = None) -> None:
        """Wait until what was saved is there; errors are raised here at the latest."""
        self.model._initial_epoch = None
        self.close()

    def _state(self) -> dict[str, Any]:
        return {"model": ModelState(self.model), **self._parts, "random": RandomState()}

    def _offer(
        self, batches: int, epoch: int, metrics: Callable[[], Mapping[str, Any]], *, force: bool = False
    ) -> None:
        """Save after so many batches of the epoch, if it is due; a resumed run begins with `epoch`."""
        step = self._before + batches
        if force or self._opened.should_save(step):
            state = {**self._state(), "epoch": epoch}
            numbers = _numbers(metrics())
            self._opened.save(step, state, metrics=numbers, force=True, metadata={"epoch": epoch})

    def _leave(self) -> None:
        self._left = True
        self.model.stop_training = True

    # Beside training -------------------------------------------------------------------------------------

    @property
    def _opened(self) -> CheckpointManager:
        assert self._manager is not None, "training has not begun"
        return self._manager

    def close(self) -> None:
        """End saving: only needed where `fit` raised and the program goes on, since its end does this."""
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    @property
    def best(self) -> float | None:
        """The best value of the monitored metric over all runs of the store; None before there is one."""
        try:
            with self._store() as store:
                return store.info(self._best_at).metrics[self._monitor]
        except NotFoundError:
            return None

    def load_best(self, model: Any) -> int:
        """Load the weights of the best state into a model, but not its optimizer; return its step.

        They are off by the error of the policy, and so is their loss.
        """
        with self._store() as store:
            found = store.at(self._best_at)
            ModelState(model).load_weights(found.tree(names=[f"model/{name}" for name in WEIGHTS])["model"])
            return found.step

    def _store(self) -> Store:
        given = {name: self._options[name] for name in ("storage_options",) if name in self._options}
        return open_store(self._url, "r", **given)


def _numbers(logs: Mapping[str, Any]) -> dict[str, float]:
    """Return what numbers there are among the metrics of Keras."""
    found = {name: keras.ops.convert_to_numpy(value) for name, value in logs.items()}
    return {name: float(value) for name, value in found.items() if value.ndim == 0}
