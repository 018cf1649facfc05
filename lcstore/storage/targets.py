"""From a URL to the backend for it."""

from __future__ import annotations

import os
import re
import shutil
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote

import fsspec
from fsspec.archive import AbstractArchiveFileSystem
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.spec import AbstractFileSystem

from lcstore.errors import InvalidInputError, StorageError
from lcstore.jobs.jobs import REQUESTS
from lcstore.storage.backend import Backend, mapped
from lcstore.storage.finding import OWN, store_in_archive
from lcstore.storage.local import LocalBackend
from lcstore.storage.masking import harmless, said_by, without_secrets
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import FsspecBackend
from lcstore.storage.sftp import SftpBackend
from lcstore.storage.traits import ARCHIVES, OBJECT_STORES, READ_ONLY, S3, WEB
from lcstore.storage.web import WebBackend

#: What a small file takes of a disk, as a rule.
BLOCK: Final = 4096
#: A link of a chain that is a protocol alone, as fsspec tells it from a path.
_CHAINED: Final = re.compile(r"[a-z][a-z0-9_]*")
_LOGIN: Final = re.compile(r"(?P<protocol>https?)://(?P<user>[^/@:\s]*):(?P<password>[^\s/]*)@")
#: What makes an object a backend.
_BACKEND: Final = (
    "url", "durable", "writable", "put", "get", "list", "delete", "delete_many", "size", "created",
)  # fmt: skip


def open_backend(
    url: str | os.PathLike[str] | Backend, storage_options: Mapping[str, Any] | None = None
) -> Backend:
    """Return the backend for `url`. Nothing is created until it is used.

    Parameters
    ----------
    url
        A local path, ``file://...``, ``memory://name``, any URL that fsspec opens (chained ones too), or a
        backend, which is returned as it is.
    storage_options
        What fsspec passes on to the target: credentials, endpoints. Those of a chain are given by protocol:
        ``{"s3": {...}}``.

    Raises
    ------
    InvalidInputError
        If no installed package knows the URL, or the options are not for it.
    StorageError
        If the target cannot be reached while opening it.

    Notes
    -----
    ``http(s)``, archives and cached chains (``simplecache::...``) are opened for reading only: their `put`
    says so.
    """
    if not isinstance(url, str | os.PathLike):
        # Not isinstance: from Python 3.12 on that overlooks what a wrapper passes on to the one inside.
        if all(hasattr(url, name) for name in _BACKEND):
            return url
        hint = "; of a store that is open, give store.url" if hasattr(url, "url") else ""
        raise InvalidInputError(f"not a URL, path or backend: {url!r:.200}{hint}")
    text = os.fspath(url)
    bare = without_secrets(text)
    try:
        options = dict(storage_options or {})
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            f"storage_options is a dict, as {{'anon': True}}, not a {type(storage_options).__name__}"
        ) from error
    if not text:
        raise InvalidInputError("the URL of a store is empty")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)|file:(?!/)", text):  # more than one letter: C:/ is a drive
        raise InvalidInputError(
            f"{bare!r} has no two slashes after its colon: a URL has, a path can begin with ./"
        )
    if re.match(r"(?:file|local)://(?![/~.\\]|[A-Za-z]:)[^/]", text) and "::" not in text:
        path = text.partition("://")[2].removeprefix("localhost/")
        raise InvalidInputError(
            f"{bare!r} has two slashes before its path: file:///{path} is below the top of this machine, and "
            f"./{path} below the folder that you are in"
        )
    bucket = re.search(r"(?:^|::)(s3a?|gcs|gs)://(?!arn:)[^/@]*:[^@]*@", text)
    if bucket is not None:
        raise InvalidInputError(
            f"{bare!r} has a password before its bucket, and {bucket[1]}:// has no place for one: "
            "give it in storage_options, or let the client find it in its environment"
        )
    protocols = _protocols(text)
    named = {*re.findall(r"(?:^|::)(\w+)://", text), *fsspec.available_protocols(), *fsspec.registry}
    if len(protocols) > 1 and (named - {"file", "local"}).isdisjoint(protocols):
        raise InvalidInputError(
            f"{bare!r} has '::' in it, which chains URLs, as in simplecache::s3://bucket/run, and names no "
            "protocol: the folder of a store has another name, or a link with one"
        )
    if protocols == ["memory"]:
        _no_options(text, options)
        return MemoryBackend(text.partition("://")[2])
    if protocols in (["file"], ["local"]):
        _no_options(text, options)
        return LocalBackend(text.partition("://")[2] if "://" in text else text)
    return _open_fsspec(text, protocols, options)


