"""Objects on any fsspec target: buckets, servers, archives.

fsspec's filesystems differ in what they promise (`lcstore.storage.traits`), so this uses little of them:
whole buffers in, explicit ranges out, and listings that never come from a cache.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import secrets
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from fsspec.archive import AbstractArchiveFileSystem

from lcstore.errors import (
    CorruptionError,
    InvalidInputError,
    LcstoreError,
    NotFoundError,
    StorageError,
    UnknownOutcomeError,
    reason_of,
)
from lcstore.jobs.deadline import remaining
from lcstore.storage.backend import REFUSALS, BaseBackend, Names, mapped, storage_error
from lcstore.storage.bulk import delete_each, delete_s3
from lcstore.storage.masking import harmless, said_by, without_secrets
from lcstore.storage.safekeys import safe_join, validate_key
from lcstore.storage.traits import target_of, traits_of

#: What clients raise where the bytes that came are not those that the server meant, by name.
_ALTERED: Final = frozenset(["FlexibleChecksumError", "ChecksumError"])
_NO_BUCKET: Final = re.compile(
    r"NoSuchBucket|ContainerNotFound|(bucket|container) does not exist", re.IGNORECASE
)
#: By what names filesystems tell when an object was stored.
_MOMENTS: Final = ("LastModified", "last_modified", "mtime")
_TRUSTED_LENGTH: Final = 1 << 20
#: Folders remembered as made; a store has a few per edge, and forgetting one costs a request.
_MOST_MADE: Final = 4096


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
    read_only
        A protocol of the chain that `fs` is the end of, where nothing can be written over it.

    Notes
    -----
    Where a target cannot publish a whole object at once (SFTP, SMB, FTP and all that is not known to),
    objects are written beside their name and renamed. A filesystem that renames by copying and deleting, as
    fsspec's classes do unless they say otherwise, would show half an object: it is only read. Connections
    do not survive a fork: open the store again in the child.
    """

    def __init__(self, fs: Any, root: str, url: str | None = None, *, read_only: str | None = None) -> None:
        self._fs = fs
        self._root = root.rstrip("/")
        self._read_only = read_only
        self.traits = traits_of(fs, read_only=read_only)
        self._is_s3 = type(fs).__module__.partition(".")[0] == "s3fs"
        self._pid = os.getpid()
        #: Whether there is a network in between.
        self.remote = self.traits.remote
        self._made: set[str] = set()
        self._turn: contextlib.AbstractContextManager[Any] = (
            contextlib.nullcontext() if self.traits.together else _turn_of(fs)
        )
        super().__init__(
            without_secrets(url or str(fs.unstrip_protocol(root))),
            durable=self.traits.durable,
            writable=self.traits.refusal is None,
        )
        if self._is_s3 and "?versionId=" in root:
            said = "has ?versionId= in it, where s3fs cuts names of objects: name a folder without"
            raise InvalidInputError(f"{self._url} {said}")

    @property
    def refusal(self) -> str:
        """Why nothing can be written here, and what to do instead."""
        return f"{self._url} can only be read (mode='r'): {self.traits.refusal}"

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(type(self), read_only=self._read_only), (self._fs, self._root, self._url))

    @contextlib.contextmanager
    def at(self) -> Iterator[tuple[Any, str]]:
        """Give the filesystem, to this thread for the time of a block, and where in it this is."""
        with self._ready() as fs:
            yield fs, self._root

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete objects, many to a request where the target can."""
        wanted = [validate_key(key) for key in keys]
        if not wanted:
            return
        self._check_writable(wanted[0])
        if not self.traits.whole or not self._in_bulk(wanted):
            for key in wanted:
                self.delete(key)
        if not self.traits.whole:
            self._prune({key.rpartition("/")[0] for key in wanted})

    def _in_bulk(self, keys: list[str]) -> bool:
        """Delete objects side by side; return whether all of them are known to be gone."""
        paths = [self._path(key) for key in keys]
        try:
            with self._ready() as fs:
                if self._is_s3:
                    return bool(self._wait(delete_s3(fs, paths)))
                if fs.async_impl and self.traits.together:
                    self._wait(delete_each(fs, paths))
                    return True
        except Exception:
            # Deleting is idempotent: what a bulk request cannot do, single ones settle.
            return False
        return False

    def _put(self, key: str, data: memoryview) -> None:
        # Most clients take bytes only.
        body = bytes(data)
        try:
            if self.traits.whole:
                with self._ready():
                    self._ask("pipe_file", self._path(key), body)
            else:
                self._put_beside(key, body)
        except LcstoreError:
            raise
        except REFUSALS as error:
            raise storage_error("write", key, error) from harmless(error)
        except Exception as error:
            message = f"could not write, as far as is known: {said_by(error)}"
            raise UnknownOutcomeError(message, key=key, reason=reason_of(error)) from harmless(error)

    def _put_beside(self, key: str, body: bytes) -> None:
        path = self._path(key)
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/.tmp-{secrets.token_hex(12)}"
        with self._ready() as fs:
            try:
                self._write_temporary(temporary, folder, body)
                self._rename(temporary, path)
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
            if len(self._made) >= _MOST_MADE:
                self._made.clear()
            self._made.add(folder)
        try:
            self._write(temporary, body)
        except OSError:
            # A collector may have removed the directory since.
            self._fs.makedirs(folder, exist_ok=True)
            self._write(temporary, body)

    def _write(self, path: str, body: bytes) -> None:
        self._fs.pipe_file(path, body)

    def _rename(self, temporary: str, path: str) -> None:
        self._fs.mv(temporary, path)

    def _holds(self, path: str, body: bytes) -> bool:
        try:
            return bool(self._fs.cat_file(path) == body)
        except Exception:
            return False

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        path = self._path(key)
        with self._ready():
            try:
                return self._read(path, start, end)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
                if _lacks_bucket(error):
                    raise NoBucketError(
                        f"there is no bucket {self._root.partition('/')[0]!r}: create it first", key=key
                    ) from error
                raise
            except Exception as error:
                if type(error).__name__ in _ALTERED:
                    raise CorruptionError(f"altered on the way: {error}", key=key) from error
                # Buckets refuse a range that begins at or past the end, servers to read a directory.
                if not isinstance(error, TimeoutError) and self._ends_before(path, start):
                    return b""
                raise

    def _read(self, path: str, start: int, end: int | None) -> bytes:
        if not self.traits.ranges:
            return bytes(self._ask("cat_file", path))[start:end]
        if end is not None and end - start > _TRUSTED_LENGTH and not self.traits.whole:
            # These set aside as much memory as is asked for, whatever the object holds.
            end = max(start, min(end, int(self._ask("info", path)["size"] or end)))
        # An explicit range saves the HEAD request by which some clients first ask for the size.
        return bytes(self._ask("cat_file", path, start=start, end=end))

    def _ends_before(self, path: str, start: int) -> bool:
        try:
            info = self._ask("info", path)
            size = info["size"]
        except Exception:
            return False
        if info.get("type") == "directory":
            raise IsADirectoryError(path)
        return size is not None and int(size) <= start

    def _list(self, prefix: str) -> Names:
        return [*self._listed(prefix)]

    def _lengths(self, prefix: str) -> dict[str, int]:
        return {name: length for name, length in self._listed(prefix).items() if length is not None}

    def _listed(self, prefix: str) -> dict[str, int | None]:
        """Return the names below a prefix, and the length of each where the listing tells it."""
        top = self._path(prefix) if prefix else self._root
        with self._ready() as fs:
            fs.invalidate_cache()
            lengths = self._names(top)
        inside = self._root.lstrip("/") + "/"
        found: dict[str, int | None] = {}
        for path, length in lengths.items():
            bare = path.lstrip("/")
            if not bare.startswith(inside if self._root else ""):
                raise StorageError(f"listing {top!r} named {path[:200]!r}, which lies outside", key=prefix)
            name = bare[len(inside) if self._root else 0 :]
            if not name or name.endswith("/"):  # how consoles of buckets, and some tools, make a folder
                continue
            if (not prefix or name.startswith(f"{prefix}/")) and "/." not in f"/{name}":
                found[name] = length
        return found

    def _names(self, top: str) -> dict[str, int | None]:
        """Return the paths of what lies below a folder, and maybe of more, with lengths where told."""
        if isinstance(self._fs, AbstractArchiveFileSystem):
            # Going from folder to folder, fsspec looks at all names for each of them.
            self._fs._get_dirs()
            entries = self._fs.dir_cache.items()
            files = ((path, info) for path, info in entries if info["type"] == "file")
            return {path: _length_of(info) for path, info in files if _is_below(path, top)}
        return self._find(top) if self.traits.whole else dict(self._walk(top))

    def _find(self, top: str) -> dict[str, int | None]:
        # An access point of S3 is a bucket with a slash in its name.
        bucket, inside, _ = self._fs.split_path(top) if self._is_s3 else ("", "", None)
        try:
            if inside:
                # Of a folder that is empty, s3fs asks three times whether it is.
                found = self._ask("find", bucket, prefix=f"{inside}/", detail=True)
            else:
                found = self._ask("find", top, detail=True)
        except FileNotFoundError:
            return {}
        return {str(path): _length_of(info) for path, info in found.items()}

    def _walk(self, top: str) -> Iterator[tuple[str, int | None]]:
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
                    yield path, _length_of(entry)

    def _delete(self, key: str) -> None:
        with self._ready():
            self._ask("rm_file", self._path(key))

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
        info = self._info(key)
        moment = next((info[name] for name in _MOMENTS if isinstance(info.get(name), datetime)), None)
        if moment is None:
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
            info: dict[str, Any] = self._ask("info", self._path(key))
        if info.get("type") == "directory":
            raise NotFoundError("no such object (a directory has this name)", key=key)
        return info

    def _path(self, key: str) -> str:
        return safe_join(self._root, key) if self._root else validate_key(key)

    def _ask(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of the filesystem; one that can be left waiting, only until the deadline."""
        if remaining() is None or not (self._fs.async_impl and self.traits.together):
            return getattr(self._fs, method)(*args, **options)
        return self._wait(getattr(self._fs, f"_{method}")(*args, **options))

    def _wait(self, answer: Coroutine[Any, Any, Any]) -> Any:
        """Wait for what an asynchronous filesystem does, until the deadline."""
        begun = asyncio.run_coroutine_threadsafe(answer, self._fs.loop)
        try:
            return begun.result(remaining())
        except TimeoutError:
            begun.cancel()
            raise

    @contextlib.contextmanager
    def _ready(self) -> Iterator[Any]:
        if self._pid != os.getpid() and (self.remote or self._fs.async_impl):
            raise StorageError("opened before this process was forked; open the store again in the child")
        with self._turn:
            yield self._fs


def _length_of(info: Mapping[str, Any]) -> int | None:
    size = info.get("size")
    return None if size is None else int(size)


def _is_below(path: str, top: str) -> bool:
    return not top or path.startswith(f"{top}/")


def _lacks_bucket(error: BaseException) -> bool:
    """Return whether an object is absent because what should hold it is."""
    seen: BaseException | None = error
    while seen is not None:
        if _NO_BUCKET.search(str(seen)):
            return True
        seen = seen.__cause__
    return False


def _turn_of(fs: Any) -> Any:
    """Return the lock of a filesystem that threads must not use at once: one for all stores on it."""
    # Caches show the attributes of what they cache as their own.
    attributes = object.__getattribute__(target_of(fs), "__dict__")
    return attributes.setdefault("_lcstore_turn", threading.RLock())
