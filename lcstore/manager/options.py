"""Hints where an argument of a manager does not exist."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

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
