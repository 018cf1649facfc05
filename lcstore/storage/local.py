"""Objects as files below one directory: the target that can promise durability, and does.

A file appears under its name whole and on stable storage, or not at all: temporary file beside it, fsync,
rename, fsync of the directory.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import secrets
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NoReturn

from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from lcstore.storage.backend import BaseBackend, Leftover, Leftovers, Names, mapped
from lcstore.storage.latesync import put_off
from lcstore.storage.safekeys import safe_join, validate_key
from lcstore.storage.wholefile import read_all, write_all

#: Hidden names are temporary files of writers (perhaps of dead ones), or not ours at all.
_TEMPORARY: Final = ".tmp-"
_LEFTOVER: Final = re.compile(r"\.tmp-[0-9a-f]{24}")
_CREATE: Final = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
)
#: A link, or a pipe that would block for ever, is never opened by a name found in a store.
_READ: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
#: Directories remembered as synced; a store has a few per edge, and forgetting one costs an fsync.
_MOST_SYNCED: Final = 4096


class LocalBackend(BaseBackend):
    """Files below `root`, which is created by the first `put`.

    Safe for any number of threads and processes. Links inside the root are refused, so no object lies
    outside it.

    Raises
    ------
    InvalidInputError
        There is a file in the place of the root.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(os.path.expanduser(os.fspath(root)))
        if os.path.isfile(self.root):
            raise InvalidInputError(f"{self.root} is a file; a store is a folder: {_instead(self.root)}")
        # As fsspec writes it: a path, not percent-encoded.
        super().__init__(f"file://{Path(self.root).as_posix()}", durable=True)
        self._synced: set[str] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.root,))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, with one fsync for each directory."""
        folders: set[str] = set()
        for key in keys:
            path = self._path(validate_key(key))
            with mapped("delete", key):
                _unlink(path)
                folders.add(os.path.dirname(path))
        with mapped("delete", ""):
            for folder in sorted(folders, reverse=True):
                self._after_delete(folder)

    def _put(self, key: str, data: memoryview) -> None:
        path = self._path(key)
        folder = os.path.dirname(path)
        self._write(path, folder, data)
        if put_off(self._sync_folders, folder):
            return
        try:
            self._sync_folders({folder})
        except OSError as error:
            # The name is there for all to see; only whether it outlives a power cut is open.
            open_yet = UnknownOutcomeError(f"could not make the write durable: {error}", key=key)
            open_yet.volatile = True
            raise open_yet from error

    def _write(self, path: str, folder: str, data: memoryview) -> None:
        """Have a file with some bytes, which are durable, appear under its name."""
        temporary = f"{folder}/{_TEMPORARY}{secrets.token_hex(12)}"
        try:
            fd = self._create(temporary, folder)
        except NotADirectoryError as error:
            key = os.path.relpath(path, self.root)
            raise StorageError("a file is in the place of its folder: move it away", key=key) from error
        try:
            try:
                write_all(fd, data)
                _sync(fd)
            finally:
                os.close(fd)
            self._rename(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _rename(self, temporary: str, path: str) -> None:
        try:
            os.replace(temporary, path)
        except IsADirectoryError as error:
            key = os.path.relpath(path, self.root)
            raise StorageError("a directory is in its place: move it away", key=key) from error
        except FileNotFoundError as error:
            raise StorageError(
                "its file vanished before it was whole: the store was moved, or a collector was told that "
                "this run is dead; save again",
                key=os.path.relpath(path, self.root),
            ) from error

    def _create(self, temporary: str, folder: str) -> int:
        # A collector may remove an empty directory between our making it and our using it.
        for _ in range(16):
            try:
                return os.open(temporary, _CREATE, 0o666)
            except FileNotFoundError:
                # Nobody but a user removes the root, and the folders that lie in it.
                above = [*self._up_from(folder)]
                self._synced.difference_update(above[:-2], (one for one in above if not os.path.isdir(one)))
                # `makedirs` says of a directory that goes while it looks that it is there, and is a file.
                with contextlib.suppress(FileNotFoundError, FileExistsError):
                    os.makedirs(folder, exist_ok=True)
        return os.open(temporary, _CREATE, 0o666)

    def _sync_folders(self, folders: set[str]) -> None:
        """Make the newest names in some directories durable, and the names of the directories themselves.

        Whoever made a directory, above the root too, may have died before making its name durable, so the
        first write through this handle does it again.
        """
        synced = set(self._synced)
        new = {above for folder in folders for above in self._up_from(folder)} - synced
        # From below: what is found after a power cut is then whole as far as it goes.
        parents = {os.path.dirname(folder) for folder in new - {self.root}}
        for folder in sorted(folders | parents, key=len, reverse=True):
            try:
                sync_directory(folder)
            except FileNotFoundError:
                # A collector without a grace took what was in it; whoever commits looks for that afterwards.
                if not os.path.isdir(self.root):
                    raise
        if self.root in new:
            _sync_above(self.root)
        if len(self._synced) >= _MOST_SYNCED:
            self._synced.clear()
        self._synced.update(new)

    def _up_from(self, folder: str) -> Iterator[str]:
        """Yield a directory and those above it, up to the root of the store."""
        while folder != self.root:
            yield folder
            folder = os.path.dirname(folder)
        yield folder

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        path = self._path(key)
        try:
            fd = os.open(path, _READ)
        except OSError as error:
            if error.errno == errno.ELOOP:
                _refuse(stat.S_IFLNK, key)
            raise
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                _refuse(found.st_mode, key)
            stop = found.st_size if end is None else min(end, found.st_size)
            if start:
                os.lseek(fd, start, os.SEEK_SET)
            return read_all(fd, max(0, stop - start))
        finally:
            os.close(fd)

    def _list(self, prefix: str) -> Names:
        found: Names = []
        pending = [prefix]
        if prefix:
            self._path(f"{prefix}/x")
        while pending:
            folder = pending.pop()
            inside = f"{folder}/" if folder else ""
            with _scan(f"{self.root}/{folder}" if folder else self.root) as entries:
                for entry in entries:
                    if entry.name[0] == ".":
                        continue
                    # A link, or a directory of a record's name, is listed as what it stands in the place of:
                    # who reads that finds it damaged, and nobody takes it for absent.
                    if entry.is_dir(follow_symlinks=False) and not entry.name.endswith(".json"):
                        pending.append(inside + entry.name)
                    else:
                        found.append(inside + entry.name)
        return found

    def _delete(self, key: str) -> None:
        path = self._path(key)
        _unlink(path)
        # Also where it was absent: whoever removed it may have died before that was durable.
        self._after_delete(os.path.dirname(path))

    def _after_delete(self, folder: str) -> None:
        """Make deletions in `folder` durable, and take away directories that they left empty."""
        # In order: a retirement that vanished before the node that it retires would bring that node back.
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            sync_directory(folder)
        while folder != self.root and os.path.dirname(folder) != self.root:
            self._synced.discard(folder)
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)

    def leftovers(self, folders: Iterable[str], before: float | None = None) -> Leftovers:
        """Return the temporary files there are; those last written to before a moment are taken away.

        So are directories that this leaves empty. A writer whose file goes all the same fails: there is
        nothing that it could give a name to.
        """
        found = []
        with mapped("list", ""):
            walked = [*self._walk(folders)]
        for folder, _, names in walked:
            for name in filter(_LEFTOVER.fullmatch, names):
                path = f"{folder}/{name}"
                try:
                    file = os.lstat(path)
                except OSError:  # its writer is done with it
                    continue
                found.append(Leftover(file.st_size, file.st_mtime))
                if before is not None and file.st_mtime < before:
                    with mapped("delete", os.path.relpath(path, self.root)):
                        _unlink(path)
                        self._after_delete(folder)
        return found

    def tidy(self, folders: Iterable[str]) -> None:
        """Take away what dead writers left in some folders; then those, and the root, where empty."""
        wanted = [*folders]
        self.leftovers(wanted, math.inf)
        for folder, _, _ in self._walk(wanted):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        self._synced.clear()

    def _walk(self, folders: Iterable[str]) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield each directory below some folders, from below, and last the root, with the names in it."""
        for folder in folders:
            if not os.path.islink(f"{self.root}/{folder}"):
                yield from os.walk(f"{self.root}/{folder}", topdown=False)
        if os.path.isdir(self.root):
            yield self.root, [], os.listdir(self.root)

    def _size(self, key: str) -> int:
        return self._look(key).st_size

    def _created(self, key: str) -> float:
        return self._look(key).st_mtime

    def _look(self, key: str) -> os.stat_result:
        found = os.lstat(self._path(key))
        if not stat.S_ISREG(found.st_mode):
            _refuse(found.st_mode, key)
        return found

    def _path(self, key: str) -> str:
        """Return the path of a key, having checked that no directory on the way is a link."""
        path = safe_join(self.root, key)
        at = path.find("/", len(self.root) + 1)
        while at != -1:
            try:
                mode = os.lstat(path[:at]).st_mode
            except OSError:
                return path
            if stat.S_ISLNK(mode):
                above = path[len(self.root) + 1 : at]
                raise StorageError("a directory of the store is a link: a store holds none", key=above)
            at = path.find("/", at + 1)
        return path


