"""Warnings that point at the line of whoever called into this package, be it in another thread."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")

#: What the name of a module of this package begins with; and those that its functions call through.
_OURS: Final = (f"{__package__}.", "contextlib.", "concurrent.futures.")
#: What is noted of warnings, where somebody wants to know.
_notes: Final[ContextVar[tuple[type[Warning], list[str]] | None]] = ContextVar("lcstore-notes", default=None)


class Place(NamedTuple):
    """A line of code that warnings point at."""

    filename: str
    lineno: int
    module: str
    registry: dict[str | tuple[str, type[Warning], int], int]


#: In a thread of a handle: who called into this package, and so had the work begun.
_asker: Final[ContextVar[Place | None]] = ContextVar("lcstore-asker", default=None)


def caller() -> Place | None:
    """Return the line of whoever called into this package, be it in another thread."""
    asker = _asker.get()
    if asker is not None:
        return asker
    frame = sys._getframe(1)
    while f"{frame.f_globals.get('__name__', '')}.".startswith(_OURS):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    known = frame.f_globals.setdefault("__warningregistry__", {})
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__", ""), known)


def asked_by(place: Place | None, run: Callable[[], T]) -> T:
    """Return what a call returns, warnings of it pointing at some line: it runs in a context of its own."""
    _asker.set(place)
    return run()


@contextmanager
def noted(category: type[Warning]) -> Iterator[list[str]]:
    """Yield a list of what this package warns of in the block, be it in threads that work for it."""
    notes: list[str] = []
    before = _notes.set((category, notes))
    try:
        yield notes
    finally:
        _notes.reset(before)


def warn(message: str, category: type[Warning]) -> None:
    """Warn, pointing at the line of whoever called into this package."""
    noted = _notes.get()
    if noted is not None and issubclass(category, noted[0]):
        noted[1].append(message)
    place = caller()
    if place is None:
        warnings.warn(message, category, stacklevel=2)
    else:
        warnings.warn_explicit(message, category, *place)
