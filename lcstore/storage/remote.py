"""Objects on any fsspec target: buckets, servers, archives.

fsspec's filesystems differ in what they promise, so this uses little of them: whole buffers in, explicit
ranges out, and listings that never come from a cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from fsspec.implementations.dirfs import DirFileSystem
from fsspec.spec import AbstractFileSystem

from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
)
from lcstore.storage.backend import BaseBackend, Names, mapped, storage_error
from lcstore.storage.deadline import remaining
from lcstore.storage.safekeys import safe_join, validate_key

#: Targets where one request publishes a whole object atomically and durably, and directories do not exist.
OBJECT_STORES: Final = frozenset(
    ["s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oci", "ocilake", "oss", "tos", "tosfs", "memory"]
)
#: Those of them that s3fs serves.
S3: Final = frozenset(["s3", "s3a"])
#: Targets that nothing can be written to, or not safely: caches drop what makes a write atomic.
CACHES: Final = frozenset(["simplecache", "filecache", "blockcache", "cached"])
READ_ONLY: Final = CACHES | frozenset(
    [
        "http",
        "https",
        "zip",
        "tar",
        "libarchive",
        "github",
        "git",
        "gist",
        "reference",
        "data",
        "jlab",
        "jupyter",
    ]
)
#: Targets whose servers may answer a range with the whole object.
_IGNORE_RANGES: Final = frozenset(["http", "https"])
#: Targets of this machine.
_HERE: Final = frozenset(["file", "local", "memory"])
#: Synchronous filesystems that several threads may use at once.
_THREAD_SAFE: Final = frozenset(["file", "local", "memory", "sftp", "ssh"])
#: The target said no before anything was stored; after any other error the write may have landed.
_REFUSALS: Final = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
    NotImplementedError,
)
#: What clients raise where the bytes that came are not those that the server meant, by name.
_ALTERED: Final = frozenset(["FlexibleChecksumError", "ChecksumError"])
_NO_BUCKET: Final = re.compile(
    r"NoSuchBucket|ContainerNotFound|(bucket|container) does not exist", re.IGNORECASE
)
_TRUSTED_LENGTH: Final = 1 << 20
_PASSWORD: Final = re.compile(r"(://[^/@:]*):[^/@]*@")


class NoBucketError(StorageError):
    """What should hold the store, a bucket or container, is not there."""


class FsspecBackend(BaseBackend):
    """Objects below `root` of an fsspec filesystem.

    Parameters
    ----------
    fs
        An fsspec filesystem.
    root
        Where in it the store lies, as `fsspec.core.url_to_fs` returns it.
    url
        For messages; secrets are struck out.
    writable
        False for targets or chains that must not be written to.

    Notes
    -----
    Where a target cannot publish a whole object at once (SFTP, SMB, FTP and all that is not known to),
    objects are written beside their name and renamed. A filesystem that renames by copying and deleting, as
    fsspec's classes do unless they say otherwise, would show half an object: it is only read. Asynchronous
    filesystems do not survive a fork: open the store again in the child.
    """

    def __init__(self, fs: Any, root: str, url: str | None = None, *, writable: bool = True) -> None:
        target = _target_of(fs)
        names = {target.protocol} if isinstance(target.protocol, str) else set(target.protocol)
        self._fs = fs
        self._root = root.rstrip("/")
        self._flat = bool(names & OBJECT_STORES)
        self._finds_by_prefix = type(fs).__module__.partition(".")[0] == "s3fs"
        self._whole_reads = bool(names & _IGNORE_RANGES)
        self._pid = os.getpid()
        #: Whether there is a network in between.
        self.remote = not names & _HERE
        self._made: set[str] = set()
        shared = bool(fs.async_impl) or bool(names & _THREAD_SAFE)
        self._turn: contextlib.AbstractContextManager[Any] = (
            contextlib.nullcontext() if shared else threading.RLock()
        )
        shown = _PASSWORD.sub(r"\1:***@", url or str(fs.unstrip_protocol(root)))
        durable = self._flat and "memory" not in names
        writable = writable and not names & READ_ONLY
        self._copies = writable and not self._flat and _renames_by_copying(target)
        super().__init__(shown, durable=durable, writable=writable and not self._copies)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self._fs, self._root, self._url, self._writable))

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, many to a request where the target can."""
        wanted = [validate_key(key) for key in keys]
        if not wanted:
            return
        self._check_writable(wanted[0])
        if not self._flat or not self._in_bulk(wanted):
            for key in wanted:
                self.delete(key)
        if not self._flat:
            self._prune({key.rpartition("/")[0] for key in wanted})

    def _check_writable(self, key: str) -> None:
        if self._copies:
            raise InvalidInputError(
                f"{self._url} can only be read (mode='r'): {type(self._fs).__name__} renames by copying and "
                "deleting, so readers could see half an object. Write to a directory, a bucket or SFTP",
                key=key,
            )
        super()._check_writable(key)

    def _in_bulk(self, keys: list[str]) -> bool:
        try:
            with self._ready() as fs:
                _ask(fs, "rm", [self._path(key) for key in keys])
        except Exception:
            # Deleting is idempotent: what a bulk request cannot do (one key absent, say), single ones settle.
            return False
        return True

    def _put(self, key: str, data: memoryview) -> None:
        # Most clients take bytes only.
        body = bytes(data)
        try:
            if self._flat:
                with self._ready() as fs:
                    _ask(fs, "pipe_file", self._path(key), body)
            else:
                self._put_beside(key, body)
        except LcstoreError:
            raise
        except _REFUSALS as error:
            raise storage_error("write", key, error) from error
        except Exception as error:
            message = f"the write may or may not have landed: {type(error).__name__}: {error}"
            raise UnknownOutcomeError(message, key=key) from error

    def _put_beside(self, key: str, body: bytes) -> None:
        path = self._path(key)
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/.tmp-{secrets.token_hex(12)}"
        with self._ready() as fs:
            try:
                self._write_temporary(temporary, folder, body)
                fs.mv(temporary, path)
            except BaseException:
                with contextlib.suppress(Exception):
                    fs.rm_file(temporary)
                # Some servers do not rename onto an existing name: the same bytes there are success.
                if self._holds(path, body):
                    return
                raise

    def _write_temporary(self, temporary: str, folder: str, body: bytes) -> None:
        if folder not in self._made:
            self._fs.makedirs(folder, exist_ok=True)
            self._made.add(folder)
        try:
            self._fs.pipe_file(temporary, body)
        except OSError:
            # A collector may have removed the directory since.
            self._fs.makedirs(folder, exist_ok=True)
            self._fs.pipe_file(temporary, body)

    def _holds(self, path: str, body: bytes) -> bool:
        try:
            return bool(self._fs.cat_file(path) == body)
        except Exception:
            return False

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        path = self._path(key)
        with self._ready() as fs:
            if self._whole_reads:
                return bytes(_ask(fs, "cat_file", path))[start:end]
            if end is not None and end - start > _TRUSTED_LENGTH and not self._flat:
                # These set aside as much memory as is asked for, whatever the object holds.
                end = max(start, min(end, int(_ask(fs, "info", path)["size"])))
            try:
                # An explicit range saves the HEAD request by which some clients first ask for the size.
                return bytes(_ask(fs, "cat_file", path, start=start, end=end))
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                if _lacks_bucket(error):
                    raise NoBucketError(
                        f"there is no bucket {self._root.partition('/')[0]!r}: create it first", key=key
                    ) from error
                raise
            except Exception as error:
                if type(error).__name__ in _ALTERED:
                    raise CorruptionError(f"altered on the way: {error}", key=key) from error
                # Buckets refuse a range that begins at or past the end.
                if self._ends_before(path, start):
                    return b""
                raise

    def _ends_before(self, path: str, start: int) -> bool:
        try:
            return int(self._fs.info(path)["size"]) <= start
        except Exception:
            return False

    def _list(self, prefix: str) -> Names:
        top = self._path(prefix) if prefix else self._root
        with self._ready() as fs:
            fs.invalidate_cache()
            paths = list(self._find(top) if self._flat else self._walk(top))
        inside = self._root.lstrip("/") + "/"
        found: Names = []
        for path in paths:
            bare = path.lstrip("/")
            if not bare.startswith(inside):
                raise StorageError(f"listing {top!r} named {path[:200]!r}, which lies outside", key=prefix)
            name = bare[len(inside) :]
            if (not prefix or name.startswith(f"{prefix}/")) and "/." not in f"/{name}":
                found.append(name)
        return found

    def _find(self, top: str) -> Iterable[str]:
        bucket, _, inside = top.partition("/")
        try:
            if self._finds_by_prefix and inside:
                # Of a folder that is empty, s3fs asks three times whether it is.
                return map(str, _ask(self._fs, "find", bucket, prefix=f"{inside}/"))
            return map(str, _ask(self._fs, "find", top))
        except FileNotFoundError:
            return []

    def _walk(self, top: str) -> Iterable[str]:
        # Not `find`: by default it takes a directory that could not be listed for an empty one.
        pending = [top]
        while pending:
            try:
                entries = self._fs.ls(pending.pop(), detail=True)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for entry in entries:
                path = str(entry["name"]).rstrip("/")
                if entry["type"] == "directory":
                    pending.append(path)
                else:
                    yield path

    def _delete(self, key: str) -> None:
        with self._ready() as fs:
            _ask(fs, "rm_file", self._path(key))

    def _prune(self, folders: set[str]) -> None:
        """Remove directories that deletions left empty; it does no harm where that fails."""
        for folder in sorted(folders, key=len, reverse=True):
            while "/" in folder:
                self._made.discard(self._path(folder))
                try:
                    with self._ready() as fs:
                        fs.rmdir(self._path(folder))
                except Exception:
                    break
                folder = folder.rpartition("/")[0]

    def _size(self, key: str) -> int:
        size = self._info(key).get("size")
        return len(self._get(key, 0, None)) if size is None else int(size)

    def _created(self, key: str) -> float | None:
        if not self._flat:
            self._info(key)
        try:
            with self._ready() as fs:
                moment = fs.modified(self._path(key))
        except (NotImplementedError, KeyError):
            return None
        if not isinstance(moment, datetime):
            return None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def _info(self, key: str) -> dict[str, Any]:
        with self._ready() as fs, mapped("look at", key, absent=True):
            fs.invalidate_cache()
            info: dict[str, Any] = _ask(fs, "info", self._path(key))
        if info.get("type") == "directory":
            raise NotFoundError("no such object (a directory has this name)", key=key)
        return info

    def _path(self, key: str) -> str:
        return safe_join(self._root, key)

    @contextlib.contextmanager
    def _ready(self) -> Iterator[Any]:
        if self._fs.async_impl and self._pid != os.getpid():
            raise StorageError("opened before this process was forked; open the store again in the child")
        with self._turn:
            yield self._fs


