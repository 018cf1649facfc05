"""Which stores lie below a place: folders are looked into level by level, and no store is looked into."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Final, TypeAlias

import fsspec
from fsspec.archive import AbstractArchiveFileSystem

from lcstore.errors import InvalidInputError, LcstoreError
from lcstore.storage.backend import mapped
from lcstore.storage.masking import harmless, without_secrets
from lcstore.storage.memory import memory_names

#: How many folders deep stores are looked for, and how many are told.
LEVELS: Final = 4
MOST: Final = 1000

#: Where this object is, there is a store.
MARKER: Final = "lcstore.json"
#: Where its second copy is: a store that has lost the first one is still one.
_COPIES: Final = "copies"
#: Returns the names of the files in a folder, and of the folders in it.
_Look: TypeAlias = Callable[[str], tuple[set[str], list[str]]]


def stores_below(
    url: str, storage_options: Mapping[str, object] | None = None, *, levels: int = LEVELS, most: int = MOST
) -> list[str]:
    """Return the URLs of the stores at or below a URL, in order.

    Parameters
    ----------
    url, storage_options
        As for `open_backend`.
    levels
        How many folders deep to look.
    most
        Stop once so many are found.

    Raises
    ------
    InvalidInputError
        No installed package knows the URL.
    StorageError
        The target cannot be reached, or does not list folders.
    """
    if "::" in url:
        return []  # a chain names one thing inside another: there is no name for what lies beside it
    if url.startswith("memory://"):
        return _in_memory(url.rstrip("/"), levels)[:most]
    look, root = _look_at(url, dict(storage_options or {}))
    found: list[str] = []
    with mapped("list", without_secrets(url)):
        for store in _walk(look, root, levels):
            inside = store[len(root.rstrip("/")) :]
            found.append(f"{url.rstrip('/')}{inside}" if store != root else url)
            if len(found) >= most:
                break
    return sorted(found)


def near(url: str, storage_options: Mapping[str, object] | None = None) -> list[str]:
    """Return the folders beside a URL that may have been meant by it, the nearest first; none if it is there.

    For a message: it takes one listing of the folder that all of them lie in, and a failure is no answer.
    """
    before, slash, name = url.rstrip("/").rpartition("/")
    if "::" in url or not name:
        return []
    beside: Collection[str] = []
    if url.startswith("memory://"):
        inside = f"{before.removeprefix('memory:/').strip('/')}/".lstrip("/")
        names = [one.removeprefix(inside) for one in memory_names(MARKER) if one.startswith(inside)]
        beside = {one.partition("/")[0] for one in names}
    else:
        with suppress(LcstoreError), mapped("list", without_secrets(url)):
            look, root = _look_at(url, dict(storage_options or {}))
            folder = posixpath.dirname(root)
            if folder or "://" not in url:  # what lies beside a bucket is other people's
                beside = look(folder or ".")[1]
    return [] if name in beside else [f"{before}{slash}{one}" for one in get_close_matches(name, beside)]


def store_in_archive(fs: AbstractArchiveFileSystem, root: str) -> str:
    """Return where in an archive the store at a path is; without a path, where its only store is.

    Archives are packed in several ways: with ``./`` before all names, or with the folder of the store.
    """
    fs._get_dirs()
    names: list[str] = [*fs.dir_cache]
    folders = [path.rpartition("/")[0] for path in names if path.rpartition("/")[2] == MARKER]
    stores = {posixpath.normpath(folder): folder for folder in folders}
    wanted = posixpath.normpath(root)
    if wanted == "." and wanted not in stores:
        # What lies deeper in a store than its own is a second copy.
        tops = [name for name in stores if not any(name.startswith(f"{other}/") for other in stores)]
        wanted = tops[0] if len(tops) == 1 else wanted
    return stores.get(wanted, root)


def _in_memory(url: str, levels: int) -> list[str]:
    name = url.removeprefix("memory://").strip("/")
    inside = f"{name}/" if name else ""
    found = [one for one in memory_names(MARKER) if one == name or one.startswith(inside)]
    return sorted(f"memory://{one}" for one in found if one[len(inside) :].count("/") < levels)


def _look_at(url: str, options: dict[str, object]) -> tuple[_Look, str]:
    """Return what lists a folder of a target, and the folder of a URL."""
    protocol, given, path = url.partition("://")
    if not given or protocol in ("file", "local"):
        return _local, os.path.expanduser(path if given else url).rstrip("/") or "/"
    try:
        fs, root = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError) as error:
        said = without_secrets(str(error))
        raise InvalidInputError(f"cannot open {protocol!r} URLs: {said}") from harmless(error)

    def look(folder: str) -> tuple[set[str], list[str]]:
        fs.invalidate_cache()
        try:
            entries = fs.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return set(), []
        names = [(str(entry["name"]).rstrip("/").rpartition("/")[2], entry["type"]) for entry in entries]
        return (
            {name for name, kind in names if kind != "directory"},
            [name for name, kind in names if kind == "directory"],
        )

    return look, root.rstrip("/")


def _local(folder: str) -> tuple[set[str], list[str]]:
    try:
        entries = list(os.scandir(folder))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return set(), []
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return {entry.name for entry in entries} - {*folders}, folders


def _walk(look: _Look, folder: str, levels: int) -> Iterator[str]:
    files, folders = look(folder)
    inside = folder.rstrip("/")
    if MARKER in files or (_COPIES in folders and MARKER in look(f"{inside}/{_COPIES}")[0]):
        yield folder
        return
    if levels:
        for name in sorted(name for name in folders if name and not name.startswith(".")):
            yield from _walk(look, f"{inside}/{name}", levels - 1)
