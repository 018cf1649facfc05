"""What zarr opens: a read-only store of zarr's over folders of files that are made when they are read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from zarr.abc.store import (
    ByteRequest,
    OffsetByteRequest,
    RangeByteRequest,
    Store,
    SuffixByteRequest,
)

from lcstore.errors import ReadOnlyError
from lcstore.filesystem.files import Entry, File, Folder, entry_at

if TYPE_CHECKING:
    from zarr.core.buffer import Buffer, BufferPrototype


class FolderStore(Store):
    """A Zarr hierarchy that is a folder. It pickles as what makes the folder."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, make: Callable[..., Folder], *arguments: Any) -> None:
        super().__init__(read_only=True)
        self._made_of = (make, *arguments)
        self._folder = make(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return FolderStore, self._made_of

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FolderStore) and self._made_of == other._made_of

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"<lcstore hierarchy of {', '.join(map(repr, self._made_of[1:]))}>"

    def with_read_only(self, read_only: bool = False) -> FolderStore:
        """Return a store of the same hierarchy; it can only be read."""
        if not read_only:
            self._refuse()
        return FolderStore(*self._made_of)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return what is stored under a key, or a range of it; None where nothing is."""
        found = self._entry(key)
        if not isinstance(found, File):
            return None
        data = await asyncio.to_thread(found.read, *_bounds(found.size, byte_range))
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Return ranges of what is stored under keys."""
        return [*await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges))]

    async def exists(self, key: str) -> bool:
        """Return whether something is stored under a key."""
        return isinstance(self._entry(key), File)

    async def getsize(self, key: str) -> int:
        """Return the bytes of what is stored under a key."""
        found = self._entry(key)
        if not isinstance(found, File):
            raise FileNotFoundError(key)
        return found.size

    async def list(self) -> AsyncIterator[str]:
        """Yield all keys."""
        for key in _keys(self._folder, ""):
            yield key

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """Yield the keys that begin so."""
        above, slash, _ = prefix.rpartition("/")
        found = self._entry(above)
        for key in _keys(found, above + slash) if isinstance(found, Mapping) else ():
            if key.startswith(prefix):
                yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """Yield what lies in a folder."""
        found = self._entry(prefix.rstrip("/"))
        for name in found if isinstance(found, Mapping) else ():
            yield name

    async def set(self, key: str, value: Buffer) -> None:
        """Refuse to."""
        self._refuse()

    async def delete(self, key: str) -> None:
        """Refuse to."""
        self._refuse()

    def _entry(self, key: str) -> Entry | None:
        return entry_at(self._folder, key.split("/") if key else [])

    def _refuse(self) -> NoReturn:
        raise ReadOnlyError("a hierarchy of saved states is only read: states are saved by save(step, state)")


def _keys(folder: Folder, prefix: str) -> Iterator[str]:
    for name, entry in folder.items():
        if isinstance(entry, File):
            yield prefix + name
        else:
            yield from _keys(entry, f"{prefix}{name}/")


def _bounds(size: int, part: ByteRequest | None) -> tuple[int, int]:
    """Return which bytes of a file are asked for."""
    if isinstance(part, RangeByteRequest):
        return min(part.start, size), min(part.end, size)
    if isinstance(part, OffsetByteRequest):
        return min(part.offset, size), size
    if isinstance(part, SuffixByteRequest):
        return max(0, size - part.suffix), size
    return 0, size
