"""What becomes of the saves of a loop, and who is told of those that were committed."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from types import TracebackType

from lcstore.errors import NotFoundError
from lcstore.manager.lastsave import LastSave
from lcstore.store.saver import SaveFuture
from lcstore.store.store import Store
from lcstore.write.saveinfo import SaveInfo, saved_of


class Landed:
    """Takes in what became of each save, and then tells an observer of those that were committed, each once.

    The observer is called when all else is done: what it raises costs no state, and it may save by itself.

    Parameters
    ----------
    store
        Where the states are.
    last_save
        Learns what a save takes.
    on_saved
        The observer, if there is one.

    Attributes
    ----------
    last
        The step that was resumed, or saved last, or skipped. None where that failed and none came before.
    """

    def __init__(
        self, store: Store, last_save: LastSave, on_saved: Callable[[SaveInfo], object] | None
    ) -> None:
        self._store = store
        self._last_save = last_save
        self._on_saved = on_saved
        self.last: int | None = None
        self._committed: int | None = None
        self._future: SaveFuture | None = None
        self._untold: deque[tuple[Callable[[SaveInfo], object], SaveInfo]] = deque()
        self._tells = False
        #: What the store stood on before a save that was interrupted, and the seconds that it took.
        self._interrupted: tuple[str | None, float] | None = None

    def begin(self, step: int, begin: Callable[[], SaveFuture]) -> None:
        """Begin to save a step in the background."""
        with self._until_interrupted():
            self._future, self.last = begin(), step  # both or none of them

    def save(self, step: int, save: Callable[[], SaveInfo]) -> SaveInfo:
        """Save a step while the loop waits, and take in what became of it."""
        with self._until_interrupted():
            info = save()
        self.last = step
        self._note(info)
        return info

    @contextmanager
    def _until_interrupted(self) -> Iterator[None]:
        """Have the next call look at a save that is interrupted: the state may be there, or be so soon."""
        before, began = self._store.node, time.perf_counter()
        try:
            yield
        except Exception:
            raise
        except BaseException:
            self._interrupted = before, time.perf_counter() - began
            raise

    def _look(self) -> None:
        """Take in the save that was interrupted, if its state is there."""
        if self._interrupted is None:
            return
        (before, seconds), node = self._interrupted, self._store.node
        self._interrupted = None
        if node is None or node == before:
            return
        with suppress(NotFoundError):
            info = saved_of(self._store.info(node), seconds)
            self.last = info.step
            self._note(info)

    def resumed(self, step: int) -> None:
        """Take in that the loop goes on from a step."""
        self.last = self._committed = step

    def _note(self, info: SaveInfo) -> None:
        self._interrupted = None
        self._last_save.saved(info)
        if info.kind != "skipped":
            self._committed = info.step
            if self._on_saved is not None:
                self._untold.append((self._on_saved, info))

    def is_there(self, step: int) -> bool:
        """Return whether a step is the one saved last; that is waited for, as it may be skipped, or fail."""
        if step == self.last:
            self.wait()
        return step == self.last == self._committed

    def wait(self) -> None:
        """Wait for the save under way; raise what it failed with, if nobody has heard of that yet."""
        try:
            self._store.wait()
        except Exception:
            self._interrupted = None  # whose state is not there
            raise
        finally:
            self._hear()
        self._look()

    def catch_up(self) -> None:
        """Take in all that ended; wait, as `wait` does, for nothing but what an interrupt came in."""
        if self._interrupted is not None or not self._store.is_saving:
            self.wait()

    def _hear(self) -> None:
        """Take in the save in the background, if it ended: an interrupt may leave it under way."""
        future = self._future
        if future is None or not future.done():
            return
        if Future.exception(future) is None:  # as the base class has it: nobody heard of a failure by this
            self._note(future.result())
        else:
            self.last = self._committed  # the step that failed may be saved once more
        self._future = None  # at last: an interrupt before that has it be heard once more

    def tell(self) -> bool:
        """Tell of what is untold; return whether there was something. What the observer raises is raised."""
        if self._tells or not self._untold:  # an observer that saves is told of that when it returns
            return False
        try:
            self._tells = True
            while self._untold:
                observer, info = self._untold.popleft()
                observer(info)
        finally:
            self._tells = False
        return True

    def end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store as the end of a ``with`` block does; tell of what was saved last before."""
        try:
            self._tell_all()
        except Exception as failure:
            if error is None:
                raise
            error.add_note(f"Besides, on_saved failed: {failure!r}")
        finally:
            self._store.__exit__(kind, error, trace)

    def _tell_all(self) -> None:
        """Tell of all that was saved, and of what an observer saves then."""
        try:
            if self._interrupted is not None:
                self.wait()
        finally:
            self.tell()
            while self._future is not None:
                Future.exception(self._future)  # waits; of a failure nobody has heard by this
                self._hear()
                self.tell()
