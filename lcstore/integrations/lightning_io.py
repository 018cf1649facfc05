"""What both namespaces of Lightning share: states go to a store, pointers to where Lightning looks."""

from __future__ import annotations

import os
import sys
from typing import Any, ClassVar, Final

from lcstore.errors import LcstoreError
from lcstore.integrations.lightning_session import Session
from lcstore.storage.backend import Backend
from lcstore.store.store import Store

#: What the names of files begin with that ``Tuner`` and its callbacks load and remove after a trial.
_OF_TUNERS: Final = (".lr_find_", ".scale_batch_size_")


class StoredCheckpoints:
    """Saves checkpoints of Lightning to a store: ``Trainer(plugins=[LcstoreCheckpointIO(url)])``.

    At the path that Lightning gives, it leaves a *pointer*: a small file that names a state of the store.
    What is no pointer is loaded and removed as Lightning does. A state goes when the last pointer of its
    folder that names it does. A state that is saved to several files of a folder is stored once.

    Parameters
    ----------
    url
        As for `lcstore.open`.
    background
        Whether training goes on while a checkpoint is coded and stored. It waits for a copy of it then.
    options
        Passed on to `lcstore.open`: ``policy``, ``storage_options``, ``durability`` and so on.

    Notes
    -----
    With `background` a failure is raised by the next save, load or removal, or at the end of `Trainer.fit`.
    Until a state is there, its file names the one before it, and whatever was to be removed after it stays.
    """

    #: The plugin of the namespace that reads and writes files of ``torch.save``.
    files: ClassVar[Any]

    def __init__(
        self, url: str | os.PathLike[str] | Backend, *, background: bool = False, **options: Any
    ) -> None:
        self._given = (url, background, options)
        self._session: Session | None = None
        self._here()

    def _here(self) -> Session:
        """Return the session of this process: a handle does not go along into another one."""
        if self._session is None or self._session.jobs.is_foreign:
            url, background, options = self._given
            self._session = Session(url, options, background=background)
        return self._session

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs: it opens the store itself."""
        return {"_given": self._given, "_session": None}

    @property
    def store(self) -> Store:
        """The store, for all else."""
        return self._here().store

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any = None
    ) -> None:
        """Save a checkpoint as a state of its ``global_step``, and leave a pointer to it.

        Parameters
        ----------
        checkpoint
            What Lightning gives. What has no ``global_step`` is no checkpoint of a run: it is saved as
            Lightning does. So are files of its tuners, which put back the very state that they took.
        path
            Where the pointer goes.
        storage_options
            Passed on to `Store.save`: ``exact``, ``tags``, ``metrics`` and so on.

        Raises
        ------
        InvalidInputError
            Something in it is no data; the message says where it lies, and what to do.
        LcstoreError
            As of `Store.save`; or the save before failed in the background: then this one did not begin.
        """
        session = self._here()
        if "global_step" in checkpoint and not os.path.basename(path).startswith(_OF_TUNERS):
            session.save(checkpoint, os.fspath(path), dict(storage_options or {}))
        else:
            self.files().save_checkpoint(checkpoint, path, storage_options)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return the checkpoint that was saved to a path; the next save goes on from it.

        Parameters
        ----------
        path
            Of a pointer to this store or another, or of a file of ``torch.save``.
        map_location
            As for ``torch.load``; the CPU if None.
        weights_only
            For a file of ``torch.save``. In a store there is nothing but data.

        Raises
        ------
        NotFoundError
            The pointer names a state that is not there any more.
        """
        found = self._here().load(os.fspath(path), map_location)
        if found is not None:
            return found
        how = {"map_location": map_location, "weights_only": weights_only}
        given = {name: value for name, value in how.items() if value is not None}
        loaded: dict[str, Any] = self.files().load_checkpoint(path, **given)
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a pointer, and let go of its state if no other pointer of the folder names it."""
        self._here().remove(os.fspath(path), self.files().remove_checkpoint)

    def teardown(self) -> None:
        """Wait for what is under way; the store stays open.

        Raises
        ------
        LcstoreError
            A save in the background failed, and nobody has heard of that yet. Where another error is on its
            way already, that one has a note of it.
        """
        raised = sys.exception()
        try:
            self._here().jobs.wait()
        except LcstoreError as error:
            if raised is None:
                raise
            raised.add_note(f"Besides, a checkpoint was not saved in the background: {error}")
