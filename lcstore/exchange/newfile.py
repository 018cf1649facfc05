"""Files and folders that appear whole, on any target that fsspec opens, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from glob import has_magic
from typing import IO, Any, Final

import fsspec
from fsspec.implementations.dirfs import DirFileSystem

from lcstore.errors import ConflictError, InvalidInputError
from lcstore.storage.backend import mapped
from lcstore.storage.local import sync_directory

#: Seconds between tries to remove what was half written: threads of Zarr may write to it for a moment yet.
_PAUSES: Final = 0.02, 0.2


def filesystem(url: str, options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Return the filesystem of a URL and the path in it.

    Raises
    ------
    InvalidInputError
        No installed package knows the URL, or the options are not for it.
    """
    try:
        # An instance of its own: a transaction holds for all files of one.
        fs, path = fsspec.core.url_to_fs(url, skip_instance_cache=True, **(options or {}))
    except (ImportError, ValueError, TypeError) as error:
        raise InvalidInputError(f"{url} cannot be opened: {error}") from error
    return fs, path


def is_local(fs: Any) -> bool:
    """Return whether a filesystem is that of this machine."""
    return "file" in ((fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol)


def check_literal(fs: Any, path: str, url: str) -> None:
    """Refuse a path that fsspec, asked to delete or fetch it, takes for a pattern: it may name others.

    Raises
    ------
    InvalidInputError
        The target is not local, and `*`, `?` or `[` are in the path.
    """
    if not is_local(fs) and _is_pattern(fs, path):
        raise InvalidInputError(
            f"{url}: *, ? and [ in the path of what is to be fetched or overwritten are patterns to fsspec, "
            "which may name other files: rename it, or copy it to a local folder"
        )


def _is_pattern(fs: Any, path: str) -> bool:
    while isinstance(fs, DirFileSystem):
        fs, path = fs.fs, f"{fs.path}/{path}"
    # In a URL of the web a question mark is none, to fsspec neither.
    return has_magic(path.replace("?", "") if path.startswith(("http://", "https://")) else path)


def _check_free(fs: Any, path: str, url: str, overwrite: bool, *, folder: str | None = None) -> None:
    """Refuse a place that is taken, unless what is there is of the same kind and to be overwritten.

    A folder that may go has a file of the name `folder` in it: no other is ever deleted.
    """
    with mapped("look at", url):
        if not fs.exists(path):
            return
        alike = not fs.isdir(path) if folder is None else fs.exists(f"{path}/{folder}")
    if not overwrite:
        raise ConflictError(f"{url} is there already: name another file, or overwrite it (--overwrite)")
    if not alike:
        raise ConflictError(f"{url} holds something else, which is not overwritten: name another file")
    if folder is not None:
        check_literal(fs, path, url)


@contextmanager
def new_file(
    url: str, options: Mapping[str, Any] | None = None, *, overwrite: bool = False
) -> Iterator[IO[bytes]]:
    """Yield a file to write to, which is there under its name once the ``with`` block has ended well.

    Raises
    ------
    ConflictError
        There is something already.
    StorageError
        The target failed.
    """
    fs, path = filesystem(url, options)
    _check_free(fs, path, url, overwrite)
    if not is_local(fs):
        # What a block that fails has written is given up with the transaction.
        with mapped("write", url), fs.transaction, fs.open(path, "wb") as file:
            yield file
        return
    with _beside(path, url) as temporary:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)


@contextmanager
def new_folder(
    url: str, options: Mapping[str, Any] | None = None, *, last: str, overwrite: bool = False
) -> Iterator[str]:
    """Yield the path of a local folder to fill, which is at the URL once the ``with`` block has ended well.

    To other targets it is uploaded then, and of its files `last` is the last: without that it is not whole.

    Raises
    ------
    ConflictError, StorageError
        As for `new_file`.
    """
    fs, path = filesystem(url, options)
    _check_free(fs, path, url, overwrite, folder=last)
    if is_local(fs):
        with _beside(path, url) as temporary:
            yield temporary
            for at, _, names in os.walk(temporary):
                for name in names:
                    with open(os.path.join(at, name), "rb+") as file:
                        os.fsync(file.fileno())
                sync_directory(at)
            if overwrite and os.path.lexists(path):
                _exchange(temporary, path)
            else:
                os.replace(temporary, path)
        return
    with tempfile.TemporaryDirectory(prefix="lcstore-") as temporary, mapped("write", url):
        yield temporary
        files = [os.path.relpath(os.path.join(at, name), temporary) for at, _, names in os.walk(temporary)
                 for name in names]  # fmt: skip
        _upload(fs, temporary, path, [name for name in files if name != last], last)


def _upload(fs: Any, folder: str, path: str, others: Sequence[str], last: str) -> None:
    """Upload files of a folder; what is at the path goes once all of them are there, beside it."""
    there = fs.exists(path)
    to = f"{path}.tmp-{secrets.token_hex(4)}" if there else path
    try:
        for some in (others, [last]):
            fs.put([os.path.join(folder, name) for name in some], [f"{to}/{name}" for name in some])
    except BaseException:
        if there:
            with contextlib.suppress(Exception):
                fs.rm(to, recursive=True)
        raise
    if not there:
        return
    try:
        fs.rm(path, recursive=True)
        for some in (others, [last]):
            ends = [f"{path}/{name}" for name in some]
            try:
                fs.copy([f"{to}/{name}" for name in some], ends)
            except NotImplementedError:  # SFTP, FTP and others cannot copy by themselves
                fs.put([os.path.join(folder, name) for name in some], ends)
    except Exception as error:
        raise OSError(
            f"{str(error) or type(error).__name__}; all that was to be there lies at {to}"
        ) from error
    fs.rm(to, recursive=True)


def _exchange(new: str, path: str) -> None:
    """Give a folder the name of another, which is deleted once the folder has it, and not before."""
    old = f"{new}-old"
    os.replace(path, old)
    try:
        os.replace(new, path)
    except BaseException:
        os.replace(old, path)
        raise
    with contextlib.suppress(OSError):  # somebody may have a file of it open; the new one is there
        _remove(old)


@contextmanager
def _beside(path: str, url: str) -> Iterator[str]:
    """Yield a free name in the folder of a path; what is there under it is gone at the end."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.tmp-{secrets.token_hex(4)}")
    with mapped("write", url):
        os.makedirs(folder, exist_ok=True)
        try:
            yield temporary
        except BaseException:
            for pause in _PAUSES:
                with contextlib.suppress(OSError):
                    _remove(temporary)
                time.sleep(pause)
            raise
        finally:
            with contextlib.suppress(OSError):
                _remove(temporary)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