def _refuse(mode: int, key: str) -> NoReturn:
    if stat.S_ISDIR(mode) and key.endswith(".json"):
        raise CorruptionError("a directory is in its place: move it away", key=key)
    if stat.S_ISDIR(mode):
        raise NotFoundError("no such object (a directory has this name)", key=key)
    raise CorruptionError("a link or a device: put the object itself in its place, or take it away", key=key)


def _unlink(path: str) -> None:
    """Remove a file, if there is one."""
    try:
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (IsADirectoryError, PermissionError):
        # Directories are no objects, and some systems answer "permission denied" for them.
        if not os.path.isdir(path) or os.path.islink(path):
            raise


def _sync(fd: int) -> None:
    if sys.platform == "darwin":
        import fcntl

        # fsync on macOS leaves the bytes in the drive's cache. Not every file system there knows better.
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
    os.fsync(fd)


def sync_directory(path: str) -> None:
    """Have the names in a directory on stable storage, where its system can do that."""
    if sys.platform == "win32":
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        _sync(fd)
    except OSError as error:
        # Some network and FUSE mounts have no such operation; they keep names their own way.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(fd)


def _sync_above(folder: str) -> None:
    """Make the names of a directory, and of those above it on its file system, durable."""
    while not os.path.ismount(folder):
        folder = os.path.dirname(folder)
        # A directory that we may not even read is none that lcstore made.
        with contextlib.suppress(PermissionError):
            sync_directory(folder)


@contextlib.contextmanager
def _scan(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    try:
        entries = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        # Absent, or removed by a collector since its parent was read.
        yield iter(())
        return
    with entries:
        yield entries


def _instead(file: str) -> str:
    """Return what to name in the place of a file. Checkpoints of torch are archives too, but of no store."""
    import tarfile
    import zipfile

    kind = ""
    with contextlib.suppress(OSError, zipfile.BadZipFile):
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                kind = "zip" * any(name.endswith("lcstore.json") for name in archive.namelist())
        elif tarfile.is_tarfile(file):
            kind = "tar"
    at = shlex.quote(f"{kind}::{file}") + (_compression(file) if kind == "tar" else "")
    return f"to read one in this archive: `lcstore ls {at}`" if kind else "name one, or a new one"


def _compression(file: str) -> str:
    """Return the option that says how a tar file is compressed, where its name does not: ``run.tgz``."""
    from fsspec.utils import infer_compression

    with open(file, "rb") as opened:
        by = {b"\x1f\x8b": "gzip", b"BZ": "bz2", b"\xfd7": "xz"}.get(opened.read(2))
    if by is None or infer_compression(file) is not None:
        return ""
    return f""" --storage-options '{{"tar": {{"compression": "{by}"}}}}'"""
