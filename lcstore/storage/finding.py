"""Which stores lie below a place: folders are looked into level by level, but for those of a store's own.

Links to folders are followed once all that is no link was looked into, and each real folder once: so links in
a circle end, and a store that is reached in two ways has the name without a link.
"""

from __future__ import annotations

import math
import os
import posixpath
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import fsspec
from fsspec.archive import AbstractArchiveFileSystem

from lcstore.errors import InvalidInputError
from lcstore.storage.backend import CLOCK, mapped
from lcstore.storage.masking import harmless, without_secrets
from lcstore.storage.memory import memory_names

#: How many folders deep stores are looked for.
LEVELS: Final = 8

#: Where this object is, there is a store.
MARKER: Final = "lcstore.json"
#: How many folders are looked into for stores that lie in another one: every first save does ...
LOOKS: Final = 256
#: ... and for what may have been meant, by whoever gives the URL of no store.
FEW_LOOKS: Final = 32
#: Where its second copy is: a store that has lost the first one is still one.
_COPIES: Final = "copies"
#: Where records of states are: a store that has lost both is damaged, and no less a store.
_NODES: Final = "nodes"
_RECORD: Final = re.compile(r"[0-9]{19}-[0-9]{6}\.[0-9a-f]{8}-.*\.json")
#: Where objects of edges are, by their ids.
_DATA: Final = "data"
_EDGE: Final = re.compile(r"[0-9a-f]{32}")
#: The keys of a store by one of which it is known.
MARK: Final = re.compile(rf"({_COPIES}/)?{re.escape(MARKER)}|{_NODES}/{_RECORD.pattern}")
#: The folders that a store has, or may have: nothing else lies in them.
OWN: Final = frozenset(
    [_COPIES, _NODES, "edges", "names", "retired", "condemned", "layouts", "data", "quarantine", CLOCK]
)
#: What file systems have at their top for themselves.
_NOT_OURS: Final = "lost+found"


class _Inside(NamedTuple):
    """What is in a folder: names of files, of folders, and of links to folders."""

    files: set[str]
    folders: list[str]
    links: Collection[str] = ()


#: Returns what is in a folder; None where it is there and cannot be looked into.
Look: TypeAlias = Callable[[str], _Inside | None]
_NOTHING: Final = _Inside(set(), [])


