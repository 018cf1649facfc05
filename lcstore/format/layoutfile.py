"""The object that holds a layout: its bytes, and the hash that names it.

Each object has an id of its own, so no two writers ever store one name, even for equal layouts. A collector
that condemned a layout may therefore delete it: no writer stores it again.
"""

from __future__ import annotations

import secrets

from lcstore.errors import CorruptionError
from lcstore.format import keyforms, keys
from lcstore.format.hashing import hash_of
from lcstore.format.strictjson import dumps, loads
from lcstore.garbage import garbage_waits
from lcstore.layout.layout import Layout
from lcstore.limits import MAX_LAYOUT_BYTES


def layout_object(layout: Layout) -> tuple[str, bytes]:
    """Return the digest and the bytes of a new object for a layout."""
    data = dumps(layout.to_json() | {"id": secrets.token_hex(16)})
    return hash_of(data), data


def read_layout(key: str, data: bytes) -> Layout:
    """Return the layout stored under `key`, having checked its hash.

    Raises
    ------
    CorruptionError
        It is not the one that its name promises, or no layout at all.
    """
    if hash_of(data) != keys.parse_layout_key(key):
        raise CorruptionError("the layout is not the one that its name promises (its hash differs)", key=key)
    value = loads(data, key=key, max_bytes=MAX_LAYOUT_BYTES)
    try:
        if not isinstance(value, dict) or not keyforms.is_id(str(value.pop("id", ""))):
            raise CorruptionError("a stored layout cannot be right: it has no id")
        with garbage_waits():
            return Layout.from_json(value)
    except CorruptionError as error:
        error.key = error.key or key
        raise
