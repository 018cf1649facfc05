"""Setting an object aside: what was found in its place is kept, whatever it is."""

from __future__ import annotations

from lcstore.errors import NotFoundError
from lcstore.format import keys
from lcstore.format.hashing import hash_of
from lcstore.limits import MAX_CHUNK_BYTES, check
from lcstore.storage.backend import Backend
from lcstore.storage.safekeys import is_key


def set_aside(backend: Backend, key: str) -> str | None:
    """Copy an object into quarantine, then delete it. Return its key there; None where it is gone."""
    found = place_aside(backend, key)
    if found is None:
        return None
    backend.put(*found)
    backend.delete(key)
    return found[0]


def place_aside(backend: Backend, key: str) -> tuple[str, bytes] | None:
    """Return an object's key in quarantine, which is free or has it already, and its bytes; None if gone."""
    try:
        nbytes = check(backend.size(key), MAX_CHUNK_BYTES, "the record's length", key=key)
        data = backend.get(key, 0, nbytes)
    except NotFoundError:
        return None
    aside = f"{keys.QUARANTINE}/{key}"
    try:
        if backend.get(aside, 0, nbytes + 1) != data:
            aside = f"{aside}.{hash_of(data)[:8]}"
    except NotFoundError:
        pass
    if not is_key(aside):  # the name is as long as names may be
        aside = f"{keys.QUARANTINE}/{hash_of(data)}"
    return aside, data