def stores_below(
    url: str,
    storage_options: Mapping[str, object] | None = None,
    *,
    levels: int = LEVELS,
    most: int | None = None,
    looks: float = math.inf,
    sealed: bool = False,
    own: Collection[str] | None = None,
) -> list[str]:
    """Return the URLs of the stores at or below a URL, in order; with `own`, of those in its folder alone.

    Parameters
    ----------
    url, storage_options
        As for `open_backend`.
    levels
        How many folders deep to look.
    most
        Stop once so many are found; never, if None.
    looks
        How many folders to look into, the nearest first.
    sealed
        Also return the folders that cannot be looked into, and those with data of several saves and no
        record, as of a copy that was cut off: whoever opens one is told why.
    own
        The folders that the store at the URL has itself: they are passed over.

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
        name = url.rstrip("/")
        return [one for one in _in_memory(name, levels) if own is None or one != name][:most]
    look, root = look_at(url, dict(storage_options or {}))
    with mapped("list", without_secrets(url)):
        found = list(islice(walk(look, root, levels, looks, sealed=sealed, own=own), most))
    start, before = len(root.rstrip("/")), url.rstrip("/")
    return sorted(url if one == root else f"{before}{one[start:]}" for one in found)


def files_alone(folder: str) -> list[str]:
    """Return the names of the files in a folder of this machine, in order, where nothing there is of a store.

    None are told where something is, if it is the beginning of a copy, whose data come first; nor of a folder
    that cannot be looked into. The name of a folder says nothing: many projects have one called ``data``.
    """
    found = _local(folder) or _NOTHING
    begun = (_local(f"{folder}/{_DATA}") or _NOTHING).folders if _DATA in found.folders else []
    if _is_store(_local, folder, found) or any(map(_EDGE.fullmatch, begun)):
        return []
    return sorted(name for name in found.files if name[0] != ".")


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
    found = [one for one in memory_names(MARK) if one == name or one.startswith(inside)]
    return sorted(f"memory://{one}" for one in found if one[len(inside) :].count("/") < levels)


def look_at(url: str, options: dict[str, object]) -> tuple[Look, str]:
    """Return what lists a folder of a target, and the folder of a URL."""
    protocol, given, path = url.partition("://")
    if not given or protocol in ("file", "local"):
        return _local, os.path.expanduser(path if given else url).rstrip("/") or "/"
    try:
        fs, root = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError) as error:
        said = without_secrets(str(error))
        raise InvalidInputError(f"cannot open {protocol!r} URLs: {said}") from harmless(error)

    return looking(fs), root.rstrip("/")


def looking(fs: Any) -> Look:
    """Return what lists a folder of a filesystem of fsspec."""

    def look(folder: str) -> _Inside | None:
        fs.invalidate_cache()
        try:
            entries = fs.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return _NOTHING
        except PermissionError:
            return None
        names = [(str(entry["name"]).rstrip("/").rpartition("/")[2], entry["type"]) for entry in entries]
        return _Inside(
            {name for name, kind in names if kind != "directory"},
            [name for name, kind in names if kind == "directory"],
        )

    return look


def _local(folder: str) -> _Inside | None:
    try:
        with os.scandir(folder) as scanned:
            entries = list(scanned)
    except (FileNotFoundError, NotADirectoryError):
        return _NOTHING
    except OSError:
        return None
    folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    links = [entry.name for entry in entries if entry.is_symlink() and _leads_to_folder(entry)]
    return _Inside({entry.name for entry in entries}.difference(folders, links), folders, links)


def _leads_to_folder(link: os.DirEntry[str]) -> bool:
    try:
        return link.is_dir()
    except PermissionError:
        return True  # it may be one: looking into it says so
    except OSError:
        return False  # a link to itself


def walk(
    look: Look,
    root: str,
    levels: int,
    looks: float,
    *,
    sealed: bool = False,
    own: Collection[str] | None = None,
) -> Iterator[str]:
    """Yield the folders of stores; with `own`, of those in the root, where a store has such folders."""
    top = os.path.realpath(root)
    pending, linked = deque([(root, top, levels)]), deque[tuple[str, int]]()
    seen: set[str] = set()
    while (pending or linked) and len(seen) < looks:
        if pending:
            folder, real, left = pending.popleft()
        else:
            folder, left = linked.popleft()
            real = os.path.realpath(folder)
            if f"{top}/".startswith(f"{real.rstrip('/')}/"):
                continue  # back to where it began, or above that
        if real in seen:
            continue
        seen.add(real)
        found = look(folder)
        if found is None:
            if sealed:
                yield folder
            continue
        inside = folder.rstrip("/")
        passed = None if folder != root else own
        if passed is None and (_is_store(look, inside, found) or (sealed and _is_rest(look, inside, found))):
            yield folder
            passed = OWN
        if left:
            for name in _may_hold(found.folders, passed):
                pending.append((f"{inside}/{name}", f"{real.rstrip('/')}/{name}", left - 1))
            linked.extend((f"{inside}/{name}", left - 1) for name in _may_hold(found.links, passed))


def _may_hold(names: Iterable[str], passed: Collection[str] | None) -> list[str]:
    wanted = (name for name in names if name not in (passed or ()) and name != _NOT_OURS)
    return sorted(name for name in wanted if name and name[0] != ".")


def _is_rest(look: Look, folder: str, found: _Inside) -> bool:
    """Return whether data of several saves is here and no record, as of a copy that was cut off.

    Of one save it may be that of a store which is being made.
    """
    if found.files or _DATA not in found.folders or not OWN.issuperset(found.folders):
        return False
    edges = (look(f"{folder}/{_DATA}") or _NOTHING).folders
    if len(edges) < 2 or not all(map(_EDGE.fullmatch, edges)):
        return False
    # Other data may be named by such ids, too.
    some = [look(f"{folder}/{_DATA}/{edge}") or _NOTHING for edge in edges[:2]]
    parts = [part for inside in some for part in inside.folders]
    return bool(parts) and all(map(str.isdecimal, parts)) and not any(inside.files for inside in some)


def _is_store(look: Look, folder: str, found: _Inside) -> bool:
    """Return whether a folder is that of a store, by what is in it."""
    if MARKER in found.files:
        return True

    def files(name: str) -> set[str]:
        return (look(f"{folder}/{name}") or _NOTHING).files if name in found.folders else set()

    return MARKER in files(_COPIES) or any(map(_RECORD.fullmatch, files(_NODES)))
