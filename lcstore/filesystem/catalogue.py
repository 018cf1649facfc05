"""The states of a store by what they are called in paths, as of one look at it."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping
from threading import RLock
from typing import Any, Final

import fsspec

from lcstore.errors import InvalidInputError, NotFoundError
from lcstore.filesystem.chunkcache import ChunkCache
from lcstore.filesystem.decoded import Where
from lcstore.filesystem.quoting import quoted, unquoted
from lcstore.filesystem.statefiles import StateFolder
from lcstore.format.keyforms import is_number
from lcstore.format.labels import At
from lcstore.graph.graph import Graph
from lcstore.index.resolve import no_store
from lcstore.read.find import snapshot_at
from lcstore.read.reader import Reader
from lcstore.read.snapshot import Snapshot
from lcstore.records.kinds import is_store
from lcstore.storage.backend import Backend
from lcstore.storage.patient import patient
from lcstore.storage.targets import backend_at, open_backend

#: A name with a slash, as messages quote it.
_SLASHED: Final = re.compile(r"'[^' ]*/[^' ]*'")
#: States of which is held what their paths say of each tensor: of others it is read once more.
_MOST_FOLDERS: Final = 32


class States:
    """The states of a store, or a single one. Thread-safe; of use after a fork, and in other processes.

    Parameters
    ----------
    backend
        Where the store is.
    most
        Bytes of decoded chunks that are held at most.
    only
        The one state that is shown; None for all.
    known
        Node ids of states that were found before, by what they are called; None before the last look.
    held
        Those of them that were used last, by node id: whoever has them need not list the store.
    options
        What the target needs, to look around where there is no store.
    """

    def __init__(
        self,
        backend: Backend,
        most: int,
        only: Snapshot | None = None,
        known: Mapping[str, str | None] | None = None,
        held: Mapping[str, Snapshot] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._backend = backend
        self._most = most
        self._only = only
        self._known: dict[str, str | None] = dict(known or {})
        self._options = options
        self._begin(held or {})

    def _begin(self, held: Mapping[str, Snapshot]) -> None:
        self._process = os.getpid()
        self._lock = RLock()
        self._cache: ChunkCache[Where] = ChunkCache(self._most)
        self._reader = Reader.alone(self._backend)
        self._folders = {node: StateFolder(found, self._cache) for node, found in held.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        known = self._known.copy()
        return States, (self._backend, self._most, self._only, known, self._snapshots, self._options)

    @property
    def _snapshots(self) -> dict[str, Snapshot]:
        held = self._folders.copy()  # at once: other threads read on, and a fork must wait for none of them
        return {node: folder.snapshot for node, folder in held.items()}

    def forget(self) -> None:
        """Have the store listed anew when a state is asked for next."""
        self._check_process()
        with self._lock:  # others read on
            self._known, self._folders = dict.fromkeys(self._known), {}
            self._reader = Reader.alone(self._backend)

    def knew(self, text: str) -> bool:
        """Return whether a state was found under a name, now or before the last look."""
        return text in self._known

    def look(self) -> Graph:
        """Return what the store's listing shows; it is listed once.

        Raises
        ------
        NotFoundError
            There is no store.
        """
        self._check_process()
        with self._lock:
            index = self._reader.index
            if not index.is_listed:
                self._reader.listed()
            if not index.graph.nodes and not is_store(self._backend):
                raise no_store(self._backend, self._backend.url, self._options)
            return index.graph

    def steps(self) -> list[int]:
        """Return the steps, in rising order."""
        return self.look().steps() if self._only is None else [self._only.step]

    def named(self, text: str) -> StateFolder:
        """Return the state of a step, of a quoted tag, a node's id, of ``latest`` or a quoted ``best:loss``.

        Raises
        ------
        NotFoundError
            There is no such state; the store was listed anew to see it.
        """
        self._check_process()
        with self._lock:
            node = self._known.get(text)
            if node not in self._folders:
                found = self._find(text if node is None else node)
                node = self._known[text] = found.node
                self._folders.setdefault(node, StateFolder(found, self._cache))
            folder = self._folders[node] = self._folders.pop(node)  # the last to go
            if len(self._folders) > _MOST_FOLDERS:
                del self._folders[next(iter(self._folders))]
            return folder

    def _find(self, text: str) -> Snapshot:
        at: At = int(text) if is_number(text) else text
        only = self._only
        if only is not None:
            if at in (only.step, "latest", only.node) or (len(text) > 7 and only.node.startswith(text)):
                return only
            said = f"{only!r} is all that is shown here, and not {text!r:.100}"
            raise NotFoundError(said, missing="state")
        listed = self._reader.index.is_listed
        self.look()
        try:
            return self._resolved(at)
        except NotFoundError:
            if not listed:
                raise
            self._reader.listed()
            return self._resolved(at)

    def _resolved(self, at: At) -> Snapshot:
        if isinstance(at, str):
            tags = {quoted((tag,))[0]: tag for tag in self._reader.index.tagged()}
            at = tags.get(at, unquoted(at) if at.startswith("best:") else at)
        try:
            return snapshot_at(self._reader, at, listed=True)
        except (InvalidInputError, NotFoundError) as error:
            if _SLASHED.search(error.message):
                error.message += "; in a path the / of a name is written ~1"
            raise

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # neither locks nor threads nor connections came along
            is_here = self._reader.url.startswith("memory:")
            self._backend = self._backend if is_here else copy.deepcopy(self._backend)
            self._begin(self._snapshots)


def states_of(where: Any, options: Mapping[str, Any], protocol: str | None, most: int) -> States:
    """Return the states of what a user names.

    Parameters
    ----------
    where
        A URL or path, a backend, an open store, a snapshot; or states.
    options
        What the target needs.
    protocol
        Of a chained URL the protocol of the target: `where` is without it then.
    most
        Bytes of decoded chunks that are held at most.
    """
    if isinstance(where, States):
        return where
    if isinstance(where, Snapshot):
        return States(where.using(lambda state: state.reader.backend), most, where)
    backend = getattr(where, "backend", None)  # an open store
    if backend is None:
        backend = patient(_backend_of(where, options, protocol), None, None)
    return States(backend, most, options=options)


def _backend_of(where: Any, options: Mapping[str, Any], protocol: str | None) -> Backend:
    """Return the backend of a URL, or of a target as fsspec takes chained URLs apart."""
    if protocol is None or not isinstance(where, str):
        return open_backend(where, options)
    if "target_protocol" in options:  # a chain of more than two
        fs = fsspec.filesystem(protocol, **options)
        shown = f"{protocol}::{options['target_protocol']}://{where}"
        return backend_at(fs, fs._strip_protocol(where), shown, read_only=protocol)
    path = where.lstrip("/") if protocol == "memory" else where
    return open_backend(path if "://" in path else f"{protocol}://{path}", options)
