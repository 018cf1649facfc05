"""Whose turn it is among threads that ask for places of one walk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lcstore.futures import Condition


class Turns:
    """Lets one caller in at a time: of those that wait, the one with the first place.

    Who reads an array asks for many places at once, and threads come in any order. From one place to the next
    it is about one edge, from a place to one far from it many.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: list[int] = []
        self._last = -2
        self._is_taken = False

    @contextmanager
    def at(self, place: int) -> Iterator[int]:
        """Wait for the turn of a place; yield the place that had its turn before, -2 at first."""
        with self._changed:
            self._waiting.append(place)
            self._changed.wait_for(lambda: not self._is_taken and place == min(self._waiting))
            self._waiting.remove(place)
            self._is_taken, before = True, self._last
        try:
            yield before
        finally:
            with self._changed:
                self._is_taken, self._last = False, place
                self._changed.notify_all()
