"""Which versions of other packages are installed, and what is known to break them."""

from __future__ import annotations

import importlib
from importlib import metadata

from lcstore.errors import LcstoreError


def version_of(name: str) -> str | None:
    """Return the version of an installed package; None where it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def broken_numcodecs() -> LcstoreError | None:
    """Return why numcodecs cannot be imported, and what to do, where that is known; None where it can be."""
    try:
        importlib.import_module("numcodecs")
    except ValueError as error:
        if "invalid literal for int()" not in str(error):
            raise
        return LcstoreError(
            "numcodecs cannot be imported because it cannot read the version of the installed zfpy "
            f"({version_of('zfpy') or 'not found'}): pip uninstall zfpy"
        )
    return None
