"""A disk that loses what was not made durable when the power fails, under the real code of a backend.

:func:`power_loss` watches what a module does to the files below one directory, while the files themselves are
real. At any moment, or for any moment that has passed, :meth:`Disk.crash` makes a directory as it would be
found had the power failed then: :mod:`kit.survival` says what that may be. One recorded run so serves for
thousands of power cuts.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from kit.survival import TOP, Change, Inode, Tree, after_power_loss, without_power_loss
from lcstore.errors import InvalidInputError
from lcstore.storage import local, wholefile
from lcstore.testing.faults import Crash

AnyPath = str | os.PathLike[str]

#: Functions of `os` that change files and that this disk does not know.
_UNKNOWN: Final = frozenset(
    {"fdopen", "link", "mkfifo", "mknod", "posix_fallocate", "pwrite", "pwritev", "removedirs", "renames"}
    | {"sendfile", "splice", "symlink", "truncate", "writev"}
)


@contextmanager
def power_loss(top: AnyPath, modules: Iterable[ModuleType] = (local, wholefile)) -> Iterator[Disk]:
    """Watch a directory for the time of a ``with`` block.

    Parameters
    ----------
    top
        A directory. What it holds at first is taken to be durable; the store is to lie below it.
    modules
        Modules (that import `os`) whose dealings with files below `top` are recorded. While they are, their
        `fsync` is not carried out, above `top` neither: it costs nothing.

    Raises
    ------
    AssertionError
        At the end: something changed the files without being seen, so no conclusion holds.
    InvalidInputError
        On systems other than Linux.
    """
    if sys.platform != "linux":
        raise InvalidInputError("power loss is simulated on Linux only")
    disk = Disk(top)
    watched = [vars(module) for module in modules]
    for names in watched:
        if names.get("os") is not os:
            raise InvalidInputError(f"{names['__name__']} does not import os, or is being watched already")
        names["os"] = disk.os
    try:
        yield disk
        disk.check()
    finally:
        for names in watched:
            names["os"] = os


class Disk:
    """Everything that was done to the files below a directory, in order. Safe for threads."""

    def __init__(self, top: AnyPath) -> None:
        self.top = os.path.realpath(top)
        self.changes: list[Change] = []
        self.os: Any = _Watched(self)
        self.lock = threading.RLock()
        #: The process dies at the change of this number, which does not happen.
        self.die_at: int | None = None
        self._numbers = itertools.count(TOP + 1)
        self._made: list[Inode] = []
        self._before = Tree()
        self._take_in(self.top, TOP)
        self._live = {inode: dict(entries) for inode, entries in self._before.folders.items()}

    @property
    def now(self) -> int:
        """How many changes there were: the moment, to be given to `crash`."""
        return len(self.changes)

    def found(self, seed: int, at: int | None = None) -> dict[str, bytes | None]:
        """Return what is found after a power cut: path below the top to bytes, None for a directory."""
        with self.lock:
            changes = self.changes[: self.now if at is None else at]
            return after_power_loss(self._before, changes, self._made, seed)

    def crash(self, seed: int, into: AnyPath, at: int | None = None) -> Path:
        """Make a directory as it would be found after a power cut.

        Parameters
        ----------
        seed
            Chooses what survives of all that was not durable.
        into
            The directory to make; its parent exists.
        at
            The moment, as `now` was then: the last of the changes before it may be half done. None is now.

        Returns
        -------
        Path
            The directory that corresponds to `top`. Times of files are not those of the originals.
        """
        os.mkdir(into)
        for path, data in sorted(self.found(seed, at).items()):
            where = f"{os.fspath(into)}/{path}"
            if data is None:
                os.mkdir(where)
            else:
                with open(where, "wb", buffering=0) as file:
                    file.write(data)
        return Path(into)

    def check(self) -> None:
        """Raise `AssertionError` if the files are not what the recorded changes make them."""
        expected = without_power_loss(self._before, self.changes, self._made)
        other = Tree()
        _read(self.top, TOP, other, itertools.count(TOP + 1))
        real = other.paths()
        wrong = sorted(
            path for path in real.keys() | expected.keys() if real.get(path, "") != expected.get(path, "")
        )
        if wrong:
            raise AssertionError(f"files were changed without being recorded: {wrong[:10]}")

    # For the watched functions --------------------------------------------------------------------------

    def covers(self, path: Any) -> bool:
        """Say whether a path (or descriptor) is below the top."""
        return isinstance(path, str | os.PathLike) and f"{os.fspath(path)}/".startswith(f"{self.top}/")

    def locate(self, path: AnyPath) -> tuple[Inode, str]:
        """Return the directory and the name that a path leads to."""
        parts = os.fspath(path)[len(self.top) :].strip("/").split("/")
        folder = TOP
        for part in parts[:-1]:
            folder = self._live[folder][part]
        return folder, parts[-1]

    def inode(self, path: AnyPath) -> Inode:
        """Return the number of an existing file or directory."""
        folder, name = self.locate(path)
        return self._live[folder][name] if name else TOP

    def record(self, change: Change) -> None:
        """Note a change that was carried out."""
        self.changes.append(change)
        if change.kind in ("unlink", "move"):
            del self._live[change.folder][change.name]
        if change.kind == "link":
            self._live[change.folder][change.name] = change.inode
        elif change.kind == "move":
            self._live[change.to_folder][change.to_name] = change.inode

    def add(self, path: AnyPath, *, folder: bool) -> Inode:
        """Note that a file or directory was made; return its number."""
        inode = next(self._numbers)
        if folder:
            self._made.append(inode)
            self._live[inode] = {}
        where, name = self.locate(path)
        self.record(Change("link", inode, where, name))
        return inode

    def begin(self) -> None:
        """Begin a change, unless the process has died."""
        if self.die_at is not None and self.now >= self.die_at:
            raise Crash(f"died at change {self.now} of the disk")

    def _take_in(self, path: str, folder: Inode) -> None:
        _read(path, folder, self._before, self._numbers)


def _read(path: str, folder: Inode, tree: Tree, numbers: Iterator[Inode]) -> None:
    """Read a real directory into a tree."""
    for entry in os.scandir(path):
        inode = next(numbers)
        tree.folders[folder][entry.name] = inode
        if entry.is_dir(follow_symlinks=False):
            tree.folders[inode] = {}
            _read(entry.path, inode, tree, numbers)
        else:
            tree.files[inode] = Path(entry.path).read_bytes()


class _Watched:
    """The module `os`, with the functions that change files recorded for one disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: dict[int, Inode] = {}

    def __getattr__(self, name: str) -> Any:
        if name in _UNKNOWN:
            return self._unknown(name)
        return getattr(os, name)

    def _unknown(self, name: str) -> Callable[..., Any]:
        def refuse(*_: object, **__: object) -> None:
            raise NotImplementedError(f"os.{name} is unknown to the simulated disk")

        return refuse

    def open(self, path: AnyPath, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        disk = self._disk
        if dir_fd is not None or not disk.covers(path):
            return os.open(path, flags, mode, dir_fd=dir_fd)
        with disk.lock:
            disk.begin()
            existed = os.path.lexists(path)
            fd = os.open(path, flags, mode)
            inode = disk.inode(path) if existed else disk.add(path, folder=False)
            self._open[fd] = inode
            if existed and flags & os.O_TRUNC:
                disk.record(Change("resize", inode))
            return fd

    def close(self, fd: int) -> None:
        with self._disk.lock:
            self._open.pop(fd, None)
            os.close(fd)

    def write(self, fd: int, data: Any) -> int:
        disk = self._disk
        with disk.lock:
            disk.begin()
            inode = self._open.get(fd)
            done = os.write(fd, data)
            if inode is not None:
                at = os.lseek(fd, 0, os.SEEK_CUR) - done
                disk.record(Change("write", inode, offset=at, data=bytes(memoryview(data).cast("B")[:done])))
            return done

    def ftruncate(self, fd: int, length: int) -> None:
        disk = self._disk
        with disk.lock:
            disk.begin()
            os.ftruncate(fd, length)
            if fd in self._open:
                disk.record(Change("resize", self._open[fd], offset=length))

    def fsync(self, fd: int) -> None:
        disk = self._disk
        with disk.lock:
            disk.begin()
            inode = self._open.get(fd)
            if inode is not None:
                disk.record(Change("sync", inode))

    fdatasync = fsync

    def replace(self, src: AnyPath, dst: AnyPath) -> None:
        disk = self._disk
        with disk.lock:
            disk.begin()
            if disk.covers(src) != disk.covers(dst):
                raise NotImplementedError("a rename into or out of the simulated disk")
            inode = disk.inode(src) if disk.covers(src) else None
            os.replace(src, dst)
            if inode is not None:
                disk.record(Change("move", inode, *disk.locate(src), *disk.locate(dst)))

    rename = replace

    def unlink(self, path: AnyPath) -> None:
        self._remove(path, os.unlink)

    remove = unlink

    def rmdir(self, path: AnyPath) -> None:
        self._remove(path, os.rmdir)

    def _remove(self, path: AnyPath, remove: Callable[[AnyPath], None]) -> None:
        disk = self._disk
        with disk.lock:
            disk.begin()
            remove(path)
            if disk.covers(path):
                disk.record(Change("unlink", disk.inode(path), *disk.locate(path)))

    def mkdir(self, path: AnyPath, mode: int = 0o777) -> None:
        disk = self._disk
        with disk.lock:
            disk.begin()
            os.mkdir(path, mode)
            if disk.covers(path):
                disk.add(path, folder=True)

    def makedirs(self, path: AnyPath, mode: int = 0o777, exist_ok: bool = False) -> None:
        above = os.path.dirname(os.fspath(path))
        if above and not os.path.isdir(above):
            self.makedirs(above, exist_ok=True)
        try:
            self.mkdir(path, mode)
        except FileExistsError:
            if not exist_ok or not os.path.isdir(path):
                raise
