"""Every hard limit, with its reason. A number read from storage is compared here before it is used."""

from __future__ import annotations

from typing import Final

from lcstore.errors import LimitError

#: Elements in one frame: a chunk is at most 512 MiB by default, and this leaves room on paper.
MAX_FRAME_ELEMENTS: Final = 1 << 40
#: A frame decoded by a caller that does not say how much it expects may always hold this many bytes ...
MAX_UNSTATED_BYTES: Final = 128 << 20
#: ... and more only while it claims at most this many bytes of values for each of its own.
MAX_UNSTATED_EXPANSION: Final = 4096
#: Bytes of one record: 100,000 tensors at some 50 bytes each, and room for leaves.
MAX_RECORD_BYTES: Final = 64 << 20
#: Bytes of one layout: 1,000,000 tensors at some 200 bytes each.
MAX_LAYOUT_BYTES: Final = 256 << 20
#: Bytes of a `leaves` object.
MAX_LEAVES_BYTES: Final = 1 << 30
#: Bytes of one stored chunk: a frame never grows far past its raw chunk, and chunks are at most 512 MiB.
MAX_CHUNK_BYTES: Final = 2 << 30
#: Nesting of JSON that is read. Python's own parser fails with RecursionError near 1,000.
MAX_JSON_DEPTH: Final = 160
#: Nesting of a state: each level of a state costs two of JSON.
MAX_TREE_DEPTH: Final = 64
#: Digits of an integer in JSON (Python refuses 4,301; a 64-bit number has 20).
MAX_JSON_DIGITS: Final = 1000
#: Tensors in one state.
MAX_TENSORS: Final = 4_000_000
#: Elements of one tensor or pool.
MAX_POOL_ELEMENTS: Final = 1 << 46
#: Dimensions of one tensor (numpy's own limit).
MAX_DIMS: Final = 64
#: Parts of one edge: each is what one writer stored of it.
MAX_PARTS: Final = 100_000
#: Characters of one key: S3 allows 1,024 bytes, most local file systems 255 a component.
MAX_KEY_CHARS: Final = 512
MAX_NAME_CHARS: Final = 200
#: Names in one listing.
MAX_LISTING: Final = 20_000_000
#: Steps count up from zero and fit 63 bits.
MAX_STEP: Final = (1 << 63) - 1


def check(value: int, limit: int, what: str, *, key: str | None = None) -> int:
    """Return `value`, or raise `LimitError` if it is negative or past `limit`."""
    if value < 0 or value > limit:
        raise LimitError(f"{what} is {value}, past the limit of {limit}", key=key)
    return value
