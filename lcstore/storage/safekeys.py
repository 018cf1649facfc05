"""What a key may be on any target: lower case, no dots to climb with, nothing that a URL escapes.

The format is specified in ``docs/format/keys.md``. What keys mean is in `lcstore.format.keys`.
"""

from __future__ import annotations

import re
from typing import Final

from lcstore.errors import InvalidInputError
from lcstore.limits import MAX_KEY_CHARS, MAX_NAME_CHARS

#: Lower case only, because some file systems take `A` and `a` for one name; unreserved in URLs, so that no
#: target and no server rewrites a key; a component neither begins with a dot (temporary files do) nor ends
#: with one.
_COMPONENT: Final = r"[a-z0-9_~](?:[a-z0-9._~-]*[a-z0-9_~-])?"
_KEY: Final = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_LONG_COMPONENT: Final = re.compile(rf"[^/]{{{MAX_NAME_CHARS + 1}}}")


def is_key(text: str) -> bool:
    """Return whether `text` may name an object."""
    return (
        len(text) <= MAX_KEY_CHARS
        and _KEY.fullmatch(text) is not None
        and (len(text) <= MAX_NAME_CHARS or _LONG_COMPONENT.search(text) is None)
    )


def validate_key(key: str) -> str:
    """Return `key`, or raise `InvalidInputError` if some target would not keep it as it is.

    A key is components joined by ``/``, each of ``a-z 0-9 . _ ~ -``, with no dot at either end.
    """
    if not isinstance(key, str) or not is_key(key):
        raise InvalidInputError(f"not a key: {key!r:.200}")
    return key


def validate_prefix(prefix: str) -> str:
    """Return `prefix`, or raise `InvalidInputError` unless it is a key or "" (the whole store)."""
    return prefix if prefix == "" else validate_key(prefix)


def safe_join(root: str, key: str) -> str:
    """Return the path of `key` below `root`; a key can never lead out of it."""
    validate_key(key)
    return f"{root.rstrip('/')}/{key}"
