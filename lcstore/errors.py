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
