"""Whether this user may change what is stored: told before anything goes, not in the middle of it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import chain

from lcstore.errors import StorageError
from lcstore.records.kinds import FOLDERS
from lcstore.storage.backend import Backend


def closed_folder(backend: Backend) -> str:
    """Return a folder of a store on a disk in which this user may make and delete nothing.

    "" where there is none, and of targets that do not tell.
    """
    return next(_closed(filter(os.path.isdir, _tops(backend))), "")


def check_deletable(backend: Backend) -> None:
    """Refuse to delete a store of which this user could not delete everything.

    Raises
    ------
    StorageError
        There is a folder that this user may not change.
    """
    tops = [*filter(os.path.isdir, _tops(backend))]
    found = (os.path.join(at, name) for top in tops[1:] for at, names, _ in os.walk(top) for name in names)
    folder = next(_closed(chain(tops, (one for one in found if not os.path.islink(one)))), "")
    if folder:
        raise StorageError(
            f"this user may not delete what is in {folder}, so nothing of the store is deleted; "
            "its owner may",
            reason="denied",
        )


def _tops(backend: Backend) -> list[str]:
    """Return the folder of a store on a disk, and those that it has or may have in it."""
    scheme, _, root = backend.url.partition("://")
    return [root, *(f"{root}/{folder}" for folder in FOLDERS)] if scheme == "file" else []


def _closed(folders: Iterable[str]) -> Iterator[str]:
    return (folder for folder in folders if not os.access(folder, os.W_OK | os.X_OK))
