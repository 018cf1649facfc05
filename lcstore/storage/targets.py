"""From a URL to the backend for it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import fsspec

from lcstore.errors import InvalidInputError, StorageError
from lcstore.storage.backend import Backend
from lcstore.storage.jobs import REQUESTS
from lcstore.storage.local import LocalBackend
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.remote import OBJECT_STORES, READ_ONLY, S3, FsspecBackend

#: What makes an object a backend.
_BACKEND: Final = (
    "url",
    "durable",
    "writable",
    "put",
    "get",
    "list",
    "delete",
    "delete_many",
    "size",
    "created",
)


def open_backend(
    url: str | os.PathLike[str] | Backend, storage_options: Mapping[str, object] | None = None
) -> Backend:
    """Return the backend for `url`. Nothing is created until it is used.

    Parameters
    ----------
    url
        A local path, ``file://...``, ``memory://name``, any URL that fsspec opens (chained ones too), or a
        backend, which is returned as it is.
    storage_options
        What fsspec passes on to the target: credentials, endpoints.

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
        raise InvalidInputError(f"not a URL, path or backend: {url!r:.200}")
    text = os.fspath(url)
    options = dict(storage_options or {})
    if not text:
        raise InvalidInputError("the URL of a store is empty")
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)", text):  # more than one letter: C:/ is a drive
        raise InvalidInputError(
            f"{text!r} has one slash after its colon: a URL has two, a path can begin with ./"
        )
    protocols = _protocols(text)
    if protocols == ["memory"]:
        _no_options(text, options)
        return MemoryBackend(text.partition("://")[2])
    if protocols in (["file"], ["local"]):
        _no_options(text, options)
        return LocalBackend(text.partition("://")[2] if "://" in text else text)
    return _open_fsspec(text, protocols, options)


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
    for folder, _, files in os.walk(root):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            with suppress(OSError):  # deleted since it was listed
                blocks += os.lstat(path).st_blocks
    return 512 * blocks


def _protocols(url: str) -> list[str]:
    """Return the protocols of a URL, outermost first; a plain path is a file."""
    return [
        part.partition("://")[0] if "://" in part else (part if "::" in url else "file")
        for part in url.split("::")
    ]


def _no_options(url: str, options: dict[str, object]) -> None:
    if options:
        raise InvalidInputError(f"{url} takes no storage options; got {sorted(options)}")


def _open_fsspec(url: str, protocols: list[str], options: dict[str, object]) -> Backend:
    if len(protocols) == 1 and protocols[0] in OBJECT_STORES:
        # A cached listing hides what other writers stored.
        options.setdefault("use_listings_cache", False)
    if len(protocols) == 1 and protocols[0] in S3:
        # Ten by default: the other requests of a handle would wait for them.
        config = options.get("config_kwargs")
        given = dict(config) if isinstance(config, Mapping) else {}
        options["config_kwargs"] = {"max_pool_connections": REQUESTS} | given
    try:
        fs, root = fsspec.core.url_to_fs(url, **options)
    except (ImportError, ValueError, TypeError) as error:
        raise InvalidInputError(f"cannot open {protocols[0]!r} URLs: {error}") from error
    except Exception as error:
        raise StorageError(f"could not open the target: {type(error).__name__}: {error}") from error
    return FsspecBackend(fs, root, url, writable=READ_ONLY.isdisjoint(protocols))
