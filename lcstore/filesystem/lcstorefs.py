"""`lcstore://`: the states of a store as a read-only filesystem of fsspec."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from difflib import get_close_matches
from errno import EISDIR, ENOENT, EROFS, ESTALE
from itertools import islice
from typing import Any, Final, NoReturn

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from lcstore.errors import InvalidInputError, LcstoreError, NotFoundError, ReadOnlyError
from lcstore.filesystem.catalogue import states_of
from lcstore.filesystem.chunkcache import MOST_CACHED
from lcstore.filesystem.files import Entry, File, entry_at
from lcstore.filesystem.statefiles import StateFolder

#: Names that are looked through for one like a name that is not there.
_LOOKED_AT: Final = 5_000


class NoFileError(NotFoundError, FileNotFoundError):
    """There is no such state, or no such file of it."""

    errno = ENOENT


class GoneError(LcstoreError, OSError):
    """A file was there, and the state that it is of was let go of since.

    Zarr takes a chunk without a file, or a name, for one that holds zeros.
    """

    kind = "gone"
    errno = ESTALE


class ReadOnlyFilesError(ReadOnlyError, OSError):
    """Files of states are read; states are saved with `Store.save`."""

    kind = "read-only"
    errno = EROFS


class LcstoreFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """The states of a store, as files that are made when they are read.

    ``/1000/state.safetensors``, ``/latest/tensors/model/fc.weight.npy``: a state is named as in
    `Store.restore`. Only the chunks in which the bytes lie that are asked for are read and decoded.

    The store is listed once, when something is first asked for. What ``latest`` is stays as it is until
    `invalidate_cache`, or ``ls("", refresh=True)``. A step that is not known is looked for anew. Each
    filesystem object looks for itself: fsspec hands out none twice.

    Parameters
    ----------
    fo
        Where the store is, as `lcstore.open` takes it; an open store; or a `Snapshot`, which alone is shown
        then. fsspec gives it for chained URLs: ``lcstore://1000/metadata.json::s3://bucket/run1``.
    url
        The same by another name.
    storage_options
        What the target needs: credentials, endpoints.
    target_protocol, target_options
        What fsspec gives for chained URLs.
    held
        Bytes of decoded chunks that are held at most, so that who reads on has none decoded twice.
    **options
        What fsspec gives to all filesystems.

    Raises
    ------
    InvalidInputError
        There is nothing to say where the store is.

    Examples
    --------
    >>> import fsspec
    >>> fs = fsspec.filesystem("lcstore", url=store.url)
    >>> fs.ls("10", detail=False)[0]
    '10/state.safetensors'
    >>> import numpy as np
    >>> np.load(fs.open("10/tensors/model/weight.npy")).shape
    (64, 64)
    """

    protocol = "lcstore"
    # What is cached for ever would have `latest` be the same for ever.
    cachable = False

    def __init__(
        self,
        fo: Any = None,
        *,
        url: Any = None,
        storage_options: Mapping[str, Any] | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        held: int = MOST_CACHED,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        where = url if fo is None else fo
        if where is None:
            raise InvalidInputError(
                "say where the store is, after two colons: lcstore://1000/metadata.json::s3://bucket/run1, "
                "or ...::file:///data/run1; or fsspec.filesystem('lcstore', url='s3://bucket/run1')"
            )
        self._states = states_of(where, storage_options or target_options or {}, target_protocol, held)

    def __reduce__(self) -> tuple[Any, ...]:
        return LcstoreFileSystem, (self._states,)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        stripped = super()._strip_protocol(path)
        return stripped if isinstance(stripped, list) else stripped.lstrip("/")

    def invalidate_cache(self, path: str | None = None) -> None:
        """Have the store listed anew when something is asked for next."""
        self._states.forget()

    # Looking --------------------------------------------------------------------------------------------

    def ls(self, path: str, detail: bool = True, refresh: bool = False, **kwargs: Any) -> list[Any]:
        """Return what lies in a folder: at the top the steps, in rising order.

        Parameters
        ----------
        path
            The folder, or a file, which is listed by itself.
        detail
            Whether dicts are returned, and not names.
        refresh
            Whether to list the store anew before.
        **kwargs
            What fsspec passes on.
        """
        if refresh:
            self.invalidate_cache()
        path = self._strip_protocol(path)
        if not path:
            with _as_files():
                names = [str(step) for step in self._states.steps()]
            return [_info(name, {}, None) for name in names] if detail else names
        state, found = self._found(path)
        if isinstance(found, File):
            return [_info(path, found, state)] if detail else [path]
        names = [f"{path}/{name}" for name in found]
        entries = zip(names, found.values(), strict=True)
        return [_info(name, entry, state) for name, entry in entries] if detail else names

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return name, size, type, node and time of what lies at a path; no tensor is read for it."""
        path = self._strip_protocol(path)
        if not path:
            with _as_files():
                self._states.steps()
            return _info(path, {}, None)
        state, found = self._found(path)
        return _info(path, found, state)

    def created(self, path: str) -> datetime:
        """Return when a state was saved."""
        state, _ = self._found(path)
        with _as_files(GoneError):
            return state.created

    def modified(self, path: str) -> datetime:
        """Return when a state was saved: it never changes."""
        return self.created(path)

    def ukey(self, path: str) -> str:
        """Return a text that is another one for other content."""
        state, _ = self._found(path)
        return f"{state.snapshot.node}/{self._strip_protocol(path).partition('/')[2]}"

    def _found(self, path: str) -> tuple[StateFolder, Entry]:
        """Return what lies at a path, and the state that it is of."""
        path = self._strip_protocol(path)
        name, _, rest = path.partition("/")
        with _as_files(GoneError if self._states.knew(name) else NoFileError):
            state = self._states.named(name)
        parts = rest.split("/") if rest else []
        with _as_files(GoneError):
            found = entry_at(state, parts)
            said = "" if found is not None else _absent(state, parts, path)
        if found is None:
            raise NoFileError(said)
        return state, found

    # Reading --------------------------------------------------------------------------------------------

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        """Return the bytes of a file, or a range of them as of Python's slices."""
        found = self._file(path)
        low, high, _ = slice(start, end).indices(found.size)
        with _as_files(GoneError):
            return found.read(low, max(low, high))

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> StateFile:
        if mode != "rb":
            self._refuse(path)
        kwargs.setdefault("cache_type", "none")  # what is decoded is held already
        found = self._file(path)
        return StateFile(self, path, found, block_size=block_size, cache_options=cache_options, **kwargs)

    def _file(self, path: str) -> File:
        _, found = self._found(path)
        if not isinstance(found, File):
            raise IsADirectoryError(EISDIR, f"a folder: `ls({path!r})` lists it", path)
        return found

    # Writing --------------------------------------------------------------------------------------------

    def _refuse(self, path: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise ReadOnlyFilesError(
            f"{path!r:.200} cannot be written: states are only read here. Save with "
            "lcstore.open(url).save(step, state), and let go of states with retire or retain"
        )

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        """Refuse to: states are saved with `Store.save`."""
        self._refuse(path)

    makedirs = rmdir = rm_file = _rm = rm = cp_file = _refuse


class StateFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open file of a state."""

    def __init__(self, fs: LcstoreFileSystem, path: str, file: File, **options: Any) -> None:
        super().__init__(fs, path, **{**options, "size": file.size})
        self._file = file
        self._behind = -1

    def _fetch_range(self, start: int, end: int) -> bytes:
        on, self._behind = start == self._behind, end
        with _as_files(GoneError):
            return self._file.read(start, min(end, self._file.size), on=on)


@contextmanager
def _as_files(kind: type[NoFileError | GoneError] = NoFileError) -> Iterator[None]:
    """Have what is not there be a file that is not there, or is not there any more."""
    try:
        yield
    except NotFoundError as error:
        raise kind(error.message, key=error.key, step=error.step) from error


def _info(path: str, entry: Entry, state: StateFolder | None) -> dict[str, Any]:
    size, kind = (entry.size, "file") if isinstance(entry, File) else (0, "directory")
    found: dict[str, Any] = {"name": path, "size": size, "type": kind}
    if state is not None:
        with _as_files(GoneError):
            saved = state.created.timestamp()
        found |= {"node": state.snapshot.node, "created": saved, "mtime": saved}
    return found


def _absent(state: StateFolder, parts: list[str], path: str) -> str:
    """Return the sentence that says what is not there, and what may have been meant."""
    depth = next(i for i in range(len(parts), -1, -1) if isinstance(entry_at(state, parts[:i]), Mapping))
    folder = entry_at(state, parts[:depth])
    assert isinstance(folder, Mapping)
    near = get_close_matches(parts[depth], [*islice(folder, _LOOKED_AT)], n=2)
    here = "/".join([path.partition("/")[0], *parts[:depth]])
    nearest = f"the nearest is {' or '.join(repr(f'{here}/{name}') for name in near)}: " if near else ""
    return f"there is no file {path!r:.300}; {nearest}`ls({here!r})` lists what there is"
