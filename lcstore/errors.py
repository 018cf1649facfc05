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

import errno
import re
from typing import Final, Literal, TypeAlias

#: What was asked for and is not there.
Missing: TypeAlias = Literal["store", "run", "state", "tensor", "tag", "metric"]
#: Why a target failed, where that is known.
Reason: TypeAlias = Literal["full", "denied", "read-only", "timeout"]

# What says that a target has no room left, or no more of it for this user.
FULL: Final = frozenset([errno.ENOSPC, errno.EDQUOT])
# What servers answer with to whom they do not let in; and what clients call that number.
_DENIED: Final = (401, 403)
_STATUS: Final = ("status", "status_code", "code")


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

    @property
    def next(self) -> str | None:
        """The command to run next, where the message names one; words in capitals stand for what you know."""
        found = re.search(r"`(lcstore [^`]+)`", self.message)
        return None if found is None else found[1]

    def __str__(self) -> str:
        parts = [self.message]
        if self.step is not None and not re.search(rf"\b(step|state) {self.step}\b", self.message):
            parts.append(f"step {self.step}")
        if self.key is not None:
            parts.append(f"object {self.key!r}")
        return parts[0] if len(parts) == 1 else f"{parts[0]} [{', '.join(parts[1:])}]"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.key, self.step), self.__dict__)


def _rebuild(cls: type[LcstoreError], message: str, key: str | None, step: int | None) -> LcstoreError:
    return cls(message, key=key, step=step)


class NotFoundError(LcstoreError, KeyError):
    """The step, tensor, tag or object asked for does not exist.

    ``missing`` says what of: ``"store"``, ``"run"``, ``"state"``, ``"tensor"`` (a name in the state `step`),
    ``"tag"`` (to be taken away) or ``"metric"``. None: something else, as a file or a stored object.
    """

    kind = "not-found"

    def __init__(
        self,
        message: str,
        *,
        key: str | None = None,
        step: int | None = None,
        missing: Missing | None = None,
    ) -> None:
        super().__init__(message, key=key, step=step)
        self.missing = missing


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
    ``volatile`` where what was written can be read, but may not outlive a power cut. ``reason`` says why it
    failed, where that is known: ``"full"``, ``"denied"``, ``"read-only"`` or ``"timeout"``.
    """

    kind = "storage"
    outcome_unknown = False
    gave_up = False
    volatile = False

    def __init__(
        self, message: str, *, key: str | None = None, step: int | None = None, reason: Reason | None = None
    ) -> None:
        super().__init__(message, key=key, step=step)
        self._reason = reason

    @property
    def reason(self) -> Reason | None:
        """Why it failed, where that is known: as was said, or by what caused it."""
        error: BaseException | None = self
        while error is not None:
            found = error._reason if isinstance(error, StorageError) else reason_of(error)
            if found is not None:
                return found
            error = error.__cause__
        return None

    def __reduce__(self) -> tuple[object, ...]:
        # Causes do not come along.
        return (*super().__reduce__()[:2], self.__dict__ | {"_reason": self.reason})


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


def reason_of(error: BaseException) -> Reason | None:
    """Return why a target failed by what its client raised; None where that does not say."""
    number = error.errno if isinstance(error, OSError) else None
    if number in FULL:
        return "full"
    if number == errno.EROFS:
        return "read-only"
    if isinstance(error, TimeoutError):
        return "timeout"
    refused = any(getattr(error, name, None) in _DENIED for name in _STATUS)
    return "denied" if refused or isinstance(error, PermissionError) else None


class UnrecognisedWarning(UserWarning):
    """Names in a state and in a policy do not meet: most of it is plain, or a rule is for nothing.

    Also of names that take more than the tensors that they are of.
    """


class FallbackWarning(UserWarning):
    """What was read is damaged: another path was taken, or an earlier state given; or no state is left."""


class BesideWarning(UserWarning):
    """Other runs are in the store: this one was begun anew beside them, or two are at work at one time.

    Also of a walk or a history: its states are of several lines of training.
    """


class StepWarning(UserWarning):
    """A step is not above the one saved before, or below the one resumed: has a counter begun anew?

    Also of `best_step`: the best state is not the one that its step names, as the step was saved again.
    """


class NotFiniteWarning(UserWarning):
    """Weights that were saved, or that training goes on from, are not finite: it diverged, as a rule."""


class DamageWarning(UserWarning):
    """What a run stands on is missing or condemned: it was saved such that this does no more harm."""
