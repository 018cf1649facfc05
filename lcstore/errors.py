"""The errors that lcstore raises, grouped by what the caller can do about them.

::

    LcstoreError
    ├── NotFoundError           (KeyError)    ask for something that exists: `lcstore ls URL`
    ├── InvalidInputError       (ValueError)  change the arguments or the state
    ├── CorruptionError                       stored bytes are wrong: `lcstore verify URL`
    │   └── TruncatedError                    ... because they end too early
    ├── UnsupportedFormatError                written by a newer lcstore: upgrade
    ├── LimitError                            a size is past a limit that guards this process
    ├── ConflictError                         another writer got there first: reopen and retry
    ├── ReadOnlyError                         open the store for writing: mode "a" or "r+"
    ├── StorageError                          the target failed: retry, or look at the target
    └── ClosedError                           this handle is finished: open the store again

``kind`` is a stable code for programs; codes are only ever added.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, NamedTuple, TypeVar

T = TypeVar("T")
#: What the name of a module of this package begins with; and one that functions of this package call through.
_OURS = f"{__package__}.", "contextlib."


class LcstoreError(Exception):
    """Base of every error that lcstore raises on purpose.

    Parameters
    ----------
    message
        What happened, to what, and what to do next.
    key
        The stored object concerned, as a path relative to the store's root.
    step
        The training step concerned.
    """

    kind = "error"

    def __init__(self, message: str, *, key: str | None = None, step: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.key = key
        self.step = step

    def __str__(self) -> str:
        parts = [self.message]
        if self.step is not None:
            parts.append(f"step {self.step}")
        if self.key is not None:
            parts.append(f"object {self.key!r}")
        return parts[0] if len(parts) == 1 else f"{parts[0]} [{', '.join(parts[1:])}]"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.key, self.step))


def _rebuild(cls: type[LcstoreError], message: str, key: str | None, step: int | None) -> LcstoreError:
    return cls(message, key=key, step=step)


class NotFoundError(LcstoreError, KeyError):
    """The step, tensor, tag or object asked for does not exist."""

    kind = "not-found"


class InvalidInputError(LcstoreError, ValueError):
    """An argument or a leaf of the state is not something lcstore can take."""

    kind = "invalid-input"


class CorruptionError(LcstoreError):
    """Stored bytes are not what was committed."""

    kind = "corruption"


class TruncatedError(CorruptionError):
    """Stored bytes end before they should."""

    kind = "truncated"


class UnsupportedFormatError(LcstoreError):
    """The bytes are whole, but of a format that this version does not read."""

    kind = "unsupported-format"


class LimitError(LcstoreError):
    """A size is past a limit of :mod:`lcstore.limits`."""

    kind = "limit"


class ConflictError(LcstoreError):
    """Another writer changed what this one stood on."""

    kind = "conflict"


class StorageError(LcstoreError):
    """The storage target failed. ``outcome_unknown`` is true where a write may or may not have landed.

    ``gave_up`` is true where the target was asked as long, or as often, as it may be (`timeout`, `retries`);
    ``volatile`` where what was written can be read, but may not outlive a power cut.
    """

    kind = "storage"
    outcome_unknown = False
    gave_up = False
    volatile = False


class UnknownOutcomeError(StorageError):
    """A write may or may not have landed, and reading back could not settle it."""

    kind = "unknown-outcome"
    outcome_unknown = True


class ReadOnlyError(LcstoreError):
    """This handle was opened for reading: open the store with mode "a" or "r+"."""

    kind = "read-only"


class ClosedError(LcstoreError):
    """The handle was closed."""

    kind = "closed"


class UnrecognisedWarning(UserWarning):
    """Names in a state and in a policy do not meet: most of it is plain, or a rule is for nothing."""


class FallbackWarning(UserWarning):
    """What was read is damaged: another path was taken, or an earlier state given as was asked for."""


class BesideWarning(UserWarning):
    """A run was begun anew in a store that holds other runs: to go on from one of those, resume it."""


class DamageWarning(UserWarning):
    """What a run stands on is missing or condemned: it was saved such that this does no more harm."""


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


def warn(message: str, category: type[Warning]) -> None:
    """Warn, pointing at the line of whoever called into this package."""
    place = caller()
    if place is None:
        warnings.warn(message, category, stacklevel=2)
    else:
        warnings.warn_explicit(message, category, *place)
