"""Saves the runs of Hugging Face's Trainer, straight from memory, and has Trainer itself resume them."""

from __future__ import annotations

import dataclasses
import logging
import os
from pathlib import Path
from typing import Any, Final

from transformers import TrainerCallback

from lcstore.errors import InvalidInputError
from lcstore.format.labels import At, Run
from lcstore.integrations.processes import any_of_all, check_unsharded, of_the_first, wait_for_all
from lcstore.integrations.trainer_files import config_of, metrics_of, remove_folders, state_of, write_folder
from lcstore.manager.manager import CheckpointManager
from lcstore.manager.options import check_options
from lcstore.storage.backend import Backend, mapped
from lcstore.store.opening import open_store

_log: Final = logging.getLogger("lcstore")

#: What only the entry at the end of a training has.
_SUMMARY: Final = frozenset({"train_runtime", "train_loss"})
#: Below the output folder: what Trainer resumes from, until it has.
_RESUMES_FROM: Final = "lcstore-resume"


class LcstoreCallback(TrainerCallback):  # type: ignore[misc]
    """Saves a run of Trainer in a store: when it is due, at its end, and before a machine is taken away.

    Trainer needs no checkpoints of its own beside it: give it ``save_strategy="no"``.

    Parameters
    ----------
    url
        Where the store is, as for `lcstore.open`.
    options
        As for `lcstore.CheckpointManager`: ``every``, ``keep``, ``background``, ``policy`` and so on. A step
        is an update of the optimizer, Trainer's ``global_step``.

    Examples
    --------
    ::

        callback = LcstoreCallback("s3://bucket/run", every=100)
        trainer = Trainer(model, args, train_dataset=data, callbacks=[callback])
        trainer.train(resume_from_checkpoint=callback.checkpoint(args.output_dir))
    """

    def __init__(self, url: str | os.PathLike[str] | Backend, **options: Any) -> None:
        self._url = url
        check_options(options, open_store, CheckpointManager.__init__)
        self._options = options
        self._manager: CheckpointManager | None = None
        #: The step that has ended, if it may yet be saved; and the last one that was.
        self._ended: int | None = None
        self._saved = 0
        self._is_told = False
        self._folder: Path | None = None

    def checkpoint(self, output_dir: str | os.PathLike[str], at: At = None, *, run: Run = None) -> str | None:
        """Write a state as a folder for Trainer to resume from, and go on from it.

        The next save is a small delta to that state. The folder is removed once Trainer has resumed.
        Every process of a distributed run calls this, and the first one writes.

        Parameters
        ----------
        output_dir
            Trainer's output folder. The folder is written below it.
        at
            Which state: by default the newest one that is not damaged; a step, ``"best:eval_loss"``, a tag.
        run
            Only of this run, by number or id.

        Returns
        -------
        str or None
            The folder. None where nothing was saved yet: then Trainer begins anew.

        Raises
        ------
        InvalidInputError
            The state was not saved by this callback.
        StorageError
            The folder could not be written: a disk is full.
        """
        return of_the_first(lambda: self._written(Path(output_dir) / _RESUMES_FROM, at, run))

    def _written(self, where: Path, at: At, run: Run) -> str | None:
        manager = self._open()
        resumed = manager.resume(at, run=run)
        if resumed is None:
            return None
        remove_folders(where)
        self._folder = where / f"checkpoint-{resumed.step}"
        described = manager.store.info(manager.store.node)
        with mapped("write", str(self._folder)):
            write_folder(self._folder, resumed.state, described.metadata)
        return str(self._folder)

    def close(self) -> None:
        """Wait for the save under way, and listen for SIGTERM no longer.

        The end of a training does so. Call it where one ended by an error and the program goes on.

        Raises
        ------
        LcstoreError
            A save in the background failed, and nobody has heard of that yet.
        """
        manager, self._manager = self._manager, None
        if manager is not None:
            manager.close()

    def _open(self) -> CheckpointManager:
        if self._manager is None:
            self._manager = CheckpointManager(self._url, **self._options)
        return self._manager

    # What Trainer calls ----------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Open the store; refuse what cannot be kept."""
        check_unsharded([parts["model"]])
        others = sorted(set(state.stateful_callbacks) - {"TrainerControl"})
        if others and getattr(args, "restore_callback_states_from_checkpoint", False):
            raise InvalidInputError(
                f"the states of other callbacks are not kept ({', '.join(others)}): "
                "set restore_callback_states_from_checkpoint=False"
            )
        if getattr(args.save_strategy, "value", args.save_strategy) != "no":
            _log.warning(
                "Trainer writes checkpoints of its own besides: save_strategy='no' leaves them to the store. "
                "The best model is then loaded by hand (docs/transformers.md)"
            )
        self._open()
        self._ended, self._saved, self._is_told = None, state.global_step, False

    def on_step_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Take note of the step, and of word that the machine is about to go."""
        self._ended = state.global_step
        if self._folder is not None and not args.auto_find_batch_size:  # that may begin again with the folder
            self._remove_folder()
        self._ask_all(args.device)
        if self._is_told:  # there may be no time for an evaluation
            control.should_training_stop, control.should_evaluate = True, False

    def on_evaluate(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Look again: an evaluation may take long."""
        if self._ended is not None and not self._is_told:  # it is one of the training
            self._ask_all(args.device)
            control.should_training_stop = control.should_training_stop or self._is_told

    def _ask_all(self, device: Any) -> None:
        """Take note of whether any process was told to end: all of them leave with this step."""
        self._is_told = any_of_all(self._open().has_notice, device)
        if self._is_told:
            self._open().give_notice()

    # A step is over when the next one, or the next epoch, begins: logging and evaluation are done then. These
    # are also the places where Trainer sets the random numbers of a run that it resumes, once it has skipped
    # what was trained on: right before the first step, or before the data of an epoch that begins.

    def on_step_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Save the step before."""
        self._save(state, parts)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Save the last step of the epoch before."""
        self._save(state, parts)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Save at once if the machine is about to go."""
        if self._is_told:
            control.should_evaluate = False
            self._save(state, parts, force=True)

    def on_log(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Save the last step of the run."""
        *history, last = state.log_history
        if last.keys() >= _SUMMARY:  # after it, the best model may be put in the place of the last one
            self._save(dataclasses.replace(state, log_history=history), parts, force=True)

    def on_train_end(self, args: Any, state: Any, control: Any, **parts: Any) -> None:
        """Wait for the last save, and close the store."""
        self._remove_folder()
        if self._is_told:
            # A process that has ended may have the others killed, and the one that saves among them.
            wait_for_all()
        self.close()

    def _save(self, state: Any, parts: dict[str, Any], *, force: bool = False) -> None:
        """Save the step that has ended, if it is due."""
        step, self._ended = self._ended, None
        if step is None or not state.is_world_process_zero:
            return
        if step > state.max_steps:  # Trainer takes a step more where a run that has ended is begun again
            return
        metrics = metrics_of(state.log_history, self._saved)
        config = config_of(parts["model"])

        def made() -> dict[str, Any]:
            return state_of(state, **parts)

        if self._open().save(step, made, force=force, metrics=metrics, metadata=config):
            self._saved = step

    def _remove_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            remove_folders(folder.parent)
