"""The last save before a machine is taken away: whether there is time to store every bit of a state."""

from __future__ import annotations

from typing import Final

from lcstore.write.saveinfo import SaveInfo

#: How much longer a save may take than was measured.
_SLACK: Final = 1.5
#: How much longer a save of every bit takes than one of a delta, where none was measured.
_EXACT_TAKES: Final = 4.0


class LastSave:
    """What saves of a loop took, and a resume.

    Parameters
    ----------
    grace
        Seconds from a notice on until the machine is gone.
    """

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

    def can_be_exact(self, waited: float) -> bool:
        """Return whether every bit can be saved in time, so many seconds after a notice, as was measured."""
        if self._exact is not None:
            seconds = self._exact.seconds["total"]
        elif self._any is not None:
            seconds = max(_EXACT_TAKES * self._any.seconds["total"], self._whole)
        else:  # a first save stores every bit anyway, and one after a resume as much as that has read
            seconds = _EXACT_TAKES * self._whole
        return seconds * _SLACK <= self._grace - waited
