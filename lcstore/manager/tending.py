"""Retention, compaction and collection beside a training loop, now and then, by a handle of their own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from lcstore.errors import LcstoreError, NotFoundError
from lcstore.retention import Retention
from lcstore.store.store import Store

_log: Final = logging.getLogger("lcstore")

#: Seconds between the end of one and the next, at least; and for each second that the last one took.
_LEAST_PAUSE: Final = 60.0
_PAUSE: Final = 20.0
#: Seconds that a compaction may take; the next one goes on.
_LONGEST: Final = 60.0
#: The part of a grace that lies between two collections: what was let go of within that is left by the next.
_BETWEEN: Final = 1 / 8
#: A compaction that frees fewer bytes is not worth its requests.
_LEAST_FREED: Final = 1 << 16


class Tending:
    """Tends a store in a thread."""

    def __init__(self, opened: Callable[[], Store], keep: Retention) -> None:
        self._opened = opened
        self._keep = keep
        self._thread: threading.Thread | None = None
        self._next = self._next_collection = 0.0
        self._told: set[str] = set()

    def begin(self) -> None:
        """Begin, unless the last time is not over, or not long ago."""
        if self._thread is not None and self._thread.is_alive():
            return
        if time.monotonic() < self._next:
            return
        self._thread = threading.Thread(target=self._run, name="lcstore-tending", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until what was begun is done."""
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._tend()
        except LcstoreError as error:
            _log.warning("letting go of states beside the training waits, and is tried again: %s", error)
        except Exception:
            _log.exception("letting go of states beside the training failed, and is tried again")
        now = time.monotonic()
        self._next = now + max(_LEAST_PAUSE, _PAUSE * (now - began))

    def _tend(self) -> None:
        try:
            opened = self._opened()
        except NotFoundError:  # the first save is still under way
            return
        with opened as store:
            # What was let go of earlier is condemned first, so that what goes now can be brought back.
            if time.monotonic() >= self._next_collection:
                grace = store.collect(spare_recent=True).grace_seconds
                self._next_collection = time.monotonic() + _BETWEEN * grace
            report = store.retain(self._keep)
            for note in report.notes:
                if note not in self._told:
                    _log.warning("letting go of states beside the training: %s", note)
                    self._told.add(note)
            if report.retired and _pays(store):
                store.compact(max_seconds=_LONGEST)


def _pays(store: Store) -> bool:
    """Return whether a compaction writes no more than half of what the store shrinks by because of it.

    What would go without it counts for nothing: what the last one freed is there for a grace more. So a short
    run of which all was merged little by little took three times what it takes without a rule, and one of a
    hundred saves of which three stay twice. Where one is put off, the next has more to free.
    """
    plan = store.planned()
    left = plan.bytes_after + max(_LEAST_FREED, 2 * plan.bytes_written)
    # Seldom is all that goes enough, so seldom is planned twice.
    return left <= plan.bytes_before and left <= store.planned(max_bytes=0).bytes_after