def backend_on(fs: Any, path: str | os.PathLike[str] = "") -> Backend:
    """Return the backend for a path of a filesystem that somebody has opened.

    Parameters
    ----------
    fs
        A filesystem of fsspec, with its credentials.
    path
        Where in it the store is: ``"bucket/run1"``. It may be left out for archives and prefixed folders.

    Raises
    ------
    InvalidInputError
        `fs` is no filesystem of fsspec, or one for coroutines; or a path is needed.
    """
    if not isinstance(fs, AbstractFileSystem):
        raise InvalidInputError(
            f"fs is of type {type(fs).__name__}; it is a filesystem of fsspec, as fsspec.filesystem('s3') is"
        )
    path = os.fspath(path)
    while isinstance(fs, DirFileSystem):
        path, fs = fs._join(path), fs.fs
    if getattr(fs, "asynchronous", False):
        raise InvalidInputError("fs was made for coroutines (asynchronous=True): make it without")
    root = fs._strip_protocol(path)
    return LocalBackend(root) if isinstance(fs, LocalFileSystem) else backend_at(fs, root)


def is_near(backend: Backend) -> bool:
    """Return whether a target answers at once: it is a local directory, or memory."""
    return set(_protocols(backend.url)) <= {"file", "local", "memory"}


def keeps_twice(backend: Backend) -> bool:
    """Return whether a target keeps its objects several times by itself, as buckets do."""
    return not (OBJECT_STORES - {"memory"}).isdisjoint(_protocols(backend.url))


def bytes_on_disk(backend: Backend) -> int | None:
    """Return the bytes that a local store takes of its disk, in whole blocks; None where nothing tells."""
    scheme, _, root = backend.url.partition("://")
    if scheme != "file" or not hasattr(os.stat_result, "st_blocks"):
        return None
    blocks = 0
    for folder, inside, files in os.walk(root):
        if folder == root:  # another store may lie here, or what else a run writes
            inside[:] = [name for name in inside if name in OWN or name.startswith(".")]
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            with suppress(OSError):  # deleted since it was listed
                blocks += os.lstat(path).st_blocks
    return 512 * blocks


def bytes_free(backend: Backend) -> int | None:
    """Return the bytes that may still be written to the disk of a local store; None where nothing tells."""
    scheme, _, root = backend.url.partition("://")
    with suppress(OSError):
        return shutil.disk_usage(root).free if scheme == "file" else None
    return None


def bytes_lacking(backend: Backend, files: int, freed: int = 0) -> int:
    """Return the bytes that the disk of a local store lacks for small files, some being freed before.

    0 where nothing tells.
    """
    free = bytes_free(backend)
    return 0 if free is None else max(0, files * BLOCK - free - freed)


def _protocols(url: str) -> list[str]:
    """Return the protocols of a URL, outermost first; a plain path is a file."""

    def protocol(link: str) -> str:
        if "://" in link:
            return link.partition("://")[0]
        return link if "::" in url and _CHAINED.fullmatch(link) else "file"

    return [protocol(link) for link in url.split("::")]


def _no_options(url: str, options: dict[str, Any]) -> None:
    if options:
        raise InvalidInputError(f"{without_secrets(url)} takes no storage options; got {sorted(options)}")


