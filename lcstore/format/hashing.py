"""The one hash of stored bytes: objects, records and layouts are known by it. BLAKE3, 32 bytes."""

from __future__ import annotations

from typing import Final

from blake3 import blake3

#: Takes bytes piece by piece (`update`); `hexdigest` gives what `hash_of` gives for all of them.
Hasher: Final = blake3


def hash_of(data: bytes | bytearray | memoryview) -> str:
    """Return the hash of some bytes: 64 lower-case hex digits."""
    return blake3(data).hexdigest()
