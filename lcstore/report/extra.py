"""The libraries that draw: installed with an extra, and imported when something is drawn."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from lcstore.errors import LcstoreError


def check_drawing() -> None:
    """Refuse, before anything is gathered, to draw pages where a library for it is not installed."""
    for module in ("jinja2", "matplotlib"):
        needed(module)


def needed(module: str, by: str = "lcstore report") -> Any:
    """Return a module of a library that a command needs, `by` its name.

    Raises
    ------
    LcstoreError
        It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise LcstoreError(
            f"`{by}` needs {module.partition('.')[0]}: pip install 'lcstore[report]'"
        ) from error
