"""What a manager passes on, and hints where an argument of it does not exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any, Final, TypedDict

from lcstore.errors import InvalidInputError
from lcstore.format.labels import OnCorrupt, Run
from lcstore.jobs.survey import OnProgress
from lcstore.store.hints import UNKNOWN

#: What says the same here, by words in names that other tools give it. The first that fits is told.
_INSTEAD: Final = {
    "keep": "keep='latest:3'",
    "total_limit": "keep='latest:3'",
    "interval": "every=100, or every='10min'",
    "every": "every=100, or every='10min'",
    "step": "every=100, or every='10min'",
    "freq": "every=100, or every='10min'",
    "async": "background=True",
    "dir": "the first one, a path or URL",
    "path": "the first one, a path or URL",
}


class Labels(TypedDict, total=False):
    """The arguments of `Store.save` that `CheckpointManager.save` passes on."""

    metadata: Mapping[str, Any] | None
    tags: Sequence[str]
    exact: bool
    skip_below: float
    touched: Mapping[str, Any] | None
    timeout: float | None
    on_progress: OnProgress | None


class ResumeOptions(TypedDict, total=False):
    """The arguments of `Store.resume` that `CheckpointManager.resume` passes on."""

    run: Run
    dtype: str | None
    like: Any
    to: str
    on_progress: OnProgress | None


class RestoreOptions(ResumeOptions, total=False):
    """The arguments of `Store.restore`, but for the state."""

    names: str | Sequence[str] | None
    on_corrupt: OnCorrupt


def check_labels(labels: Labels) -> None:
    """Refuse labels that a save does not take: with the first that is due, it would be late to say so.

    Raises
    ------
    TypeError
        There is such a label.
    """
    for name in labels.keys() - Labels.__annotations__.keys():
        near = get_close_matches(name, sorted(Labels.__annotations__), n=1)
        raise TypeError(f"a save takes no argument {name!r}" + (f"; it takes {near[0]}=" if near else ""))


def check_options(options: Mapping[str, Any], *takers: Callable[..., object]) -> None:
    """Refuse arguments that none of the functions takes, with what is meant.

    Raises
    ------
    TypeError
        There is such an argument.
    """
    known = {name for taker in takers for name in inspect.signature(taker).parameters} - {"self", "options"}
    for name in options.keys() - known:
        meant = next((text for word, text in _INSTEAD.items() if word in name.lower()), "")
        near = get_close_matches(name, sorted(known), n=1)
        hint = f"it takes {meant or near[0] + '='}" if meant or near else UNKNOWN.get(name)
        raise TypeError(f"CheckpointManager takes no argument {name!r}" + (f"; {hint}" if hint else ""))


def check_own(grace: Any, **functions: Any) -> None:
    """Refuse values that a manager would only stumble over when a machine goes, or a state is saved.

    Raises
    ------
    InvalidInputError
        The grace is no time, or one of the functions is none.
    """
    if not (isinstance(grace, Real) and float(grace) >= 0):
        raise InvalidInputError(f"preemption_grace is 0 seconds or more, not {grace!r:.100}")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise InvalidInputError(f"{name} is a function or None, not {function!r:.100}")
