"""Whether this user may change what is stored: told before anything goes, not in the middle of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from lcstore.errors import StorageError
from lcstore.index.kinds import FOLDERS
from lcstore.storage.backend import Backend


def closed_folder(backend: Backend) -> str:
    """Return a folder of a store on a disk in which this user may make and delete nothing.

    "" where there is none, and of targets that do not tell.
    """
    return next(_closed(backend, deep=False), "")


def check_deletable(backend: Backend) -> None:
    """Refuse to delete a store of which this user could not delete everything.

    Raises
    ------
    StorageError
        There is a folder that this user may not change.
    """
    folder = next(_closed(backend, deep=True), "")
    if folder:
        raise StorageError(
            f"this user may not delete what is in {folder}, so nothing of the store is deleted; its owner may"
        )


def _closed(backend: Backend, *, deep: bool) -> Iterator[str]:
    """Yield folders of a store that may not be changed; those in folders of folders where `deep`."""
    scheme, _, root = backend.url.partition("://")
    if scheme != "file":
        return
    for top in (root, *(f"{root}/{folder}" for folder in FOLDERS)):
        for folder, inner, _ in os.walk(top):
            if not os.access(folder, os.W_OK | os.X_OK):
                yield folder
            if not deep or folder == root:
                inner.clear()
