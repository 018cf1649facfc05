"""What one process does with checkpoints: states are saved and resumed, and files are made to name them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from lcstore.errors import FallbackWarning, InvalidInputError, NotFoundError
from lcstore.integrations import lightning_state as states
from lcstore.integrations.lightning_jobs import Jobs
from lcstore.integrations.lightning_names import Names
from lcstore.integrations.lightning_pointer import (
    Pointer,
    folder_of,
    make_folder,
    read_pointer,
    write_pointer,
)
from lcstore.ranks import RankOfHandle
from lcstore.store.opening import open_store
from lcstore.warned import warn

_log: Final = logging.getLogger("lcstore")

#: After so many states that went to one file only, no hash is made, which tells that a second is the same.
_SINGLE: Final = 3
_CURE: Final = (
    ". In Lightning: leave it out of the hyperparameters by save_hyperparameters(ignore=[...]), or have "
    "state_dict() of the callback or data module, or on_save_checkpoint, give data"
)


@dataclass
class _Saved:
    """The last save: its step, the folder of its files, a hash of the state, and its node, once there."""

    step: int
    folder: str
    content: bytes | None
    node: Callable[[], str]
    failed: bool = False


class Session:
    """A store that is open, and the files that name its states.

    Parameters
    ----------
    url, options
        As for `lcstore.open`.
    background
        Whether states are committed, and files written, in the background.
    """

    def __init__(self, url: Any, options: Mapping[str, Any], *, background: bool) -> None:
        self.store = open_store(url, **options)
        self.store.looks_at_steps = False  # two callbacks may save one step
        self.jobs = Jobs(background=background)
        self._background = background
        self._options = options
        self._names = Names(self.store)
        self._last: _Saved | None = None
        self._single, self._rank = 0, RankOfHandle()

    # Saving ----------------------------------------------------------------------------------------------

    def save(self, checkpoint: Mapping[str, Any], path: str, labels: Mapping[str, Any]) -> None:
        """Save a checkpoint, unless it was saved last, to another file beside; have its file name it."""
        self.jobs.check()
        state, notes = states.stored(checkpoint), states.notes_of(checkpoint)
        step, folder = int(checkpoint["global_step"]), folder_of(path)
        last = self._last
        again = last is not None and (last.step, last.folder) == (step, folder)
        self._single = 0 if again else self._single + 1
        content = states.digest(state, notes) if self._single <= _SINGLE and not labels else None
        if last is None or not again or last.failed or content is None or last.content != content:
            labels = {"metrics": states.metrics_of(checkpoint, path), **labels}
            self._last = last = _Saved(step, folder, content, self._begin(step, state, labels))
            self._stand_in(path, step)
        self.jobs.do(self._point, path, last, notes)

    def _begin(self, step: int, state: Any, labels: Mapping[str, Any]) -> Callable[[], str]:
        """Begin a save; return what waits for its node."""
        self.jobs.wait()
        try:
            if self._background:
                future = self.store.save_async(step, state, **labels)
                return lambda: future.result().node
            node = self.store.save(step, state, **labels).node
        except InvalidInputError as error:
            raise InvalidInputError(f"{error.message}{_CURE}", step=step) from error
        return lambda: node

    def _stand_in(self, path: str, step: int) -> None:
        """Have a new file name the state before, until its own is there: Lightning may link to it at once."""
        if not self._background:
            return
        fs, name = make_folder(path)
        newest = self._names.newest
        if newest is not None and not fs.exists(name):
            write_pointer(path, replace(newest, instead_of=step))

    def _point(self, path: str, saved: _Saved, notes: dict[str, Any]) -> None:
        try:
            node = saved.node()
        except BaseException:
            if saved.failed:
                return  # it was told already, by the first of its files
            saved.failed = True
            raise
        self._names.point(path, node, saved.step, notes)

    def remove(self, path: str, otherwise: Callable[[str], None]) -> None:
        """Remove a pointer, and its state with the last; what is no pointer is removed `otherwise`.

        After a save that failed nothing is removed.
        """
        self.jobs.check()
        self.jobs.do(self._remove, path, self._last, otherwise)

    def _remove(self, path: str, after: _Saved | None, otherwise: Callable[[str], None]) -> None:
        if after is not None and after.failed:
            _log.warning("%s is kept, as the save before failed that would have taken its place", path)
        else:
            self._names.remove(path, otherwise)

    # Loading ---------------------------------------------------------------------------------------------

    def load(self, path: str, map_location: Any) -> dict[str, Any] | None:
        """Return the checkpoint that a pointer names, and go on from it; None where there is no pointer."""
        self.jobs.wait()
        pointer = read_pointer(path)
        if pointer is None:
            return None
        if pointer.instead_of is not None:
            warn(
                f"{path} was to be step {pointer.instead_of}, but its save did not end: this is step "
                f"{pointer.step}, which was saved before",
                FallbackWarning,
            )
        checkpoint = states.given(self._state(pointer, path), states.placed(map_location))
        if checkpoint["global_step"] != pointer.step:  # it stands in for one that is damaged
            return checkpoint
        return states.with_notes(checkpoint, pointer.notes)

    def _state(self, pointer: Pointer, path: str) -> Any:
        """Return the state that a pointer names: of this store, wherever that was, or of the one it says."""
        try:
            self.store.info(pointer.node)
        except NotFoundError:
            return self._elsewhere(pointer, path)
        if self._rank.number:  # another process saves
            return self.store.restore(pointer.node, on_corrupt="previous")
        # Of the latest state the same training goes on: it is not kept for being that, once there is a newer.
        at = None if self.store.info().node == pointer.node else pointer.node
        state = self.store.resume(at, on_corrupt="previous")
        if at is None and self.store.node != pointer.node:  # another training has saved meanwhile
            state = self.store.resume(pointer.node, on_corrupt="previous")
        self._last, self._names.newest = None, replace(pointer, store=self.store.url, instead_of=None)
        return state

    def _elsewhere(self, pointer: Pointer, path: str) -> Any:
        near = self.store.url.partition("://")[0] == pointer.store.partition("://")[0]
        options = self._options.get("storage_options") if near else None
        try:
            with open_store(pointer.store, "r", storage_options=options) as other:
                return other.restore(pointer.node, on_corrupt="previous")
        except NotFoundError as error:
            raise NotFoundError(
                f"{path} names node {pointer.node} of {pointer.store}, which is not there, nor in "
                f"{self.store.url}: it was let go of and deleted, or the store was moved. `lcstore ls` shows "
                "what a store holds",
                step=pointer.step,
            ) from error
