"""The place of a new store: it lies in no other store, and none in it.

What tends the outer one would take the inner one for files that do not belong there. Of a folder of this
machine `lcstore.open` finds that out. Elsewhere each look takes a request, so the first save does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final

from lcstore.errors import InvalidInputError, StorageError
from lcstore.format import keys
from lcstore.storage.backend import Backend, exists, mapped
from lcstore.storage.finding import LEVELS, LOOKS, OWN, looking, stores_below, walk
from lcstore.storage.memory import MemoryBackend
from lcstore.storage.patient import Patience, PatientBackend
from lcstore.storage.remote import FsspecBackend

#: Seconds for the look around: a first save waits for it, and the folders of a bucket may be of any size.
_LONGEST: Final = 5.0


def refuse(place: object, above: object, inside: object) -> None:
    """Refuse a place for a new store that lies in another one, or in which one lies; None where none does.

    Raises
    ------
    InvalidInputError
        One does.
    """
    apart = "stores do not lie in each other"
    if above is not None:
        raise InvalidInputError(f"{place} lies inside the store {above}: {apart}")
    if inside is not None:
        raise InvalidInputError(f"the store {inside} lies in {place}: {apart}")


def check_around(backend: Backend) -> None:
    """Refuse a place for a new store as `refuse` does, as far as requests tell: nothing, of a local folder.

    What cannot be looked at is passed over, as who may save here need not see what lies beside it. So is what
    another process makes in this moment.

    Raises
    ------
    InvalidInputError
        It lies in another store, or one in it; and it is no store yet.
    """
    try:
        refuse(backend.url, *_around(backend))
    except InvalidInputError:
        if not exists(backend, keys.STORE_KEY):  # another process may have made it one
            raise


def _around(backend: Backend) -> tuple[str | None, str | None]:
    """Return the URL of a store in which a place lies, and of one in it, as far as they are seen."""
    inner = backend.inner if isinstance(backend, PatientBackend) else backend
    with suppress(StorageError):
        if isinstance(inner, MemoryBackend) and inner.url.startswith("memory://"):
            return _in_memory(inner.url)
        if isinstance(inner, FsspecBackend) and "::" not in inner.url:
            look = partial(_on_target, inner)
            if not isinstance(backend, PatientBackend):
                return look()
            once = Patience(min(_LONGEST, backend.patience.timeout), retries=0)
            return PatientBackend(inner, once).ask("look at", "the folders around", look)
    return None, None


def _in_memory(url: str) -> tuple[str | None, str | None]:
    above = (up for up in _above(url.removeprefix("memory://")) if _is_in_memory(f"memory://{up}"))
    return next((f"memory://{up}" for up in above), None), next(iter(stores_below(url, most=1, own=())), None)


def _is_in_memory(url: str) -> bool:
    return stores_below(url)[:1] == [url]


def _on_target(backend: FsspecBackend) -> tuple[str | None, str | None]:
    """Look with a request for each folder above, and with one listing where nothing foreign lies here."""
    url = backend.url.rstrip("/")
    with mapped("list", url), backend.at() as (fs, root):
        up = next((up for up in _above(root) if _is_there(fs, f"{up}/{keys.STORE_KEY}")), None)
        above = None if up is None else url.removesuffix(root[len(up) :])
        found = next(walk(looking(fs), root, LEVELS, LOOKS, own=OWN), None)
        return above, None if found is None else f"{url}{found[len(root) :]}"


def _above(path: str) -> Iterator[str]:
    """Yield the folders that a folder lies in, the nearest first, but for those of second copies."""
    while path := path.rpartition("/")[0]:
        if path.rpartition("/")[2] != keys.COPIES:
            yield path


def _is_there(fs: Any, path: str) -> bool:
    try:
        fs.cat_file(path, start=0, end=1)
    except Exception:  # clients say in many ways that something is not there, or may not be read
        return False
    return True
