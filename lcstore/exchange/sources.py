"""The files that are to become states: found by path, glob or URL, and fetched when their turn comes."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from lcstore.errors import InvalidInputError, NotFoundError
from lcstore.exchange.newfile import check_literal, filesystem, is_local
from lcstore.format.keys import STORE_KEY
from lcstore.state.names import is_glob
from lcstore.storage.backend import mapped

_log: Final = logging.getLogger("lcstore")
#: Formats of single files by their endings, and of folders by a file in them.
_ENDINGS: Final = {
    ".safetensors": "safetensors",
    ".npz": "npz",
    **dict.fromkeys((".pt", ".pth", ".bin", ".ckpt"), "torch"),
}
#: Endings of files that only their own libraries read.
_OTHERS: Final = (".keras", ".h5", ".msgpack")
_LOAD: Final = "; a file of Keras or Flax is loaded by that, and what comes of it is saved: docs/exchange.md"
_INSIDE: Final = {
    ".metadata": "dcp",
    "zarr.json": "zarr",
    ".zgroup": "zarr",
    "_CHECKPOINT_METADATA": "orbax",
    "_METADATA": "orbax",
    "model.safetensors": "transformers",
    "model.safetensors.index.json": "transformers",
    "adapter_model.safetensors": "transformers",
    "pytorch_model.bin": "transformers",
    "pytorch_model.bin.index.json": "transformers",
}
#: What Trainer calls the folder of a step.
_OF_A_STEP: Final = "checkpoint-"
#: What a file or folder can be.
FORMATS: Final = ("safetensors", "torch", "npz", "zarr", "transformers", "dcp", "orbax")


@dataclass(frozen=True)
class Source:
    """A file, or a folder that is one checkpoint.

    Attributes
    ----------
    url, name
        Where it is, and the last part of that.
    format
        One of `FORMATS`.
    nbytes
        Of all that is in it.
    modified
        When that was changed last (ISO 8601, UTC); "" where the target does not tell.
    """

    url: str
    name: str
    format: str
    nbytes: int
    modified: str
    fs: Any
    path: str

    @contextmanager
    def local(self) -> Iterator[str]:
        """Yield a path on this machine, for the time of a ``with`` block: what is elsewhere is fetched."""
        if is_local(self.fs):
            yield self.path
            return
        check_literal(self.fs, self.path, self.url)
        with tempfile.TemporaryDirectory(prefix="lcstore-") as folder, mapped("read", self.url):
            there = os.path.join(folder, self.name)
            self.fs.get(self.path, there, recursive=self.fs.isdir(self.path))
            yield there


def sources(
    files: Iterable[str | os.PathLike[str]], format: str | None, options: Mapping[str, Any] | None
) -> list[Source]:
    """Return what some files, globs and folders stand for, each once.

    A folder that is a checkpoint stands for itself, unless it has folders of steps (``checkpoint-500``): then
    it stands for those. Any other folder stands for the checkpoints in it.

    Raises
    ------
    NotFoundError
        There is nothing, or nothing that is a checkpoint.
    InvalidInputError
        Nothing tells of what format one is.
    """
    found: dict[str, Source] = {}
    for file in [os.fspath(file) for file in files]:
        fs, path = filesystem(file, options)
        with mapped("look at", file):
            some = [*_sources(fs, path, file, format)]
        found |= {source.url: source for source in some}
    if not found:
        raise NotFoundError(f"nothing of that is a checkpoint of a known format: {', '.join(FORMATS)}")
    return [*found.values()]


def _sources(fs: Any, path: str, file: str, format: str | None) -> Iterator[Source]:
    if not fs.exists(path):
        matched = sorted(fs.glob(path)) if is_glob(path) else []
        if not matched:
            raise NotFoundError(f"there is no file {file}")
        for one in matched:
            # A glob may match more than checkpoints: what is none is left out, unless a format is given.
            known = format or _format_of(fs, one, fs.isdir(one), None)
            if known is not None and _is_there(fs, one):
                yield _source(fs, one, known)
        return
    if not fs.isdir(path):
        known = format or _by_ending(path)
        if known is None:
            raise InvalidInputError(
                f"the ending of {file} tells no format: say it with --format ({', '.join(FORMATS)})"
                + _LOAD * path.endswith(_OTHERS)
            )
        yield _source(fs, path, known)
        return
    inside = sorted(fs.ls(path, detail=True), key=lambda info: str(info["name"]))
    if STORE_KEY in {_last(info["name"]) for info in inside}:
        message = (
            f"{file} is a store already: `lcstore cp` copies it, `lcstore export` writes states to files"
        )
        raise InvalidInputError(message)
    steps = [info["name"] for info in inside if _last(info["name"]).startswith(_OF_A_STEP)
             and info["type"] == "directory"]  # fmt: skip
    itself = _format_of_folder({_last(info["name"]) for info in inside}) if format is None else format
    if itself not in _INSIDE.values():
        itself = None
    if itself is not None and not steps:
        yield _source(fs, path, itself)
        return
    names = steps or [info["name"] for info in inside]
    checkpoints = [(name, known) for name in names if (known := _format_of(fs, name, fs.isdir(name), format))]
    if not checkpoints:  # a folder for each step, with a file in it
        folders = [info["name"] for info in inside if info["type"] == "directory"]
        single = [name for folder in folders for name in sorted(fs.ls(folder, detail=False))]
        checkpoints = [(name, known) for name in single if (known := _format_of(fs, name, False, format))]
    if not checkpoints:
        others = any(info["name"].endswith(_OTHERS) for info in inside)
        raise NotFoundError(
            f"nothing in {file} is a checkpoint of a known format: {', '.join(FORMATS)}" + _LOAD * others
        )
    for name, known in checkpoints:
        if _is_there(fs, name):
            yield _source(fs, name, known)


def _is_there(fs: Any, path: str) -> bool:
    """Return whether there is something at a path: a link may lead to a checkpoint that went."""
    there = not is_local(fs) or os.path.exists(path)
    if not there:
        _log.warning("%s is a link to nothing, and left out", path)
    return there


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def _by_ending(path: str) -> str | None:
    return _ENDINGS.get(os.path.splitext(path)[1].lower())


def _format_of(fs: Any, path: str, is_folder: bool, format: str | None) -> str | None:
    """Return of which format a checkpoint is, which may be given: a file, or a folder, is not of any."""
    if not is_folder:
        return _by_ending(path) if format is None else format if format not in _INSIDE.values() else None
    found = _format_of_folder({_last(name) for name in fs.ls(path, detail=False)})
    return found if format in (None, found) else None


def _format_of_folder(names: set[str]) -> str | None:
    return next((format for name, format in _INSIDE.items() if name in names), None)


def _source(fs: Any, path: str, format: str) -> Source:
    if format not in FORMATS:
        raise InvalidInputError(f"format is {format!r:.40}; it is one of {', '.join(FORMATS)}")
    inside = fs.find(path, detail=True) if fs.isdir(path) else {path: fs.info(path)}
    modified = max((_modified(fs, name) for name in inside), default="")
    nbytes = sum(int(info["size"] or 0) for info in inside.values())
    url = path if is_local(fs) else fs.unstrip_protocol(path)
    return Source(url, _last(path), format, nbytes, modified, fs, path)


def _modified(fs: Any, path: str) -> str:
    try:
        return str(fs.modified(path).isoformat())
    except NotImplementedError:
        return ""
