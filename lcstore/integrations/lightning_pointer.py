"""Pointers: the small files at the paths of Lightning's checkpoints, which name a state of a store."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

_MARK: Final = "lcstore"
_KIND: Final = "checkpoint"
#: A file that is longer is no pointer.
_MOST_BYTES: Final = 16 << 20
_BLOCK: Final = 1 << 16


@dataclass(frozen=True)
class Pointer:
    """What is written at the path of a checkpoint.

    Attributes
    ----------
    store, node, step
        The URL of a store, a node's id, and its step.
    notes
        What each `ModelCheckpoint` had noted when it asked for this file, by the key of its state.
    instead_of
        The step that is being saved to this file. Until it is there the file names the one before it.
    """

    store: str
    node: str
    step: int
    notes: dict[str, Any] = field(default_factory=dict)
    instead_of: int | None = None


def place_of(path: str | os.PathLike[str]) -> str:
    """Return the one name of a file, however its path is written."""
    return str(url_to_fs(os.fspath(path))[1])


def folder_of(path: str | os.PathLike[str]) -> str:
    """Return the one name of the folder that a file lies in."""
    return os.path.dirname(place_of(path))


def read_pointer(path: str | os.PathLike[str]) -> Pointer | None:
    """Return the pointer at a path; None where there is none: no file, or one of another kind."""
    fs, name = url_to_fs(os.fspath(path))
    return _read(fs, name)


def _read(fs: Any, name: str) -> Pointer | None:
    try:
        # In small blocks: of a checkpoint of another kind one byte is read.
        with fs.open(name, "rb", block_size=_BLOCK) as file:
            if file.read(1) != b"{":
                return None
            said = json.loads(b"{" + file.read(_MOST_BYTES))
    except (FileNotFoundError, IsADirectoryError, ValueError):
        return None
    if said.pop(_MARK, None) != _KIND or not said.keys() >= {"store", "node", "step"}:
        return None
    return Pointer(**{key: value for key, value in said.items() if key in Pointer.__dataclass_fields__})


def make_folder(path: str | os.PathLike[str]) -> tuple[Any, str]:
    """Make the folder that a file is to lie in; return its filesystem, and its name there."""
    fs, name = url_to_fs(os.fspath(path))
    fs.makedirs(os.path.dirname(name), exist_ok=True)
    return fs, str(name)


def write_pointer(path: str | os.PathLike[str], pointer: Pointer) -> None:
    """Write a pointer, whole or not at all."""
    text = json.dumps({_MARK: _KIND} | asdict(pointer), indent=1).encode()
    fs, name = make_folder(path)
    if not isinstance(fs, LocalFileSystem):
        fs.pipe_file(name, text)
        return
    # By a name that Lightning does not take for a checkpoint.
    other = os.path.join(os.path.dirname(name), f".lcstore-{os.getpid()}-{threading.get_ident()}")
    try:
        with open(other, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(other, name)  # a link is replaced, not followed
    except BaseException:  # the disk is full
        with suppress(OSError):
            os.remove(other)
        raise


def remove_pointer(path: str | os.PathLike[str]) -> None:
    """Remove a pointer, or a link to one."""
    fs, name = url_to_fs(os.fspath(path))
    try:
        fs.rm_file(name)
    except FileNotFoundError:
        return


def pointers_beside(path: str | os.PathLike[str]) -> Iterator[Pointer]:
    """Yield each pointer of the folder that a file lies in."""
    fs, name = url_to_fs(os.fspath(path))
    fs.invalidate_cache()
    try:
        found = fs.ls(os.path.dirname(name), detail=True)
    except FileNotFoundError:
        return
    for each in found:
        if each["type"] != "directory" and (each.get("size") or 0) <= _MOST_BYTES:
            pointer = _read(fs, each["name"])
            if pointer is not None:
                yield pointer
