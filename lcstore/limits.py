"""Every hard limit, with its reason. A number read from storage is compared here before it is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from lcstore.errors import LimitError

if TYPE_CHECKING:
    import numpy as np

    from lcstore.arrays import Array

#: Elements in one frame: a chunk is at most 512 MiB by default, and this leaves room on paper.
MAX_FRAME_ELEMENTS: Final = 1 << 40
#: A frame decoded by a caller that does not say how much it expects may always hold this many bytes ...
MAX_UNSTATED_BYTES: Final = 64 << 20
#: ... and more only while it claims at most this many bytes of values for each of its own.
MAX_UNSTATED_EXPANSION: Final = 4096
#: Bytes of one record: 100,000 tensors at some 50 bytes each, as many objects at 150, and room for leaves.
MAX_RECORD_BYTES: Final = 32 << 20
#: Bytes of one layout: 250,000 tensors at some 200 bytes each.
MAX_LAYOUT_BYTES: Final = 64 << 20
#: Bytes of memory that JSON may take besides its text: a layout of 250,000 tensors takes some 200 MiB.
MAX_JSON_MEMORY: Final = 256 << 20
#: Bytes of a `leaves` object.
MAX_LEAVES_BYTES: Final = 1 << 30
#: Bytes of one stored chunk: a frame never grows far past its raw chunk, and chunks are at most 512 MiB.
MAX_CHUNK_BYTES: Final = 2 << 30
#: A state may always come to this many bytes. All-zero values are not stored, so a few bytes can claim any
#: size: who has more of them raises this, here or in the environment ...
MAX_UNSTORED_BYTES: int = int(os.environ.get("LCSTORE_MAX_UNSTORED_BYTES", 4 << 30))
#: ... or has this much stored for it: that many bytes of values for each byte.
MAX_UNSTORED_EXPANSION: Final = 4096
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
MAX_NAME_CHARS: Final = 240
#: Names in one listing.
MAX_LISTING: Final = 20_000_000
#: Steps count up from zero and fit 63 bits.
MAX_STEP: Final = (1 << 63) - 1


def check(value: int, limit: int, what: str, *, key: str | None = None) -> int:
    """Return `value`, or raise `LimitError` if it is negative or past `limit`."""
    if value < 0 or value > limit:
        raise LimitError(f"{what} is {value}, past the limit of {limit}", key=key)
    return value


def check_unstored(claimed: int, stored: int) -> None:
    """Refuse values of `claimed` bytes where the `stored` ones on their path cannot account for them."""
    limit = max(MAX_UNSTORED_BYTES, stored * MAX_UNSTORED_EXPANSION)
    if claimed > limit:
        raise LimitError(
            f"{stored} stored bytes claim {claimed} bytes of values, past the limit of {limit}: if this "
            "state is so large, set LCSTORE_MAX_UNSTORED_BYTES in the environment to what it takes"
        )


def zeros(size: int, dtype: np.dtype[Any]) -> Array:
    """Return ``dtype[size]``; `LimitError` where memory has no room for it."""
    import numpy as np  # nothing else here needs it, and a command line starts without

    try:
        return np.zeros(size, dtype)
    except (MemoryError, ValueError) as error:
        raise LimitError(
            f"{size} elements of {dtype} do not fit in memory: read less, with names="
        ) from error
