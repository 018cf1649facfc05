"""The last save before a machine is taken away: whether there is time to store every bit of a state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from lcstore.errors import StorageError
from lcstore.write.saveinfo import SaveInfo

_log: Final = logging.getLogger("lcstore")
#: How much longer a save may take than was measured.
_SLACK: Final = 1.5
#: How much longer a save of every bit takes than one of a delta, where none was measured.
_EXACT_TAKES: Final = 4.0


class LastSave:
    """What saves of a loop took, and a resume. Its grace: seconds from a notice on until the machine goes."""

    def __init__(self, grace: float) -> None:
        self._grace = grace
        #: Seconds that a whole state took to be resumed, or stored: over a slow target a delta tells less.
        self._whole = 0.0
        self._any: SaveInfo | None = None
        self._exact: SaveInfo | None = None

    def resumed(self, seconds: float) -> None:
        """Remember what a resume took."""
        self._whole = seconds

    def saved(self, info: SaveInfo) -> None:
        """Remember what a save took."""
        if info.kind != "skipped":  # which says nothing of how long a save takes
            self._any = info
            self._whole = info.seconds["total"] if info.kind == "anchor" else self._whole
            self._exact = info if info.exact else self._exact

    def commit(self, save: Callable[..., SaveInfo], asked: bool | None, waited: float) -> SaveInfo:
        """Save the last state: every bit of it, if there is time, and room where it is stored; else a delta.

        Parameters
        ----------
        save
            Saves the state; every bit where ``exact`` is true.
        asked
            What the loop says itself; None leaves it to this.
        waited
            Seconds since notice.
        """
        exact = self.can_be_exact(waited) if asked is None else asked
        try:
            return save(exact=exact)
        except StorageError as error:
            if asked is not None or not exact or error.reason != "full":
                raise
            _log.warning("no room for every bit of the last state, which is saved as a delta: %s", error)
            return save(exact=False)

    def can_be_exact(self, waited: float) -> bool:
        """Return whether every bit can be saved in time, so many seconds after a notice, as was measured."""
        seconds, left = self._exact_takes() * _SLACK, self._grace - waited
        if seconds > left:
            _log.info("no time for every bit of the last state: %.1f s, and %.1f s are left", seconds, left)
        return seconds <= left

    def _exact_takes(self) -> float:
        if self._exact is not None:
            return self._exact.seconds["total"]
        if self._any is not None:
            return max(_EXACT_TAKES * self._any.seconds["total"], self._whole)
        # A first save stores every bit anyway, and one after a resume as much as that has read.
        return _EXACT_TAKES * self._whole