def _open_fsspec(url: str, protocols: list[str], options: dict[str, Any]) -> Backend:
    read_only = next((name for name in protocols if name in READ_ONLY), None)
    links = _options_by_link(protocols, options)
    bare = _without_login(url, protocols, links)
    if protocols[0] in ARCHIVES and "::" not in bare and "fo" not in links.get(protocols[0], ()):
        raise InvalidInputError(
            f"{without_secrets(url)} names no archive: that comes after '::', as in "
            f"{protocols[0]}://FOLDER::ARCHIVE, or {protocols[0]}::ARCHIVE"
        )
    try:
        fs, root = fsspec.core.url_to_fs(bare, **links)
    except (ImportError, ValueError, TypeError) as error:
        if "range requests" in str(error):
            raise InvalidInputError(
                f"the server behind {without_secrets(url)} gives whole files only: put simplecache:: in "
                "between, as in zip::simplecache::https://host/runs.zip"
            ) from None
        # What cannot be parsed may be a password: nothing of it is told.
        said = str(error) if without_secrets(url) == url else type(error).__name__
        raise InvalidInputError(f"cannot open {protocols[0]!r} URLs: {without_secrets(said)}") from None
    except Exception as error:
        raise StorageError(f"could not open the target: {said_by(error)}") from harmless(error)
    return backend_at(fs, root, url, read_only)


def backend_at(fs: Any, root: str, url: str | None = None, read_only: str | None = None) -> Backend:
    """Return the backend for a place in a filesystem, as the filesystem itself names it.

    `url` is for messages; `read_only` is a protocol of the chain over which nothing can be written.
    """
    if isinstance(fs, AbstractArchiveFileSystem):
        with mapped("list", url or "the archive"):
            root = store_in_archive(fs, root)
    elif not root.strip("/"):
        what = without_secrets(url) if url else "the path"
        raise InvalidInputError(f"{what} is the top of a target: name a folder or a bucket in it")
    if root.startswith(tuple(f"{name}://" for name in WEB)):
        if "?" in root:
            raise InvalidInputError(f"{without_secrets(root)} has a query: it names one object, no folder")
        return WebBackend(fs, root, url, read_only=read_only)
    if type(fs).__module__ == "fsspec.implementations.sftp":
        return SftpBackend(fs, root, url)
    return FsspecBackend(fs, root, url, read_only=read_only)


#: What the client of S3 is told: it has ten connections by default, and the other requests of a handle would
#: wait for them.
_OF_S3: Final[dict[str, Any]] = {"max_pool_connections": REQUESTS}
#: How often it tries. With five, of which s3fs makes five times as many, it says nothing of a server that
#: answers "slow down" before a request is given up.
_TRIES: Final = 3


def _options_by_link(protocols: list[str], given: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options of each link of a chain: what the user gave, and what lcstore needs.

    Raises
    ------
    InvalidInputError
        Options of a chain do not say which link they are for.
    """
    nested = [name for name, value in given.items() if name in protocols and isinstance(value, Mapping)]
    links = {name: dict(given[name]) for name in nested}
    rest = {name: value for name, value in given.items() if name not in nested}
    if rest and len(protocols) > 1:
        raise InvalidInputError(
            f"storage options of a chain are given by link, {{{protocols[-1]!r}: {{...}}}}; "
            f"got {sorted(rest)} for none of {', '.join(protocols)}"
        )
    for name in protocols:
        link = links.get(name, {}) | rest
        if name in OBJECT_STORES:
            # A cached listing hides what other writers stored.
            link.setdefault("use_listings_cache", False)
        if name in S3:
            config = _OF_S3 | dict(link.get("config_kwargs") or {})
            if "AWS_MAX_ATTEMPTS" not in os.environ:
                config.setdefault("retries", {"total_max_attempts": _TRIES})
            link["config_kwargs"] = config
        links[name] = link
    return {name: link for name, link in links.items() if link}


def _without_login(url: str, protocols: list[str], links: dict[str, dict[str, Any]]) -> str:
    """Return a URL whose user and password, where it is one of the web, went into the options of its link.

    The client of the web puts the URL into its errors.
    """
    found = _LOGIN.search(url)
    if found is None or WEB.isdisjoint(protocols):
        return url
    login = b64encode(unquote(f"{found['user']}:{found['password']}").encode()).decode()
    link = links.setdefault(found["protocol"], {})
    client = dict(link.get("client_kwargs") or {})
    client["headers"] = {"Authorization": f"Basic {login}"} | dict(client.get("headers") or {})
    link["client_kwargs"] = client
    return url.replace(found[0], f"{found['protocol']}://", 1)
