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
    backend.put(aside, data)
    backend.delete(key)
    return aside