def _ask(fs: Any, method: str, *args: Any, **options: Any) -> Any:
    """Call a method of a filesystem. One that can be left waiting is not waited for past the deadline."""
    left = remaining()
    if left is None or not fs.async_impl:
        return getattr(fs, method)(*args, **options)
    answer = asyncio.run_coroutine_threadsafe(getattr(fs, f"_{method}")(*args, **options), fs.loop)
    try:
        return answer.result(left)
    except TimeoutError:
        answer.cancel()
        raise


def _lacks_bucket(error: BaseException) -> bool:
    """Return whether an object is absent because what should hold it is."""
    seen: BaseException | None = error
    while seen is not None:
        if _NO_BUCKET.search(str(seen)):
            return True
        seen = seen.__cause__
    return False


def _target_of(fs: Any) -> Any:
    """Return the filesystem that a chain of prefixed folders (``dir::``) ends at."""
    while isinstance(fs, DirFileSystem):
        fs = fs.fs
    return fs


def _renames_by_copying(fs: Any) -> bool:
    """Return whether a filesystem has no rename of its own, only fsspec's copy and delete."""
    return type(fs).mv is AbstractFileSystem.mv


def _rebuild(fs: Any, root: str, url: str, writable: bool) -> FsspecBackend:
    return FsspecBackend(fs, root, url, writable=writable)
